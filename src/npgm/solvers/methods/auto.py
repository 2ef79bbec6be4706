"""The method that needs no number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from npgm import _validate
from npgm._array import Array, Namespace, holds_somewhere, select
from npgm.kernels import Cosh
from npgm.references import Isotropic, Reference
from npgm.solvers.directions import Preconditioned, QuasiNewton
from npgm.solvers.directions.quasi_newton import State as QuasiNewtonState
from npgm.solvers.method import Method, Point, register
from npgm.solvers.methods.npgm import scaled
from npgm.solvers.search import Search
from npgm.solvers.search import State as SearchState
from npgm.solvers.stepsizes import as_lr
from npgm.solvers.stepsizes.edge_of_stability import EdgeOfStability
from npgm.solvers.stepsizes.trust_region import State as RegionState
from npgm.solvers.stepsizes.trust_region import TrustRegion
from npgm.solvers.trial import Trial


class State(NamedTuple):
    """The states of the parts, and what decides between them; all of shape (runs, ...)."""

    search: SearchState
    newton: QuasiNewtonState
    region: RegionState
    share: Array
    """t of the present quasi-Newton step."""
    least: Array
    """The decrease that the heavy ball's test would ask for at the present point."""
    finishing: Array
    """Whether the run takes quasi-Newton steps: boolean."""
    steps: Array
    """Evaluations since the last change."""
    budget: Array
    """After how many the heavy ball ends."""
    may_settle: Array
    """Whether the heavy ball may end early: boolean."""
    norms: Array
    """‖∇f‖ at the last points that the heavy ball took, infinite where there are fewer."""
    curvatures: Array
    """The secants of its last steps, 0 where there are fewer."""
    lengths: Array
    """Their lengths."""
    block: Array
    """The quasi-Newton steps of a block."""
    block_best: Array
    """The least ‖∇f‖ in the present block of quasi-Newton steps."""
    last_best: Array
    """The least in the block before."""
    first_norm: Array
    """‖∇f(x⁰)‖."""


FIRST, LATER = 150, 100
"""Evaluations after which the heavy ball ends, at first and after a return to it; both at most the dimension, and then
with a step that is taken."""
SETTLED = 1e-4
"""It ends early, once, when its last 10 gradients have fallen below this share of the first."""
BLOCK, PROGRESS = 40, 0.3
"""Quasi-Newton steps end where the least ‖∇f‖ of a block of so many, twice as many after each such end, is no less than
this share of that of the block before,"""
SHARPER, REJECTIONS = 1.2, 8
"""where a secant exceeds the heavy ball's largest by this factor, or after so many rejections in a row."""


@register
@dataclass(frozen=True)
class Auto(Method):
    """A preconditioned heavy ball at the edge of its stability, then quasi-Newton steps; no number to choose.

    It begins as "npgm" with ``lr="auto"`` and ``scale="auto"``. Once that has settled, or after 150 evaluations, come
    L-BFGS steps in a trust region, each of which also has to decrease f by what the heavy ball's test asks for; where
    the curvature grows, or progress ends, the heavy ball takes over again. One value and one gradient an iteration.

    The bound of `npgm.solvers.stepsizes.edge_of_stability.EdgeOfStability` on min γ(1-β) φ(u) holds for the whole run.

    Args:
        lr: the stepsize rule of the heavy ball.
        momentum: β of the heavy ball, in [0, 1).
        reference: φ, or its name; None for the isotropic cosh.
        scale: its λ, or "auto" for a tenth of ‖∇f(x⁰)‖ in each run; None for that of φ, "auto" where it is 1.
        memory: the number of secants of L-BFGS, of two vectors each.
    """

    key = "auto"
    update = "heavy ball as npgm with lr='auto', scale='auto';  L-BFGS in a trust region, and back"

    lr: Any = "auto"
    momentum: float = 0.9
    reference: Reference = None  # type: ignore[assignment]
    scale: float | str | None = None
    memory: int = 10

    def __post_init__(self) -> None:
        rule = as_lr(self.lr)
        if not isinstance(rule, EdgeOfStability):
            raise ValueError(f"method 'auto' finds its stepsize; for lr={self.lr!r} take method='npgm'")
        reference, scale = scaled(self.reference, self.scale, Isotropic(Cosh()), follows=True)
        memory = _validate.count("memory", self.memory, least=1)
        _validate.assign(self, lr=rule, reference=reference, scale=scale, memory=memory)
        _validate.fields(self, momentum=_validate.fraction)

    def flattened(self, shape: tuple[int, ...]) -> Auto:
        return replace(self, reference=self.reference.flattened(shape))

    @cached_property
    def preconditioned(self) -> Preconditioned:
        """The direction of the heavy ball."""
        return Preconditioned(self.reference, self.scale == "auto")

    @cached_property
    def rule(self) -> EdgeOfStability:
        """Its stepsize."""
        rule: EdgeOfStability = self.lr
        return rule

    @cached_property
    def search(self) -> Search:
        """The heavy ball."""
        return Search(self.preconditioned, self.rule, self.momentum)

    @cached_property
    def newton(self) -> QuasiNewton:
        """The direction of the finish."""
        return QuasiNewton(self.memory)

    @property
    def region(self) -> TrustRegion:
        """Its stepsize."""
        return TrustRegion()

    @property
    def measure(self) -> Reference:
        return self.preconditioned.unscaled

    def scales(self, xp: Namespace, start: Point) -> Array | None:
        return self.preconditioned.init(xp, start)

    def init(self, xp: Namespace, start: Point) -> State:
        zero = xp.zeros_like(start.grad_norm)
        runs = zero.shape[0]
        never = zero > 0.0

        def record(length: int, value: float) -> Array:
            return xp.broadcast_to(zero + value, (runs, length))

        return State(
            search=self.search.init(xp, start),
            newton=self.newton.init(xp, start),
            region=RegionState(zero, zero, zero),
            share=zero,
            least=zero,
            finishing=never,
            steps=zero,
            budget=zero + min(FIRST, start.x.shape[-1]),
            may_settle=~never,
            norms=record(10, xp.inf),
            curvatures=record(30, 0.0),
            lengths=record(30, 0.0),
            block=zero + BLOCK,
            block_best=zero + xp.inf,
            last_best=zero,
            first_norm=start.grad_norm,
        )

    def step(self, xp: Namespace, here: Point, state: State) -> tuple[Array, State]:
        p, search = self.search.step(xp, here, state.search)
        share, least = state.share, self.rule.decrease * search.rule.lr * search.measure
        if holds_somewhere(xp, state.finishing):
            u, measure = self.newton.at(xp, here, state.newton)
            share = self.region.share(xp, u, state.region)
            p = select(xp, state.finishing, -share * u, p)
            search = search._replace(
                step=p,
                direction=select(xp, state.finishing, u, search.direction),
                measure=xp.where(state.finishing, measure, search.measure),
            )
        return here.x + p, state._replace(search=search, share=share, least=least)

    @property
    def judges(self) -> bool:
        return True

    def judge(self, xp: Namespace, here: Point, there: Point, state: State) -> tuple[Array, State]:
        finishing, search = state.finishing, state.search
        trial = Trial.of(xp, here, there, search.step, search.direction, search.measure)
        ball, heavy = self.search.judge(xp, trial, search)
        newton, region = self.region.judge(xp, trial, state.share, state.least, state.region)
        taken = xp.where(finishing, newton, ball)
        idle = search.rule._replace(curvature=heavy.rule.curvature, sharpest=heavy.rule.sharpest)
        rule = type(idle)(*(xp.where(finishing, *each) for each in zip(idle, heavy.rule, strict=True)))

        balled = taken & ~finishing
        norm = xp.where(taken, there.grad_norm, here.grad_norm)
        f = xp.where(taken, there.f, here.f)
        norms = _push(xp, balled, state.norms, norm)
        curvatures = _push(xp, balled, state.curvatures, trial.curvature(xp))
        lengths = _push(xp, balled, state.lengths, trial.step_norm)
        steps = state.steps + 1.0
        sharpest, longest = (xp.max(record, axis=-1, keepdims=True) for record in (curvatures, lengths))

        settled = state.may_settle & (xp.max(norms, axis=-1, keepdims=True) <= SETTLED * state.first_norm)
        budget = xp.where(self.rule.calmed(search.rule), 2.0 * state.budget, state.budget)
        # after a step that was taken, so that its stepsize, by which the first quasi-Newton steps go, is one that fits
        finish = balled & ((steps >= budget) | settled)

        block_best = xp.minimum(state.block_best, norm)
        block_ends = finishing & (steps % state.block == 0.0)
        slow = block_ends & (block_best > PROGRESS * state.last_best)
        stuck = (trial.finite & (trial.curvature(xp) > SHARPER * sharpest)) | (region.rejections >= REJECTIONS)
        back = slow | (finishing & stuck)
        zero = xp.zeros_like(longest)
        fresh = RegionState(2.0 * lengths[:, -1:], longest, zero)
        change = finish | back
        rule = self.rule.restart(xp, back, f, self.preconditioned, search.along, rule)
        return taken, State(
            search=heavy._replace(rule=rule, last=select(xp, back, xp.zeros_like(heavy.last), heavy.last)),
            newton=self.newton.learn(xp, trial, state.newton),
            region=RegionState(*(xp.where(finish, *each) for each in zip(fresh, region, strict=True))),
            share=state.share,
            least=state.least,
            finishing=(finishing & ~back) | finish,
            steps=xp.where(change, zero, steps),
            budget=xp.where(back, zero + min(LATER, here.x.shape[-1]), state.budget),
            may_settle=state.may_settle & ~settled,
            norms=xp.where(back, xp.full_like(norms, xp.inf), norms),
            curvatures=curvatures,
            lengths=lengths,
            block=xp.where(slow, 2.0 * state.block, state.block),
            block_best=xp.where(finish | block_ends, zero + xp.inf, block_best),
            last_best=xp.where(finish, norm, xp.where(block_ends, block_best, state.last_best)),
            first_norm=state.first_norm,
        )

    def stepsize(self, state: State) -> Array:
        return state.search.lr


def _push(xp: Namespace, where: Array, record: Array, value: Array) -> Array:
    """Return the record with ``value`` behind its other entries, without the first, where ``where`` holds."""
    return xp.where(where, xp.concat([record[:, 1:], value], axis=-1), record)

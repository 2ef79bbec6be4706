"""The method that needs no number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from npgm._common import validate
from npgm._common.array import Array, Namespace, holds_somewhere, one_if_zero, select
from npgm.kernels import Cosh
from npgm.references import Isotropic, Reference
from npgm.solvers.method import Method, register
from npgm.solvers.methods.auto import growth, line, quasi_newton
from npgm.solvers.methods.auto.line import Interpolation
from npgm.solvers.methods.auto.line import State as LineState
from npgm.solvers.methods.auto.quasi_newton import QuasiNewton
from npgm.solvers.methods.auto.quasi_newton import State as QuasiNewtonState
from npgm.solvers.methods.npgm import chosen_reference
from npgm.solvers.point import Point, Trial
from npgm.solvers.search import Search
from npgm.solvers.search import State as SearchState
from npgm.solvers.stepsizes import as_lr
from npgm.solvers.stepsizes.edge_of_stability import EdgeOfStability


class State(NamedTuple):
    """The states of the parts, and what decides between them; all of shape (runs, ...)."""

    search: SearchState
    newton: QuasiNewtonState
    line: LineState
    newtons: Array
    """Whether the run takes quasi-Newton steps: boolean."""
    opening: Array
    """Whether no step has been taken: boolean."""
    steps: Array
    """Evaluations since the heavy ball began."""
    limit: Array
    """The secant above which quasi-Newton steps end."""


BUDGET, CALMED = 150, 2
"""The heavy ball ends with the first step taken after so many evaluations, or as many as there are variables; so many
times as many where the curvature has fallen far."""
SHARPER, REJECTIONS = 1.2, 8
"""Quasi-Newton steps end where a secant exceeds by this factor the curvature at which the heavy ball ended, or after so
many rejections in a row."""


@register
@dataclass(frozen=True)
class Auto(Method):
    """Quasi-Newton steps, and a preconditioned heavy ball where those fail. There is no number to choose.

    The first step goes against the gradient. If f grows like a quartic along it, as a factorisation does far from its
    minimisers, the heavy ball of "npgm" with ``lr="auto"`` and ``scale="auto"`` follows, until a quadratic model of f
    holds along its steps. Then, or at once otherwise, L-BFGS steps follow, with lengths by interpolation, from secants
    with the curvature at the ends of steps (Biggs, 1971). If they are rejected repeatedly, or the curvature grows, the
    heavy ball takes over again. An iteration takes one value and one gradient.

    The bound of `npgm.solvers.stepsizes.edge_of_stability.EdgeOfStability` on min γ φ(u) holds for the whole run. For a
    quasi-Newton step p, γ is the number at which its test equals Armijo's, σγφ(u) = c⟨-p, ∇f(x)⟩.

    Args:
        lr: the stepsize rule of the heavy ball.
        momentum: β of the heavy ball, in [0, 1).
        reference: φ, or its name; None for the isotropic cosh.
        scale: its λ, or "auto" for a tenth of ‖∇f(x⁰)‖ in each run; None for the λ of φ, or "auto" if that is 1.
        memory: the number of secants of L-BFGS, of two vectors each; None for 20,000 entries, and 10 to 50 secants.
    """

    key = "auto"
    update = "L-BFGS with interpolation;  heavy ball as npgm with lr='auto', scale='auto'"

    lr: Any = "auto"
    momentum: float = 0.9
    reference: Reference = None  # type: ignore[assignment]
    scale: float | str | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        rule = as_lr(self.lr)
        if not isinstance(rule, EdgeOfStability):
            raise ValueError(f"method 'auto' chooses its stepsize; for lr={self.lr!r} use method='npgm'")
        reference, scale = chosen_reference(self.reference, self.scale, Isotropic(Cosh()), follows=True)
        memory = self.memory if self.memory is None else validate.count("memory", self.memory, least=1)
        validate.assign(self, lr=rule, reference=reference, scale=scale, memory=memory)
        validate.fields(self, momentum=validate.fraction)

    def flattened(self, shape: tuple[int, ...]) -> Auto:
        reference = self.reference.flattened(shape)
        return self if reference is self.reference else replace(self, reference=reference)

    @cached_property
    def rule(self) -> EdgeOfStability:
        """Its stepsize."""
        rule: EdgeOfStability = self.lr
        return rule

    @cached_property
    def search(self) -> Search:
        """The heavy ball."""
        return Search(self.stationarity_reference, self.rule, self.momentum)

    @cached_property
    def newton(self) -> QuasiNewton:
        """The direction of quasi-Newton steps."""
        return QuasiNewton(self.memory)

    @property
    def line(self) -> Interpolation:
        """Their length."""
        return Interpolation()

    @property
    def stationarity_reference(self) -> Reference:
        return self.reference

    def init(self, xp: Namespace, start: Point) -> State:
        zero = xp.zeros_like(start.grad_norm)
        never = zero > 0.0
        return State(
            search=self.search.init(xp, start, self.preconditioned(xp, start)),
            newton=self.newton.init(xp, start),
            line=self.line.init(zero),
            newtons=never,
            opening=~never,
            steps=zero,
            limit=zero + xp.inf,
        )

    def step(self, xp: Namespace, here: Point, state: State) -> tuple[Array, State]:
        p, search = self.search.step(xp, here, state.search)
        if holds_somewhere(xp, state.newtons):
            u, model = self.newton.at(xp, here, state.newton)
            share = self.line.share(xp, u, state.line)
            p = select(xp, state.newtons, -share * u, p)
            # that at which the heavy ball's test asks for as much as Armijo's
            lr = 2.0 * line.ARMIJO / (self.rule.decrease or 1.0) * share * model / one_if_zero(xp, search.stationarity)
            search = search._replace(step=p, lr=xp.where(state.newtons, lr, search.lr))
        return here.x + p, state._replace(search=search)

    @property
    def judges(self) -> bool:
        return True

    def judge(self, xp: Namespace, here: Point, there: Point, state: State) -> tuple[Array, State]:
        newtons, search = state.newtons, state.search
        trial = Trial.of(xp, here, there, search.step, search.direction, search.stationarity)
        balls, heavy = self.search.judge(xp, trial, search)
        curved = self.newton.curved(trial)
        followed, line = self.line.judge(xp, trial, curved, state.line)
        taken = xp.where(newtons, followed, balls)

        balled = taken & ~newtons
        steps = state.steps + 1.0
        zero = xp.zeros_like(steps)
        budget = min(BUDGET, here.x.shape[-1]) * xp.where(self.rule.calmed(search.rule), CALMED + zero, 1.0 + zero)
        onwards = balled & ((steps >= budget) | (state.opening & ~growth.is_quartic(xp, trial)))
        sharper = trial.finite & (trial.curvature(xp) > state.limit)
        back = newtons & (sharper | (line.rejections >= REJECTIONS))

        idle = search.rule._replace(curvature=heavy.rule.curvature, sharpest=heavy.rule.sharpest)
        rule = type(idle)(*(xp.where(newtons, *each) for each in zip(idle, heavy.rule, strict=True)))
        f = xp.where(taken, there.f, here.f)
        rule = self.rule.restart(xp, back, f, self.search.preconditioned(search), rule)
        fresh = self.line.init(trial.step_norm)
        newtons = (newtons & ~back) | onwards
        limit = xp.where(onwards, xp.where(state.opening, zero + xp.inf, SHARPER * rule.curvature), state.limit)
        # not where a heavy ball was needed, or a longer step was rejected
        wide = newtons & xp.isinf(limit) & (state.line.rejections == 0.0)
        return taken, State(
            search=heavy._replace(rule=rule, last=select(xp, back, xp.zeros_like(heavy.last), heavy.last)),
            newton=self.newton.learn(xp, quasi_newton.at_end(xp, trial), taken & curved, state.newton, wide),
            line=LineState(*(xp.where(onwards, *each) for each in zip(fresh, line, strict=True))),
            newtons=newtons,
            opening=state.opening & ~taken,
            steps=xp.where(back, zero, steps),
            limit=limit,
        )

    def stepsize(self, state: State) -> Array:
        return state.search.lr


def numbers() -> dict[str, float]:
    """Return the numbers of the parts by the names that the native module has for them."""
    return {
        **quasi_newton.numbers(),
        **line.numbers(),
        "cosine": growth.COSINE,
        "least_degree": growth.DEGREES[0],
        "largest_degree": growth.DEGREES[1],
        "budget": BUDGET,
        "calmed": CALMED,
        "sharper": SHARPER,
        "rejections": REJECTIONS,
    }

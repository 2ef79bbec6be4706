"""Quasi-Newton steps for f + g: the default with ``prox`` or ``bounds``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from npgm._common import validate
from npgm._common.array import Array, Namespace, dot, holds_somewhere, one_if_zero, row_norms, select
from npgm.solvers.composite_method import CompositeMethod
from npgm.solvers.method import register
from npgm.solvers.methods.auto import line, quasi_newton
from npgm.solvers.methods.auto.line import Interpolation
from npgm.solvers.methods.auto.line import State as LineState
from npgm.solvers.methods.auto.quasi_newton import QuasiNewton
from npgm.solvers.methods.auto.quasi_newton import State as QuasiNewtonState
from npgm.solvers.point import Point, Trial
from npgm.solvers.stepsizes.edge_of_stability import FIRST, extent

DECREASE, TRIALS = 0.1, 2
"""A step is taken if f + g falls by this share of Δ; after so many rejections in a row the next is the proximal
gradient step."""
FAR, COSINE = 30.0, 0.8
"""The first step between bounds goes this part of the way to where a step so many times as long would lead, if that is
towards the origin: if the cosine of the angle between the way and x is larger."""
DISCOUNT = 0.97
"""The share of the largest secant that is kept each step."""


class Forward(NamedTuple):
    """The proximal gradient step from x: y = x - γ∇f(x), z = argmin g + ‖· - y‖²/(2γ)."""

    lr: Array
    """γ, of shape (runs, 1)."""
    y: Array
    z: Array
    residual: Array
    """r = (x - z)/γ, of shape (runs, n): zero at a stationary point."""
    decrease: Array
    """Δ = g(x) - g(z) + γ/2 (‖∇f‖² - ‖∇f - r‖²): f + g falls by it at least where γ <= 1/L; of shape (runs, 1)."""


class State(NamedTuple):
    """The parts; and the step that is tried, with its γ, and Δ/γ as ``decrease``."""

    forward: Forward
    newton: QuasiNewtonState
    line: LineState
    secant: Array
    """The largest secant ‖Δ∇f‖/‖Δx‖, those of the past discounted, of shape (runs, 1)."""
    g: Array
    subgradient: Array
    lr: Array
    decrease: Array
    plain: Array
    """Whether the step is that to z: boolean, of shape (runs, 1)."""
    length: Array
    """The length of the step before the proximal map."""
    step: Array
    next_g: Array
    next_subgradient: Array


@register
@dataclass(frozen=True, kw_only=True)
class ProximalLBFGS(CompositeMethod):
    """x⁺ = argmin g + ‖· - (y + x - z - t u)‖²/(2γ), with u the L-BFGS direction for r = (x - z)/γ.

    Here y = x - γ∇f(x), and z = argmin g + ‖· - y‖²/(2γ) is the proximal gradient step, so r is zero at a stationary
    point. With u = H r, H the inverse BFGS matrix of the changes of r, x - u is the step of PANOC (Stella, Themelis,
    Sopasakis and Patrinos, 2017, arXiv 1709.06487). The proximal map that follows makes g finite at every point, so the
    test can require f + g itself to fall.

    Where g is a box, the entries that z puts on a bound go there. In the others u = H∇f(x), with H made of these
    entries of the steps and of the changes of ∇f, and x⁺ is the projection of x - t u. From a start that is too large,
    as of a nonnegative factorisation, the first step does not touch the bounds: it goes straight towards the origin,
    which keeps the proportions of x.

    Where rounding has spoilt H, so that u does not point along r, it is built anew from the last change.

    One value and one gradient an iteration. t follows by interpolation. After two rejections the next step is the step
    to z, with u = x - z, t = 1 and decreasing γ. A step is taken only if f + g falls by a tenth of Δ, the decrease of
    the step to z for γ <= 1/L. So the Δ of the steps taken sum to at most ten times the height of f + g at x⁰ above its
    infimum.

    Args:
        prox: g, a function of `npgm.proximal` or your own, finite at the start.
        memory: the number of secants of L-BFGS, of two vectors each; None for 20,000 entries, and 10 to 50 secants.
    """

    key = "proximal_lbfgs"
    update = (
        "x ← argmin g + ‖· - (y + x - z - t H r)‖²/(2γ) with y = x - γ ∇f(x), z = argmin g + ‖· - y‖²/(2γ), γ r = x - z"
    )

    lr: Any = field(default=None, init=False, repr=False)
    memory: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory is not None:
            validate.assign(self, memory=validate.count("memory", self.memory, least=1))

    @cached_property
    def newton(self) -> QuasiNewton:
        """The direction."""
        return QuasiNewton(self.memory)

    @property
    def line(self) -> Interpolation:
        """Its length."""
        return Interpolation()

    @property
    def on_faces(self) -> bool:
        """Whether g is the indicator of a box, with faces on which f alone is what is to be minimised."""
        return self.prox.separable and self.prox.indicator

    @property
    def judges(self) -> bool:
        return True

    def init(self, xp: Namespace, start: Point) -> State:
        g = self.value_at_start(xp, start.x)
        lr = FIRST * extent(xp, start.x) / one_if_zero(xp, start.grad_norm)
        zero, none = xp.zeros_like(g), xp.zeros_like(start.x)
        return State(
            forward=self._forward(xp, start.x, start.grad, g, lr),
            newton=self.newton.init(xp, start),
            line=self.line.init(zero),
            secant=zero,
            g=g,
            subgradient=none + xp.nan,
            lr=lr,
            decrease=zero,
            plain=zero == 0.0,
            length=zero,
            step=none,
            next_g=g,
            next_subgradient=none,
        )

    def step(self, xp: Namespace, here: Point, state: State) -> tuple[Array, State]:
        lr, y, z, r, decrease = state.forward
        u = self._direction(xp, here.grad, state)
        first = state.newton.curvatures[:, -1:] == 0.0
        plain = first | (state.line.rejections >= TRIALS)
        spoilt = ~(plain | (dot(xp, u, r) > quasi_newton.STRAIGHT * row_norms(xp, u) * row_norms(xp, r)))
        newton = self.newton.forget(xp, spoilt, state.newton) if holds_somewhere(xp, spoilt) else state.newton
        plain = plain | spoilt
        u = select(xp, plain, lr * r, u)
        t = xp.where(plain, xp.ones_like(lr), self.line.share(xp, u, state.line))
        if self.on_faces:
            target = select(xp, plain, y, here.x - t * u)
            target = select(xp, first & (state.line.rejections == 0.0), self._opening(xp, here, y, lr), target)
        else:
            target = select(xp, plain, y, here.x + (y - z) - t * u)
        x = self._proximal_point(xp, target, lr)
        return x, state._replace(
            lr=lr,
            decrease=decrease / lr,
            plain=plain,
            newton=newton,
            length=t * row_norms(xp, u),
            step=x - here.x,
            next_g=self.value(xp, x),
            next_subgradient=(target - x) / lr,
        )

    def judge(self, xp: Namespace, here: Point, there: Point, state: State) -> tuple[Array, State]:
        p, lr, least = state.step, state.lr, DECREASE * state.forward.decrease
        trial = Trial.of(
            xp,
            here._replace(f=here.f + state.g, grad_norm=row_norms(xp, state.forward.residual)),
            there._replace(f=there.f + state.next_g, grad_norm=row_norms(xp, there.grad + state.next_subgradient)),
            p,
            p,
            state.decrease,
        )
        # along the step, g is taken for its chord
        trial = replace(trial, slope=trial.slope + (state.next_g - state.g))
        curved = self.newton.curved(trial)
        fallen = trial.finite & (trial.there.f <= trial.here.f - least + trial.slack(xp))
        taken = fallen & (state.plain | self.line.passes(xp, trial))
        # by the length before the proximal map
        line = self.line.follow(xp, replace(trial, step_norm=state.length), taken, curved, state.line)

        largest = xp.where(trial.finite, xp.maximum(trial.curvature(xp), DISCOUNT * state.secant), state.secant)
        inverse = xp.where(largest > 0.0, 1.0 / one_if_zero(xp, largest), xp.full_like(lr, xp.inf))
        apt = (lr <= inverse) & (lr >= 0.5 * inverse)
        following = xp.where(apt, lr, xp.minimum(inverse, 2.0 * lr))
        shorter = xp.where(trial.finite, xp.minimum(inverse, 0.5 * lr), 0.1 * lr)
        following = xp.where(taken, following, xp.where(state.plain, shorter, lr))
        g = xp.where(taken, state.next_g, state.g)
        x, grad = select(xp, taken, there.x, here.x), select(xp, taken, there.grad, here.grad)
        forward = self._forward(xp, x, grad, g, following)

        if self.on_faces:
            trial, learnt = quasi_newton.at_end(xp, trial), taken & curved
        else:
            change = forward.residual - state.forward.residual
            change = xp.where(taken, change, xp.zeros_like(change))
            trial = replace(trial, change=change, change_norm=row_norms(xp, change), product=dot(xp, p, change))
            learnt = taken & (following == lr) & self.newton.curved(trial)
        subgradient = select(xp, taken, state.next_subgradient, state.subgradient)
        if self.prox.separable:  # where z = x, -∇f is a subgradient of g
            subgradient = xp.where(forward.z == x, -grad, subgradient)
        return taken, state._replace(
            forward=forward,
            newton=self.newton.learn(xp, trial, learnt, state.newton),
            line=line,
            secant=xp.where(taken | state.plain, largest, state.secant),
            g=g,
            subgradient=subgradient,
        )

    def stepsize(self, state: State) -> Array:
        return state.lr

    def _direction(self, xp: Namespace, grad: Array, state: State) -> Array:
        """Return u."""
        lr, y, z, r, _ = state.forward
        if not self.on_faces:
            return self.newton.product(xp, r, state.newton)
        free = z == y
        u = self.newton.product_on_faces(xp, xp.where(free, grad, xp.zeros_like(grad)), free, state.newton)
        return xp.where(free, u, lr * r)

    def _opening(self, xp: Namespace, start: Point, y: Array, lr: Array) -> Array:
        """Return what the first step projects: y, or a point on the way to the origin."""
        x, far = start.x, FAR * lr
        way = x - self._proximal_point(xp, x - far * start.grad, far)
        homewards = dot(xp, way, x) > COSINE * row_norms(xp, way) * row_norms(xp, x)
        return select(xp, homewards, x - way / FAR, y)

    def _forward(self, xp: Namespace, x: Array, grad: Array, g: Array, lr: Array) -> Forward:
        y = x - lr * grad
        z = self._proximal_point(xp, y, lr)
        r = (x - z) / lr
        at_z = self.value(xp, z)
        before = 0.5 * lr * dot(xp, r, 2.0 * grad - r)
        rounding = 16.0 * float(xp.finfo(x.dtype).eps) * (xp.abs(before) + xp.abs(g) + xp.abs(at_z))
        return Forward(lr, y, z, r, xp.clip(g - at_z + before - rounding, 0.0, None))

    def _proximal_point(self, xp: Namespace, y: Array, lr: Array) -> Array:
        """Return argmin g + ‖· - y‖²/(2γ) of each run."""
        points = self.points(xp, y)
        return self.rows(xp, self.prox.prox(points, self.each(xp, lr), self.axes), points)


def numbers() -> dict[str, Any]:
    """Return the numbers of the method and its parts by the names that the native module has for them."""
    return {
        **quasi_newton.numbers(),
        **line.numbers(),
        "decrease": DECREASE,
        "trials": TRIALS,
        "far": FAR,
        "cosine": COSINE,
        "discount": DISCOUNT,
    }

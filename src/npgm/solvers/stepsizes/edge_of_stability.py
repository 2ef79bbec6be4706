"""The stepsize that follows the local curvature at the edge of the heavy ball's stability."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from npgm._common import validate
from npgm._common.array import Array, Namespace, one_if_zero, row_norms
from npgm.solvers.point import Point, Trial
from npgm.solvers.preconditioned import Preconditioned
from npgm.solvers.stepsizes.base import Stepsize, register


class State(NamedTuple):
    """γ; the momentum of the next step, 0 or β; the curvature L and the largest secant so far; f at the last points."""

    lr: Array
    momentum: Array
    curvature: Array
    sharpest: Array
    window: Array


FIRST = 0.1
"""The length of the first step over ‖x⁰‖."""
SATURATED = 100.0
"""Where ∇f has become so much larger than λ that ‖u‖ is less than this share of κ‖∇f‖, steps with γ = 1/(κL) would be
far too short: 1/κ is at least ‖∇f‖/‖u‖ over this number."""
CALM = 0.2
"""Where L has fallen below this share of the largest secant, the start was much steeper than where the run is now."""


@register
@dataclass(frozen=True)
class EdgeOfStability(Stepsize):
    """p = -γ u + β p' with γ = 1.4 (1+β)/(κL), 70 % of the stable limit at the curvature L.

    γ at most doubles each step. L is the largest of the secants ‖Δ∇f‖/‖Δx‖, with past ones discounted, and κ the
    curvature of φ* at 0, so κL is the curvature of the preconditioned gradient near a minimiser. A step is taken if it
    passes a nonmonotone descent test

        f(x+p) <= max(f at the last W/2 points) - σ γ φ(u).

    From a start that is much too large, the first steps leave an imbalance that keeps L large in directions that hardly
    matter to f; only steps beyond the edge of stability reduce it. So once L is below a fifth of the largest secant, it
    forgets three times as fast, and f may rise to the largest of all the last W values.

    Over K steps taken, min γ φ(u) <= (f(x⁰) - inf f)/(σ⌊K/W⌋), which needs no L (docs/theory.md). After a step that
    fails, shorter steps of the base method follow, without momentum, until one passes. Here γ is the stepsize in
    Polyak's form; 1-β times that of `npgm`.

    Args:
        safety: the share of the stable limit, positive.
        discount: the share of a secant that is kept each step, in [0, 1].
        window: W >= 1.
        decrease: σ in [0, 1), positive for the bound to say anything.

    Raises:
        TypeError, ValueError: if one is not.
    """

    key = "auto"
    usual_momentum = 0.9

    safety: float = 0.7
    discount: float = 0.97
    window: int = 20
    decrease: float = 0.1

    def __post_init__(self) -> None:
        validate.fields(self, safety=validate.positive, decrease=validate.fraction)
        validate.fields(self, discount=partial(validate.fraction, closed=True), window=partial(validate.count, least=1))

    def init(self, xp: Namespace, start: Point, phi: Preconditioned, momentum: float) -> State:
        if not 0.0 < phi.reference.curvature_at_zero < float("inf"):
            needed = "a φ whose conjugate has a positive and finite curvature at 0"
            raise ValueError(f"lr={self.key!r} needs {needed}, not {phi.reference!r}")
        lr = FIRST * extent(xp, start.x) / one_if_zero(xp, row_norms(xp, phi(start.grad)))
        zero = xp.zeros_like(lr)
        return State(lr, zero, zero, zero, xp.broadcast_to(start.f, (start.f.shape[0], self.window)))

    def coefficients(self, state: State, momentum: float) -> tuple[Array, Array]:
        return state.lr, state.momentum

    def judge(
        self, xp: Namespace, trial: Trial, phi: Preconditioned, state: State, momentum: float
    ) -> tuple[Array, State]:
        lr, window, f = state.lr, state.window, trial.there.f
        calmed = self.calmed(state)
        recent = xp.max(window[:, self.window // 2 :], axis=-1, keepdims=True)
        highest = xp.where(calmed, xp.max(window, axis=-1, keepdims=True), recent)
        taken = trial.finite & (f <= highest - self.decrease * lr * trial.stationarity + trial.slack(xp))
        secant = xp.where(trial.finite, trial.curvature(xp), xp.zeros_like(lr))
        kept = xp.where(calmed, xp.full_like(lr, self.discount**3), xp.full_like(lr, self.discount))
        curvature = xp.where(trial.finite, xp.maximum(secant, kept * state.curvature), state.curvature)
        straight = trial.here.grad_norm / (SATURATED * one_if_zero(xp, row_norms(xp, trial.direction)))
        # infinite where no curvature was seen
        inverse = xp.clip(straight, 1.0 / phi.curvature, None) / curvature
        longer = xp.minimum(2.0 * self.safety * (1.0 + momentum) * inverse, 2.0 * lr)
        shorter = xp.minimum(xp.where(state.momentum == 0, 0.5 * lr, lr), inverse)
        following = xp.where(taken, longer, xp.where(trial.finite, shorter, 0.1 * lr))
        moved = xp.concat([window[:, 1:], f], axis=-1)
        return taken, State(
            following,
            xp.where(taken, xp.full_like(lr, momentum), xp.zeros_like(lr)),
            curvature,
            xp.maximum(state.sharpest, secant),
            xp.where(taken, moved, window),
        )

    def calmed(self, state: State) -> Array:
        """Return the runs whose curvature is far below that of where they come from: boolean, of shape (runs, 1)."""
        return state.curvature < CALM * state.sharpest

    def restart(self, xp: Namespace, where: Array, f: Array, phi: Preconditioned, state: State) -> State:
        """Return the state to begin anew at the value ``f`` where ``where`` holds: with the base step at 1/L."""
        inverse = 1.0 / (phi.curvature * state.curvature)
        return state._replace(
            lr=xp.where(where & xp.isfinite(inverse), inverse, state.lr),
            momentum=xp.where(where, xp.zeros_like(inverse), state.momentum),
            window=xp.where(where, xp.broadcast_to(f, state.window.shape), state.window),
        )


def extent(xp: Namespace, x: Array) -> Array:
    """Return ‖x‖, of shape (runs, 1), or 1 for the origin: the length by which first steps are measured."""
    return one_if_zero(xp, row_norms(xp, x))

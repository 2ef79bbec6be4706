"""The stepsize that follows the local curvature at the edge of the heavy ball's stability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from npgm._array import Array, Namespace, one_if_zero, row_norms
from npgm.solvers.method import Point
from npgm.solvers.stepsizes.base import Stepsize, register
from npgm.solvers.trial import Trial

if TYPE_CHECKING:
    from npgm.solvers.directions import Direction


class State(NamedTuple):
    """γ; the momentum of the next step, 0 or β; the curvature L; f at the last points."""

    lr: Array
    momentum: Array
    curvature: Array
    window: Array


@register
@dataclass(frozen=True)
class EdgeOfStability(Stepsize):
    """p = -γ u + β p', γ = 1.4 (1+β)/(κL), 70 % of what is stable at the curvature L, and at most doubled each step.

    L is the largest of the secants ‖Δ∇f‖/‖Δx‖, those of the past discounted, and κ the curvature of φ* at 0, so that
    κL is that of the preconditioned gradient near a minimiser. A step is taken if it passes a nonmonotone descent test

        f(x+p) <= max(f at the last W points) - σ γ φ(u).

    Over K steps taken, min γ φ(u) <= (f(x⁰) - inf f)/(σ⌊K/W⌋), which needs no L (docs/theory.md). After one that fails,
    the next is a step of the base method, without momentum, and shorter, until one passes. Here γ is the stepsize in
    Polyak's form; 1-β times that of `npgm`.

    Args:
        safety: the share of what is stable.
        discount: what a secant loses each step.
        window: W.
        decrease: σ.
    """

    key = "auto"
    usual_momentum = 0.9

    safety: float = 0.7
    discount: float = 0.97
    window: int = 10
    decrease: float = 0.1

    def init(self, xp: Namespace, start: Point, direction: Direction, state: Any, momentum: float) -> State:
        if not 0.0 < direction.curvature_at_zero < float("inf"):
            raise ValueError(
                f"lr={self.key!r} needs a φ whose conjugate has a positive and finite curvature at 0, not {direction!r}"
            )
        u, _ = direction.at(xp, start, state)
        lr = 0.03 * extent(xp, start.x) / one_if_zero(xp, row_norms(xp, u))
        zero = xp.zeros_like(lr)
        return State(lr, zero, zero, xp.broadcast_to(start.f, (start.f.shape[0], self.window)))

    def coefficients(self, state: State, momentum: float) -> tuple[Array, Array]:
        return state.lr, state.momentum

    def judge(
        self, xp: Namespace, trial: Trial, direction: Direction, along: Any, state: State, momentum: float
    ) -> tuple[Array, State]:
        lr, window, f = state.lr, state.window, trial.there.f
        highest = xp.max(window, axis=-1, keepdims=True)
        taken = trial.finite & (f <= highest - self.decrease * lr * trial.measure + trial.slack(xp))
        curvature = xp.maximum(trial.curvature(xp), self.discount * state.curvature)
        curvature = xp.where(trial.finite, curvature, state.curvature)
        inverse = 1.0 / (direction.curvature(xp, along) * curvature)  # infinite where no curvature was seen
        longer = xp.minimum(2.0 * self.safety * (1.0 + momentum) * inverse, 2.0 * lr)
        shorter = xp.minimum(xp.where(state.momentum == 0, 0.5 * lr, lr), inverse)
        following = xp.where(taken, longer, xp.where(trial.finite, shorter, 0.1 * lr))
        moved = xp.concat([window[:, 1:], f], axis=-1)
        return taken, State(
            following,
            xp.where(taken, xp.full_like(lr, momentum), xp.zeros_like(lr)),
            curvature,
            xp.where(taken, moved, window),
        )

    def restart(self, xp: Namespace, where: Array, f: Array, direction: Direction, along: Any, state: State) -> State:
        """Return the state to begin anew at the value ``f`` where ``where`` holds: with the base step at 1/L."""
        inverse = 1.0 / (direction.curvature(xp, along) * state.curvature)
        return state._replace(
            lr=xp.where(where & xp.isfinite(inverse), inverse, state.lr),
            momentum=xp.where(where, xp.zeros_like(inverse), state.momentum),
            window=xp.where(where, xp.broadcast_to(f, state.window.shape), state.window),
        )


def extent(xp: Namespace, x: Array) -> Array:
    """Return ‖x‖, of shape (runs, 1), or 1 for the origin: the length by which first steps are measured."""
    return one_if_zero(xp, row_norms(xp, x))

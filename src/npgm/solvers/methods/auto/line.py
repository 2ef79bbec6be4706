"""The length of quasi-Newton steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from npgm._common.array import Array, Namespace, one_if_zero, row_norms
from npgm.solvers.point import Trial

ARMIJO, STEEP = 1e-4, 0.9
"""A step is taken if f falls by the first share of what the slope at its start promises; where the slope at its end is
more than the second share of that, the step was too short."""
LONGER, LAST = 10.0, 0.5
"""A step is at most so many times as long as the last ones: the last length, or this share of those before."""
SHORTEST, LONGEST = 0.1, 0.5
"""After a step that is rejected, the next has between these shares of its length."""
STRETCH = 4.0
"""The factor by which steps grow while f falls steeply and its slope does not flatten, so that no pair is learnt."""


class State(NamedTuple):
    """All of shape (runs, 1)."""

    reach: Array
    """The longest step that may be tried."""
    last: Array
    """The length of the last steps."""
    stretch: Array
    """The t of a step -t u, if it is within reach."""
    rejections: Array
    """The number of rejections in a row."""


@dataclass(frozen=True)
class Interpolation:
    """p = -t u, with t = 1 as a rule, and one evaluation an iteration.

    A step is taken if f falls by Armijo's share, f(x+p) <= f(x) + c⟨∇f(x), p⟩. After one that is not, the next has the
    length at which the cubic through both values and slopes is least (Moré and Thuente, 1994).
    """

    def init(self, length: Array) -> State:
        """Return the state after a step of this length was taken."""
        zero = 0.0 * length
        return State(LONGER * length, length, zero + 1.0, zero)

    def share(self, xp: Namespace, u: Array, state: State) -> Array:
        """Return t, of shape (runs, 1)."""
        return xp.minimum(state.stretch, state.reach / one_if_zero(xp, row_norms(xp, u)))

    def judge(self, xp: Namespace, trial: Trial, curved: Array, state: State) -> tuple[Array, State]:
        """Return where the step is taken, and the next state; ``curved`` is where a pair is learnt from it."""
        taken = self.passes(xp, trial)
        return taken, self.follow(xp, trial, taken, curved, state)

    def passes(self, xp: Namespace, trial: Trial) -> Array:
        """Return where f falls enough."""
        slope, end = trial.slope, trial.slope + trial.product
        change = trial.there.f - trial.here.f
        taken = trial.finite & (change <= ARMIJO * slope + trial.slack(xp))
        # a change of f that is lost in rounding says nothing: the gradient decides
        flat = xp.abs(change) < max(1e-10, 64.0 * float(xp.finfo(change.dtype).eps)) * xp.abs(trial.here.f)
        settled = (trial.there.grad_norm < 1.5 * trial.here.grad_norm) | (xp.abs(end) <= STEEP * xp.abs(slope))
        return taken & (~flat | settled)

    def follow(self, xp: Namespace, trial: Trial, taken: Array, curved: Array, state: State) -> State:
        """Return the next state, where ``taken`` says which steps are."""
        slope, end = trial.slope, trial.slope + trial.product
        least = cubic_minimiser(xp, trial.there.f - trial.here.f, slope, end)
        least = xp.clip(xp.where(xp.isfinite(least), least, xp.full_like(least, LONGEST)), SHORTEST, LONGEST)
        shorter = xp.where(trial.finite, least, xp.full_like(least, SHORTEST)) * trial.step_norm
        last = xp.where(taken, xp.maximum(trial.step_norm, LAST * state.last), state.last)
        one = xp.ones_like(last)
        stretch = xp.where(curved | (end >= STEEP * slope), one, STRETCH * state.stretch)
        return State(
            xp.where(taken, LONGER * last, shorter),
            last,
            xp.where(taken, stretch, state.stretch),
            xp.where(taken, 0.0 * one, state.rejections + 1.0),
        )


def numbers() -> dict[str, float]:
    """Return the numbers by the names that the native module has for them."""
    return {
        "armijo": ARMIJO,
        "steep": STEEP,
        "longer": LONGER,
        "last": LAST,
        "shortest": SHORTEST,
        "longest": LONGEST,
        "stretch": STRETCH,
    }


def cubic_minimiser(xp: Namespace, change: Array, slope: Array, end: Array) -> Array:
    """Return where the cubic with values 0 and ``change`` and the given slopes at 0 and 1 is least; NaN if nowhere."""
    middle = slope + end - 3.0 * change
    root = xp.sqrt(middle * middle - slope * end)
    return 1.0 - (end + root - middle) / (end - slope + 2.0 * root)

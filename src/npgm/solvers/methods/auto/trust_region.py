"""A trust region around steps of length one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from npgm._array import Array, Namespace, one_if_zero, row_norms
from npgm.solvers.point import Trial


class State(NamedTuple):
    """The radius, the one up to which it may double, and the number of rejections in a row."""

    radius: Array
    doubling_limit: Array
    rejections: Array


@dataclass(frozen=True)
class TrustRegion:
    """p = -t u with t = min(1, radius/‖u‖), for a direction whose own length is right near a minimiser.

    The model φ predicts a decrease of t(2-t)φ(u). A step is taken if f falls by a tenth of that. The radius is halved
    where f falls by less than a quarter of it, and grows where by more than three quarters.
    """

    decrease: float = 0.1

    def share(self, xp: Namespace, u: Array, state: State) -> Array:
        """Return t, of shape (runs, 1)."""
        return xp.clip(state.radius / one_if_zero(xp, row_norms(xp, u)), None, 1.0)

    def judge(self, xp: Namespace, trial: Trial, share: Array, least: Array, state: State) -> tuple[Array, State]:
        """Return where the step is taken, and the next state; f has to fall by ``least``, too."""
        predicted = share * (2.0 - share) * trial.stationarity
        fall = trial.here.f - trial.there.f
        taken = trial.finite & (fall >= -trial.slack(xp) + xp.maximum(self.decrease * predicted, least))
        # a change of f that is lost in rounding says nothing: the gradient decides
        flat = xp.abs(fall) < max(1e-10, 64.0 * float(xp.finfo(fall.dtype).eps)) * xp.abs(trial.here.f)
        settled = trial.there.grad_norm < 1.5 * trial.here.grad_norm
        poor = xp.where(flat, ~settled, fall < 0.25 * predicted) | ~trial.finite
        good = xp.where(flat, settled, fall > 0.75 * predicted) & trial.finite & (share < 1.0)
        shorter = xp.where(trial.finite, 0.5 * xp.minimum(state.radius, trial.step_norm), 0.1 * trial.step_norm)
        longer = xp.where(state.radius < state.doubling_limit, 2.0 * state.radius, 1.2 * state.radius)
        radius = xp.where(poor, shorter, xp.where(good, longer, state.radius))
        return taken, State(radius, state.doubling_limit, xp.where(taken, xp.zeros_like(fall), state.rejections + 1.0))

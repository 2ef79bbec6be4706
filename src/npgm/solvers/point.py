"""Where all runs are, and the steps that they try."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from npgm._common.array import Array, Namespace, dot, one_if_zero, row_norms


class Point(NamedTuple):
    """Where all runs are: one row for each independent run, whatever the shape that the user's function sees."""

    x: Array
    """The points, of shape (runs, n)."""
    f: Array
    """The values, of shape (runs, 1)."""
    grad: Array
    """The gradients, of shape (runs, n)."""
    grad_norm: Array
    """Their norms, of shape (runs, 1)."""


@dataclass(frozen=True)
class Trial:
    """The step p from ``here`` to ``there``. Arrays have shape (runs, n) for vectors and (runs, 1) for numbers."""

    here: Point
    there: Point
    step: Array
    """p."""
    direction: Array
    """u: p = -γ(1-β) u + (a multiple of the last step), or -t u."""
    stationarity: Array
    """φ(u)."""
    step_norm: Array
    """‖p‖."""
    change: Array
    """y = ∇f(there) - ∇f(here), zero where ``there`` is not finite."""
    change_norm: Array
    """‖y‖."""
    product: Array
    """⟨p, y⟩."""
    slope: Array
    """⟨∇f(here), p⟩."""
    finite: Array
    """Whether f and ∇f are finite at ``there``: boolean."""

    @classmethod
    def of(cls, xp: Namespace, here: Point, there: Point, step: Array, direction: Array, stationarity: Array) -> Trial:
        """Return the step with its lengths and products."""
        finite = xp.isfinite(there.f) & xp.isfinite(there.grad_norm)
        change = xp.where(finite, there.grad - here.grad, xp.zeros_like(step))
        lengths = row_norms(xp, step), change, row_norms(xp, change), dot(xp, step, change), dot(xp, here.grad, step)
        return cls(here, there, step, direction, stationarity, *lengths, finite)

    def curvature(self, xp: Namespace) -> Array:
        """Return the secant ℓ = ‖y‖/‖p‖."""
        return self.change_norm / one_if_zero(xp, self.step_norm)

    def slack(self, xp: Namespace) -> Array:
        """Return what rounding may have added to f."""
        return rounding(float(xp.finfo(self.step.dtype).eps)) * xp.abs(self.here.f)


def rounding(eps: float) -> float:
    """Return what rounding may make of f, relative to it, in a dtype of this machine epsilon."""
    return max(1e-12, 8.0 * eps)

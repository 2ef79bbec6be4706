"""The simplex and the ball of the ℓ1 norm."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from npgm._common import validate
from npgm._common.array import Array, Axis, Namespace, promote
from npgm.proximal.base import Proximable, as_vectors, indicator
from npgm.references import Reference, Separable


class _Shifted(Proximable):
    """A set for which any φ that is a sum over entries, too, makes the Euclidean projection its step.

    All entries that do not become zero move by one distance c, since λ h'(c/γ) is the multiplier of the one constraint.
    """

    indicator = True

    def step(self, phi: Reference, y: Array, lr: float | Array, axis: Axis = None) -> Array:
        if not isinstance(phi, Separable):
            return super().step(phi, y, lr, axis)
        xp, y, restore = promote(y)
        return restore(self._radial(xp, phi, y, lr, xp.abs, axis))


@dataclass(frozen=True)
class Simplex(_Shifted):
    """g(z) = 0 for zᵢ ≥ 0 and Σ zᵢ = s, +∞ elsewhere.

    Args:
        total: s > 0; 1 for probabilities.
    """

    total: float = 1.0

    def __post_init__(self) -> None:
        validate.fields(self, total=validate.positive)

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        xp, z, restore = promote(z)
        excess = xp.maximum(
            xp.abs(xp.sum(z, axis=axis, keepdims=True) - self.total), -xp.min(z, axis=axis, keepdims=True)
        )
        return restore(indicator(xp, excess, self.total * _growth(z, excess), axis))

    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        rows, back = as_vectors(xp, y, axis)
        return restore(back(_projected(xp, rows, self.total)))


@dataclass(frozen=True)
class L1Ball(_Shifted):
    """g(z) = 0 for Σ|zᵢ| ≤ ρ, +∞ elsewhere.

    Args:
        radius: ρ > 0.
    """

    radius: float = 1.0

    def __post_init__(self) -> None:
        validate.fields(self, radius=validate.positive)

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        xp, z, restore = promote(z)
        excess = xp.sum(xp.abs(z), axis=axis, keepdims=True) - self.radius
        return restore(indicator(xp, excess, self.radius * _growth(z, excess), axis))

    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        rows, back = as_vectors(xp, y, axis)
        inside = xp.sum(xp.abs(rows), axis=-1, keepdims=True) <= self.radius
        return restore(back(xp.where(inside, rows, xp.sign(rows) * _projected(xp, xp.abs(rows), self.radius))))


def _growth(z: Array, reduced: Array) -> float:
    """Return by what rounding grows in the sum of a point."""
    return math.sqrt(math.prod(z.shape) / math.prod(reduced.shape))


def _projected(xp: Namespace, y: Array, total: float) -> Array:
    """Return the projections of rows on the simplex (Held, Wolfe and Crowder, 1974): positive parts of y - c."""
    with np.errstate(invalid="ignore"):  # infinity makes a row NaN
        y = y - xp.max(y, axis=-1, keepdims=True)  # which changes no projection, and spares digits
    falling = xp.sort(y, axis=-1, descending=True)
    count = xp.cumulative_sum(xp.ones_like(y), axis=-1)
    shifts = (xp.cumulative_sum(falling, axis=-1) - total) / count
    positive = xp.sum(xp.astype(falling > shifts, xp.int64), axis=-1, keepdims=True)
    c = xp.take_along_axis(shifts, xp.clip(positive - 1, 0, None), axis=-1)
    z = xp.clip(y - c, 0.0, None)
    return z * (total / xp.sum(z, axis=-1, keepdims=True))

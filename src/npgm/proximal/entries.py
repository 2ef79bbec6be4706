"""Functions that are sums over the entries of a point."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from npgm import _validate
from npgm._array import Array, Axis, promote
from npgm.proximal.base import Proximable, slope
from npgm.proximal.roots import positive_root
from npgm.references import Reference, Separable


@dataclass(frozen=True)
class L1(Proximable):
    """g(z) = τ Σ|zᵢ|. A separable φ soft-thresholds at γ h*'(τ/λ).

    Args:
        weight: τ > 0.
    """

    weight: float = 1.0

    separable = True

    def __post_init__(self) -> None:
        _validate.fields(self, weight=_validate.positive)

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        xp, z, restore = promote(z)
        return restore(self.weight * xp.sum(xp.abs(z), axis=axis))

    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        return restore(y - xp.clip(y, -t * self.weight, t * self.weight))

    def step(self, phi: Reference, y: Array, lr: float | Array, axis: Axis = None) -> Array:
        if not isinstance(phi, Separable):
            return super().step(phi, y, lr, axis)
        return self.prox(y, lr * (float(phi.precondition(self.weight)) / self.weight), axis)


@dataclass(frozen=True)
class Box(Proximable):
    """g(z) = 0 for l ≤ zᵢ ≤ u, +∞ elsewhere: every φ but a spectral one cuts off.

    Args:
        lower: l, possibly -∞.
        upper: u ≥ l, possibly +∞.
    """

    lower: float
    upper: float

    separable = True
    indicator = True

    def __post_init__(self) -> None:
        _validate.fields(self, lower=_validate.real, upper=_validate.real)
        if not self.lower <= self.upper:
            raise ValueError(f"lower must be at most upper, not {self.lower!r} > {self.upper!r}")

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        xp, z, restore = promote(z)
        outside = xp.where((z >= self.lower) & (z <= self.upper), xp.zeros_like(z), xp.full_like(z, math.inf))
        return restore(xp.sum(outside, axis=axis))

    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        return restore(xp.clip(y, self.lower, self.upper))


class Nonnegative(Box):
    """g(z) = 0 for zᵢ ≥ 0, +∞ elsewhere."""

    def __init__(self) -> None:
        super().__init__(0.0, math.inf)

    def __repr__(self) -> str:
        return "Nonnegative()"


@dataclass(frozen=True)
class Scalar(Proximable):
    """g(z) = Σ g₁(zᵢ) for a convex function g₁ of one's own, of which no proximal map is known.

    Its steps are roots of λ h'((z - y)/γ) + g₁'(z) = 0, found by bisection to the last digits.

    Args:
        function: g₁, of an array entry by entry.
        derivative: g₁', or at a kink any subgradient, entry by entry; it must not decrease. Both are called with points
            between ``lower`` and ``upper`` alone.
        lower: g₁ is +∞ below.
        upper: g₁ is +∞ above; larger than ``lower``.

    Example:
        >>> import numpy as np, npgm
        >>> barrier = npgm.proximal.Scalar(lambda z: -np.log(z), lambda z: -1 / z, lower=0.0)
        >>> barrier.prox(np.array([0.0]), 1.0)   # z = 1/z
        array([1.])
    """

    function: Callable[[Array], Array]
    derivative: Callable[[Array], Array]
    lower: float = -math.inf
    upper: float = math.inf

    separable = True

    def __post_init__(self) -> None:
        for name in ("function", "derivative"):
            if not callable(getattr(self, name)):
                raise TypeError(f"{name} must be callable, not {getattr(self, name)!r}")
        box = Box(self.lower, self.upper)
        if box.lower == box.upper:
            raise ValueError(f"lower must be below upper, not {self.lower!r} = {self.upper!r}")

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        xp, z, restore = promote(z)
        within = xp.clip(z, self.lower, self.upper)
        return restore(xp.sum(xp.where(z == within, self.function(within), xp.full_like(z, math.inf)), axis=axis))

    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        return self._solve(y, lambda xp, r: r / t)

    def step(self, phi: Reference, y: Array, lr: float | Array, axis: Axis = None) -> Array:
        if not isinstance(phi, Separable):
            return super().step(phi, y, lr, axis)
        return self._solve(y, lambda xp, r: phi.scale * slope(xp, phi, r / lr))

    def _solve(self, y: Array, push: Callable[..., Array]) -> Array:
        r"""Return z with push(\|z - y\|) sgn(z - y) + g₁'(z) = 0."""
        xp, y, restore = promote(y)
        inner = min(max(0.0, self.lower + 1.0), self.upper - 1.0)
        if not self.lower < inner < self.upper:
            inner = 0.5 * (self.lower + self.upper)

        def pull(z: Array) -> Array:
            inside = (z > self.lower) & (z < self.upper)
            beyond = xp.where(z <= self.lower, xp.full_like(z, -math.inf), xp.full_like(z, math.inf))
            return xp.where(inside, self.derivative(xp.where(inside, z, xp.full_like(z, inner))), beyond)

        side = -xp.sign(pull(y))
        r = positive_root(xp, lambda r: push(xp, r) + side * pull(y + side * r), y)
        z = xp.where(side == 0, y, y + side * r)
        within = xp.clip(z, self.lower, self.upper)
        rounding = 8.0 * float(xp.finfo(y.dtype).eps) * (xp.abs(y) + xp.abs(within))
        return restore(xp.where(xp.abs(within - z) <= rounding, within, xp.full_like(z, math.nan)))

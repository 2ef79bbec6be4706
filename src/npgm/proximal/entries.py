"""Functions that are sums over the entries of a point."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from npgm._common import validate
from npgm._common.array import Array, Axis, Namespace, promote
from npgm.proximal.base import Proximable, or_nan, slope
from npgm.proximal.roots import positive_root
from npgm.proximal.values import Comparable, Values, nonnegative, spread, values
from npgm.references import Reference, Separable


@dataclass(frozen=True, eq=False)
class L1(Comparable, Proximable):
    """g(z) = Σ τᵢ|zᵢ|. A separable φ soft-thresholds at γ h*'(τᵢ/λ).

    Args:
        weight: τ ≥ 0: a number, or an array that broadcasts to the shape of a point; 0 leaves an entry alone, such as
            the intercept of a regression.
    """

    weight: Values = 1.0

    separable = True

    def __post_init__(self) -> None:
        validate.fields(self, weight=nonnegative)

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        xp, z, restore = promote(z)
        return restore(xp.sum(spread(xp, "weight", self.weight, z, axis) * xp.abs(z), axis=axis))

    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        return restore(_soft(xp, y, t * spread(xp, "weight", self.weight, y, axis)))

    def step(self, phi: Reference, y: Array, lr: float | Array, axis: Axis = None) -> Array:
        if not isinstance(phi, Separable):
            return super().step(phi, y, lr, axis)
        xp, y, restore = promote(y)
        weight = spread(xp, "weight", self.weight, y, axis)
        moved = phi.precondition(weight)
        return restore(_soft(xp, y, lr * (float(moved) if isinstance(weight, float) else moved)))


@dataclass(frozen=True, eq=False)
class ElasticNet(Comparable, Proximable):
    """g(z) = Σ τᵢ|zᵢ| + (μᵢ/2) zᵢ² (Zou and Hastie, 2005).

    scikit-learn's ``alpha`` and ``l1_ratio`` are l1 = alpha·l1_ratio and l2 = alpha·(1 - l1_ratio).

    Args:
        l1: τ ≥ 0: a number, or an array that broadcasts to the shape of a point.
        l2: μ ≥ 0, likewise.
    """

    l1: Values = 1.0
    l2: Values = 1.0

    separable = True

    def __post_init__(self) -> None:
        validate.fields(self, l1=nonnegative, l2=nonnegative)

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        xp, z, restore = promote(z)
        l1, l2 = (spread(xp, name, getattr(self, name), z, axis) for name in ("l1", "l2"))
        return restore(xp.sum(l1 * xp.abs(z) + 0.5 * l2 * z * z, axis=axis))

    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        l1, l2 = (spread(xp, name, getattr(self, name), y, axis) for name in ("l1", "l2"))
        return restore(_soft(xp, y, t * l1) / (1.0 + t * l2))


def _soft(xp: Namespace, y: Array, threshold: float | Array) -> Array:
    return y - xp.clip(y, -threshold, threshold)


def _bound(missing: float) -> Callable[[str, Any], Values]:
    """Return the check of a bound that may be None, which counts as ``missing``."""
    check = values(lambda v: (v == missing) | (v > -math.inf) & (v < math.inf), f"finite, {missing} or None")
    return lambda name, value: missing if value is None else check(name, value)


@dataclass(frozen=True, eq=False)
class Box(Comparable, Proximable):
    """g(z) = 0 for lᵢ ≤ zᵢ ≤ uᵢ, +∞ elsewhere: bounds on the entries, for every φ except a spectral one.

    A step cuts entries off at the bounds. `as_box` converts SciPy's bounds.

    Args:
        lower: l: a number, or an array that broadcasts to the shape of a point; -∞ and None are no bound.
        upper: u ≥ l, likewise; +∞ and None are no bound.
    """

    lower: Values = -math.inf
    upper: Values = math.inf

    separable = True
    indicator = True

    def __post_init__(self) -> None:
        validate.fields(self, lower=_bound(-math.inf), upper=_bound(math.inf))
        try:
            lower, upper = np.broadcast_arrays(self.lower, self.upper)
        except ValueError:
            shapes = f"{np.shape(self.lower)} and {np.shape(self.upper)}"
            raise ValueError(f"lower and upper must broadcast to one shape, not {shapes}") from None
        if (crossed := lower > upper).any():
            raise ValueError(f"lower must be at most upper, not {lower[crossed].flat[0]} > {upper[crossed].flat[0]}")

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        xp, z, restore = promote(z)
        lower, upper = self._ends(xp, z, axis)
        inside = (lower <= z) & (z <= upper)
        return restore(xp.sum(xp.where(inside, xp.zeros_like(z), xp.full_like(z, math.inf)), axis=axis))

    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        return restore(xp.clip(y, *self._ends(xp, y, axis)))

    def _ends(self, xp: Namespace, y: Array, axis: Axis) -> tuple[Any, Any]:
        return spread(xp, "lower", self.lower, y, axis), spread(xp, "upper", self.upper, y, axis)


class Nonnegative(Box):
    """g(z) = 0 for zᵢ ≥ 0, +∞ elsewhere."""

    def __init__(self) -> None:
        super().__init__(0.0, math.inf)

    def __repr__(self) -> str:
        return "Nonnegative()"


@dataclass(frozen=True)
class Scalar(Proximable):
    """g(z) = Σ g₁(zᵢ) for your own convex function g₁, whose proximal map need not be known.

    Its steps are roots of λ h'((z - y)/γ) + g₁'(z) = 0, found by bisection to the last digits.

    Args:
        function: g₁, of an array entry by entry.
        derivative: g₁', or at a kink any subgradient, entry by entry; it must not decrease. Both are called only with
            points between ``lower`` and ``upper``.
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
        validate.fields(self, lower=validate.real, upper=validate.real)
        if not self.lower < self.upper:
            raise ValueError(f"lower must be below upper, not {self.lower!r} >= {self.upper!r}")

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        xp, z, restore = promote(z)
        within = xp.clip(z, self.lower, self.upper)
        return restore(xp.sum(xp.where(z == within, self.function(within), xp.full_like(z, math.inf)), axis=axis))

    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        return self._solve(y, lambda xp, r: r / t)

    def step(self, phi: Reference, y: Array, lr: float | Array, axis: Axis = None) -> Array:
        if not isinstance(phi, Separable):
            return super().step(phi, y, lr, axis)
        xp, y, restore = promote(y)
        z = self._solve(y, lambda xp, r: phi.scale * slope(xp, phi, r / lr))
        return restore(or_nan(xp, z, ~xp.isnan(z), axis))

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
        r = positive_root(xp, lambda r: push(xp, r) + side * pull(y + side * r), 1.0 + xp.abs(y))
        z = xp.where(side == 0, y, y + side * r)
        within = xp.clip(z, self.lower, self.upper)
        rounding = 8.0 * float(xp.finfo(y.dtype).eps) * (xp.abs(y) + xp.abs(within))
        return restore(xp.where(xp.abs(within - z) <= rounding, within, xp.full_like(z, math.nan)))

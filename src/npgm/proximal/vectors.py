"""Functions of the Euclidean norm, and closed convex sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from npgm import _validate
from npgm._array import Array, Axis, Namespace, as_real_array, axes_last, norm, one_if_zero, promote
from npgm.proximal.base import Proximable, indicator, slope
from npgm.proximal.roots import positive_root
from npgm.references import Isotropic, Reference, Separable


@dataclass(frozen=True)
class L2(Proximable):
    """g(z) = τ‖z‖. An isotropic φ shortens a point by γ h*'(τ/λ), or to zero.

    Args:
        weight: τ > 0.
    """

    weight: float = 1.0

    unitary = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", _validate.positive("weight", self.weight))

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        xp, z, restore = promote(z)
        return restore(self.weight * xp.sum(norm(xp, z, axis), axis=axis))

    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        length = norm(xp, y, axis)
        kept = xp.clip(length - t * self.weight, 0.0, None)
        return restore(y * (kept / one_if_zero(xp, length)))

    def step(self, phi: Reference, y: Array, lr: float | Array, axis: Axis = None) -> Array:
        if isinstance(phi, Isotropic):
            return self.prox(
                y, lr * (float(Separable(phi.kernel, phi.scale).precondition(self.weight)) / self.weight), axis
            )
        if isinstance(phi, Separable):
            xp, y, restore = promote(y)
            # at z = 0 the subgradients are those of norm τ
            vanishes = norm(xp, phi.gradient(y / lr), axis) <= self.weight
            z = _pulled(xp, phi, y, lr, ~vanishes, lambda nu, length: nu * length - self.weight, axis)
            return restore(xp.where(vanishes, xp.zeros_like(z), z))
        return super().step(phi, y, lr, axis)


@dataclass(frozen=True)
class GroupL2(Proximable):
    """g(z) = τ Σ‖z_b‖ over groups of entries that lie along an axis of a point: a sparsity of whole groups.

    Args:
        weight: τ > 0.
        along: the axis, counted from the last: -1 for groups that are the rows of a matrix.
    """

    weight: float = 1.0
    along: int = -1

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", _validate.positive("weight", self.weight))
        if not isinstance(self.along, int) or self.along >= 0:
            raise ValueError(f"along must be a negative integer, which counts axes from the last, not {self.along!r}")

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        self._check(z, axis)
        xp, z, restore = promote(z)
        return restore(self.weight * xp.sum(norm(xp, z, self.along), axis=axis))

    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        self._check(y, axis)
        return L2(self.weight).prox(y, t, self.along)

    def _check(self, z: Array, axis: Axis) -> None:
        count = np.ndim(z) if axis is None else 1 if isinstance(axis, int) else len(axis)
        if -self.along > count:
            raise ValueError(f"along={self.along} counts beyond the axes of a point, of which there are {count}")

    def step(self, phi: Reference, y: Array, lr: float | Array, axis: Axis = None) -> Array:
        self._check(y, axis)
        if isinstance(phi, Separable):
            return L2(self.weight).step(phi, y, lr, self.along)
        return super().step(phi, y, lr, axis)


@dataclass(frozen=True)
class Ball(Proximable):
    """g(z) = 0 for ‖z‖ ≤ ρ, +∞ elsewhere; of a matrix, with the Frobenius norm.

    Args:
        radius: ρ > 0.
    """

    radius: float = 1.0

    unitary = True
    indicator = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", _validate.positive("radius", self.radius))

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        xp, z, restore = promote(z)
        return restore(indicator(xp, norm(xp, z, axis) - self.radius, self.radius, axis))

    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        return restore(y / xp.clip(norm(xp, y, axis) / self.radius, 1.0, None))

    def step(self, phi: Reference, y: Array, lr: float | Array, axis: Axis = None) -> Array:
        if not isinstance(phi, Separable):
            return super().step(phi, y, lr, axis)
        xp, y, restore = promote(y)
        outside = norm(xp, y, axis) > self.radius
        z = _pulled(xp, phi, y, lr, outside, lambda nu, length: self.radius - length, axis)
        z = xp.where(outside, z, y)
        # a φ of bounded domain may not reach the ball
        reached = norm(xp, z, axis) <= self.radius * (1.0 + 8.0 * float(xp.finfo(z.dtype).eps))
        return restore(xp.where(reached, z, xp.full_like(z, xp.nan)))


@dataclass(frozen=True)
class ConvexSet(Proximable):
    """g(z) = 0 on a closed convex set, +∞ elsewhere: an isotropic φ makes the Euclidean projection its step.

    Args:
        project: ``project(y)`` returns the point of the set that is closest to one point ``y``.

    Example:
        >>> import numpy as np, npgm
        >>> hyperplane = npgm.proximal.ConvexSet(lambda y: y - y.mean())
        >>> hyperplane.step(npgm.reference("isotropic-cosh"), np.array([3.0, 1.0]), 0.5)
        array([ 1., -1.])
    """

    project: Callable[[Array], Array]

    indicator = True

    def __post_init__(self) -> None:
        if not callable(self.project):
            raise TypeError(f"project must be callable, not {self.project!r}")

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        xp, z, restore = promote(z)
        return restore(indicator(xp, norm(xp, z - self.prox(z, 1.0, axis), axis), norm(xp, z, axis), axis))

    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        xp, y = as_real_array(y)
        points, count, back = axes_last(xp, y, axis)
        shape = points.shape[points.ndim - count :]
        each = [self.project(point) for point in xp.unstack(xp.reshape(points, (-1, *shape)))]
        return back(xp.reshape(xp.stack(each), points.shape))


def _pulled(
    xp: Namespace,
    phi: Reference,
    y: Array,
    lr: float | Array,
    where: Array,
    excess: Callable[[Array, Array], Array],
    axis: Axis,
) -> Array:
    """Return argmin (ν/2)‖z‖² + γ φ((z - y)/γ), with ν > 0 such that excess(ν, ‖z‖), which rises with ν, is zero.

    Only the points ``where`` that has a solution are of use.
    """

    size = xp.abs(y)

    def point(nu: Array) -> Array:
        # the root is that of the entry itself, and not of its distance from y, as ν magnifies its error
        return xp.sign(y) * positive_root(xp, lambda z: nu * z - phi.scale * slope(xp, phi, (size - z) / lr), y)

    nu = positive_root(xp, lambda nu: excess(nu, norm(xp, point(nu), axis)), norm(xp, y, axis))
    return point(xp.where(where, nu, xp.ones_like(nu)))

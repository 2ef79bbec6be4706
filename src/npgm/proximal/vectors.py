"""Functions of the Euclidean norm, and closed convex sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from npgm._common import validate
from npgm._common.array import Array, Axis, Namespace, as_real_array, axes_last, norm, one_if_zero, promote
from npgm.proximal.base import Proximable, indicator, or_nan, slope
from npgm.proximal.roots import positive_root
from npgm.references import Isotropic, Reference, Separable


@dataclass(frozen=True)
class L2(Proximable):
    """g(z) = τ‖z‖. An isotropic φ shortens a point by γ h*'(τ/λ), or to zero.

    Args:
        weight: τ > 0.
    """

    weight: float = 1.0

    unitarily_invariant = True

    def __post_init__(self) -> None:
        validate.fields(self, weight=validate.positive)

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        xp, z, restore = promote(z)
        return restore(self.weight * xp.sum(norm(xp, z, axis), axis=axis))

    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        return restore(shortened(xp, y, t * self.weight, axis))

    def step(self, phi: Reference, y: Array, lr: float | Array, axis: Axis = None) -> Array:
        if isinstance(phi, Isotropic):
            along = Separable(phi.kernel, phi.scale)
            return self.prox(y, lr * (float(along.precondition(self.weight)) / self.weight), axis)
        if isinstance(phi, Separable):
            xp, y, restore = promote(y)
            return restore(shortened_by_entries(xp, phi, y, lr, self.weight, axis))
        return super().step(phi, y, lr, axis)


def shortened(xp: Namespace, y: Array, by: float | Array, axis: Axis) -> Array:
    """Return argmin s‖z‖ + ½‖z - y‖² for s = ``by``: y, shortened by s, or zero."""
    length = norm(xp, y, axis)
    return y * (xp.clip(length - by, 0.0, None) / one_if_zero(xp, length))


def shortened_by_entries(
    xp: Namespace, phi: Separable, y: Array, lr: float | Array, weight: float | Array, axis: Axis
) -> Array:
    """Return argmin τ‖z‖ + γ φ((z - y)/γ) for τ = ``weight``."""
    # at z = 0 the subgradients are those of norm τ
    vanishes = norm(xp, phi.gradient(y / lr), axis) <= weight
    z = _pulled(xp, phi, y, lr, ~vanishes, lambda nu, length: nu * length - weight, axis)
    return xp.where(vanishes, xp.zeros_like(z), z)


@dataclass(frozen=True)
class Ball(Proximable):
    """g(z) = 0 for ‖z‖ ≤ ρ, +∞ elsewhere; of a matrix, with the Frobenius norm.

    Args:
        radius: ρ > 0.
    """

    radius: float = 1.0

    unitarily_invariant = True
    indicator = True

    def __post_init__(self) -> None:
        validate.fields(self, radius=validate.positive)

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
        nearest = y - xp.clip(y, -lr * phi.radius, lr * phi.radius)  # to zero, of the points in the domain of φ
        return restore(or_nan(xp, xp.where(outside, z, y), norm(xp, nearest, axis) < self.radius, axis))


@dataclass(frozen=True)
class Sphere(Proximable):
    """g(z) = 0 for ‖z‖ = ρ, +∞ elsewhere. For every φ the step is the closest point.

    Zero goes to the point of equal entries. This g is not convex. The step is a global minimiser of its problem for an
    isotropic φ, and a retraction for any other φ.

    Args:
        radius: ρ > 0.
    """

    radius: float = 1.0

    indicator = True

    def __post_init__(self) -> None:
        validate.fields(self, radius=validate.positive)

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        xp, z, restore = promote(z)
        return restore(indicator(xp, xp.abs(norm(xp, z, axis) - self.radius), self.radius, axis))

    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        y = xp.where(norm(xp, y, axis) == 0, xp.ones_like(y), y)
        return restore(y * (self.radius / norm(xp, y, axis)))

    def step(self, phi: Reference, y: Array, lr: float | Array, axis: Axis = None) -> Array:
        return super().step(phi, y, lr, axis) if self.minimises(phi) else self.prox(y, lr, axis)

    def minimises(self, phi: Reference) -> bool:
        return isinstance(phi, Isotropic)


@dataclass(frozen=True)
class ConvexSet(Proximable):
    """g(z) = 0 on a closed convex set, +∞ elsewhere. For an isotropic φ the step is the Euclidean projection.

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
        return xp.sign(y) * positive_root(xp, lambda z: nu * z - phi.scale * slope(xp, phi, (size - z) / lr), size)

    length = norm(xp, y, axis)
    guess = xp.full_like(length, phi.scale) / lr
    nu = positive_root(xp, lambda nu: excess(nu, norm(xp, point(nu), axis)), guess)
    return point(xp.where(where, nu, xp.ones_like(nu)))

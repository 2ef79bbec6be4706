"""What a function with proximal steps is, and the step that follows from its Euclidean proximal map."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from npgm._common.array import Array, Axis, Namespace, as_real_array, axes_last, norm, promote
from npgm.kernels import Quadratic
from npgm.proximal.roots import positive_root
from npgm.references import Isotropic, Reference, Separable, Spectral
from npgm.references.spectral import decomposed, recomposed


class Proximable(ABC):
    """A convex function g, possibly +∞ outside a set, on points of any shape and array API library.

    ``axis`` says which axes make up one point, by default all of them. Over the other axes the functions act
    independently.

    To write your own, define `__call__` and `prox`. `step` follows for an isotropic φ, for a separable φ if
    ``separable``, and for a spectral φ if ``unitarily_invariant``. It solves one equation in one unknown: with t such
    that λ h'(‖y - z‖/γ) = ‖y - z‖/t, the Euclidean proximal point z of stepsize t is the anisotropic one.
    """

    separable: ClassVar[bool] = False
    """Whether g is a sum over the entries of a point, each of the same kind."""
    unitarily_invariant: ClassVar[bool] = False
    """Whether g is a function of the singular values of a matrix that is symmetric in them."""
    indicator: ClassVar[bool] = False
    """Whether g is 0 on a closed set and +∞ elsewhere: `prox` is the projection, whatever the stepsize."""

    @abstractmethod
    def __call__(self, z: Array, axis: Axis = None) -> Array:
        """g(z), of the shape of ``z`` without ``axis``."""

    @abstractmethod
    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        """The Euclidean proximal point argmin g(z) + ‖z - y‖²/(2t), of the shape of ``y``.

        Args:
            y: the point.
            t: t > 0; an array is broadcast against ``y``, with one value for each point, or for each entry of it if
                ``separable``.
            axis: the axes of one point.
        """

    def step(self, phi: Reference, y: Array, lr: float | Array, axis: Axis = None) -> Array:
        """The anisotropic proximal point argmin g(z) + γ φ((z - y)/γ) of Laude and Patrinos (2022).

        Args:
            phi: φ, isotropic, separable or spectral.
            y: the point y; in a step of the method, x - γ ∇φ*(∇f(x)).
            lr: γ > 0; an array is broadcast against ``y``, with one value for each point.
            axis: the axes of one point.

        Returns:
            the point z, of the shape of ``y``. Where φ has a bounded domain and no point of finite g lies within reach
            of y, all entries of that point are NaN.

        Raises:
            ValueError: if the step is not known for this φ.
        """
        if type(phi.kernel) is Quadratic:
            return self.prox(y, lr / phi.scale, axis)
        xp, y, restore = promote(y)
        if isinstance(phi, Isotropic):
            return restore(self._radial(xp, phi, y, lr, lambda d: norm(xp, d, axis), axis))
        if isinstance(phi, Separable) and self.separable:
            return restore(self._radial(xp, phi, y, lr, xp.abs, axis))
        if isinstance(phi, Spectral) and self.unitarily_invariant:
            s, rebuilt = by_singular_values(y, axis)
            return restore(rebuilt(self.step(Separable(phi.kernel, phi.scale), s, per_point(xp, lr, y, axis), -1)))
        needed = "a sum over entries" if isinstance(phi, Separable) else "a function of singular values"
        raise ValueError(f"{self!r} has no step for φ = {phi!r}, which needs {needed}; it has one for an isotropic φ")

    def minimises(self, phi: Reference) -> bool:
        """Whether `step` is the minimiser that it should be, as the certificates of `npgm.theory` need."""
        del phi
        return True

    def _radial(
        self, xp: Namespace, phi: Reference, y: Array, lr: float | Array, length: Callable[[Array], Array], axis: Axis
    ) -> Array:
        if self.indicator:
            z = self.prox(y, 1.0, axis)
            return or_nan(xp, z, length(y - z) < lr * phi.radius, axis)

        def excess(t: Array) -> Array:
            d = length(y - self.prox(y, t, axis))
            quotient = phi.scale * slope(xp, phi, d / lr) * (t / d)
            # of the two sides, which makes it nearly linear in ln t
            return xp.where(d > 0, xp.log(quotient), xp.where(d == 0, -xp.ones_like(d), d))

        size = length(y)
        t = positive_root(xp, excess, xp.ones_like(size) * (lr / phi.scale))
        with np.errstate(over="ignore"):  # t is the largest number where y is a minimiser of g
            z = self.prox(y, t, axis)
        if phi.radius == math.inf:
            return z
        reach = lr * phi.radius  # where z comes as close to it as rounding tells
        return or_nan(xp, z, length(y - z) <= reach + 8.0 * float(xp.finfo(y.dtype).eps) * (reach + size), axis)


def or_nan(xp: Namespace, z: Array, reached: Array, axis: Axis) -> Array:
    """Return the points whose entries have all been ``reached``, and NaN for the others."""
    return xp.where(xp.all(reached, axis=axis, keepdims=True), z, xp.full_like(z, xp.nan))


def slope(xp: Namespace, phi: Reference, r: Array) -> Array:
    """Return h'(r) for r >= 0, +∞ outside of the domain of h."""
    value = phi.kernel.gradient(r)
    return xp.where(r < phi.radius, value, xp.full_like(value, xp.inf))


def indicator(xp: Namespace, excess: Array, size: float | Array, axis: Axis) -> Array:
    """Return 0 where ``excess`` is at most what rounding leaves of ``size``, else +∞, without the axes of a point."""
    allowed = 8.0 * float(xp.finfo(excess.dtype).eps) * size
    return xp.sum(xp.where(excess <= allowed, xp.zeros_like(excess), xp.full_like(excess, xp.inf)), axis=axis)


def by_singular_values(y: Array, axis: Axis) -> tuple[Array, Callable[[Array], Array]]:
    """Return the singular values of matrices, and the matrices with others in their place.

    Raises:
        ValueError: if a point is not a matrix.
    """
    xp, y = as_real_array(y)
    matrices, count, back = axes_last(xp, y, axis)
    if count != 2:
        raise ValueError(f"a function of singular values needs points that are matrices, not of {count} axes")
    u, s, vt, finite = decomposed(xp, matrices)

    def rebuilt(values: Array) -> Array:
        product = recomposed(xp, u, values, vt)
        return back(xp.where(finite, product, xp.full_like(product, xp.nan)))

    return s, rebuilt


def per_point(xp: Namespace, t: Any, y: Array, axis: Axis, axes: int = 1) -> Any:
    """Return what has one value for each point of ``y`` as what has ``axes`` axes of length 1 in place of a point's."""
    if isinstance(t, int | float) or t.ndim == 0:
        return t
    moved, count, _ = axes_last(xp, xp.reshape(t, (*(1,) * (y.ndim - t.ndim), *t.shape)), axis)
    return xp.reshape(moved, (*moved.shape[: moved.ndim - count], *(1,) * axes))


def as_vectors(xp: Namespace, y: Array, axis: Axis) -> tuple[Array, Callable[[Array], Array]]:
    """Return the points of ``y`` as vectors along a last axis, and the way back."""
    moved, count, back = axes_last(xp, y, axis)
    kept, shape = tuple(moved.shape[: moved.ndim - count]), tuple(moved.shape)
    return xp.reshape(moved, (*kept, math.prod(shape[len(kept) :]))), lambda z: back(xp.reshape(z, shape))

"""The reference function of the norm."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from npgm._common.array import Array, Axis, Namespace, divide, one_if_zero, promote, saturated_product, scaled_norm
from npgm._common.derivatives import differentiable
from npgm.references.base import Reference


@dataclass(frozen=True)
class Isotropic(Reference):
    """φ(x) = λ h(‖x‖): rescales a gradient by its norm and keeps its direction."""

    lift = "isotropic"

    def __call__(self, x: Array, axis: Axis = None) -> Array:
        return self._sum(lambda xp, m, q: self._times_scale(xp, self.kernel, m * q, dual=False), self.gradient, x, axis)

    def gradient(self, x: Array, axis: Axis = None) -> Array:
        xp, x, restore = promote(x)
        z, m, q = scaled_norm(xp, x, axis)
        slope = self.kernel.gradient(m * q) / one_if_zero(xp, q)
        at_zero = self.kernel.curvature_at_zero
        return restore(z * self.scale * xp.where(q == 0, xp.full_like(q, _derivative(1.0, at_zero)), slope))

    def conjugate(self, y: Array, axis: Axis = None) -> Array:
        return self._sum(
            lambda xp, m, q: self._times_scale(xp, self.kernel.conjugate, self.relative_norm(xp, m, q), dual=True),
            self.precondition,
            y,
            axis,
        )

    def precondition(self, y: Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)

        def function(y: Array) -> Array:
            z, m, q = scaled_norm(xp, y, axis)
            return z * self.factor(xp, m, q)

        def derivative(y: Array, v: Array) -> Array:
            return self._hessian(y, axis, finite=True)(v)

        return restore(differentiable(function, y, jvp=derivative, vjp=derivative))

    def conjugate_hessian(self, y: Array, axis: Axis = None, *, root: bool = False) -> Callable[[Array], Array]:
        return self._hessian(y, axis, root=root)

    def _hessian(self, y: Array, axis: Axis, *, root: bool = False, finite: bool = False) -> Callable[[Array], Array]:
        """Return ∇²φ*(y) or its root; ``finite`` counts what is infinite as 0, as in automatic differentiation."""
        xp, y, restore = promote(y)
        z, m, q = scaled_norm(xp, y, axis)
        r = self.relative_norm(xp, m, q)
        direction = z / one_if_zero(xp, q)
        tangential = self.kernel.rescaling(r) / self.scale
        radial = self.kernel.curvature(r) / self.scale
        if root:
            tangential, radial = xp.sqrt(tangential), xp.sqrt(radial)
        if finite:
            tangential, radial = (xp.where(xp.isfinite(a), a, xp.zeros_like(a)) for a in (tangential, radial))
        difference = radial - tangential

        def product(v: Array) -> Array:
            v = xp.astype(v, y.dtype, copy=False)
            along = xp.sum(direction * v, axis=axis, keepdims=True)
            return restore(tangential * v + (difference * along) * direction)

        return product

    def stationarity(self, y: Array, axis: Axis = None) -> Array:
        return self._sum(
            lambda xp, m, q: self._times_scale(xp, self.kernel.stationarity, self.relative_norm(xp, m, q), dual=True),
            lambda y, axis: self._hessian(y, axis, finite=True)(y),
            y,
            axis,
        )

    def _sum(
        self,
        term: Callable[[Namespace, Array, Array], Array],
        gradient: Callable[[Array, Axis], Array],
        x: Array,
        axis: Axis,
    ) -> Array:
        """Return term(m, q) for ‖x‖ = m q. Differentiated, the term would hand on m term'(m q), which underflows."""
        xp, x, restore = promote(x)

        def function(x: Array) -> Array:
            _, m, q = scaled_norm(xp, x, axis)
            return term(xp, m, q)

        def along(x: Array, v: Array) -> Array:
            return xp.sum(gradient(x, axis) * v, axis=axis, keepdims=True)

        def transposed(x: Array, value: Array) -> Array:
            return gradient(x, axis) * value

        return restore(xp.sum(differentiable(function, x, jvp=along, vjp=transposed), axis=axis))

    def relative_norm(self, xp: Namespace, m: Array, q: Array) -> Array:
        """Return ‖y‖/λ for ‖y‖ = m q; beyond the largest finite number it is cut off there."""
        return divide(xp, saturated_product(xp, m, q), self.scale)

    def factor(self, xp: Namespace, m: Array, q: Array) -> Array:
        """Return c with ∇φ*(y) = c (y / m), for a vector whose norm is ‖y‖ = m q with ‖y / m‖ = q.

        This is where a norm that was gathered from many arrays enters.
        """
        slope = self.kernel.precondition(self.relative_norm(xp, m, q)) / one_if_zero(xp, q)
        at_zero = min(_derivative(self.curvature_at_zero, 1.0), float(xp.finfo(q.dtype).max))
        return xp.where(q == 0, xp.full_like(q, at_zero), slope)


def _derivative(numerator: float, denominator: float) -> float:
    """Return the quotient where it is finite, else 0, as autograd libraries do where there is no derivative.

    It multiplies the zero vector, which an infinite factor would turn into NaN.
    """
    quotient = numerator / denominator if denominator > 0.0 else math.inf
    return quotient if quotient < math.inf else 0.0

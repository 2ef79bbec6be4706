"""The reference function of the singular values of a matrix."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from npgm._common.array import (
    Array,
    Axis,
    Namespace,
    axes_last,
    divide,
    full_precision,
    one_if_zero,
    promote,
    saturated_product,
    scaled_norm,
)
from npgm._common.derivatives import differentiable
from npgm._common.sharding import unsharded
from npgm.references.base import Reference
from npgm.references.blocks import Blocks
from npgm.references.isotropic import Isotropic

_MATRIX = (-2, -1)


@dataclass(frozen=True)
class Spectral(Reference):
    """φ(X) = λ Σ h(σ_i(X)): rescales the singular values of a matrix and keeps its singular vectors.

    ∇φ*(Y) = U diag(h*'(σ_i/λ)) Vᵀ for Y = U diag(σ_i) Vᵀ. With a bounded kernel it tends to the orthogonal factor U Vᵀ,
    the direction of Muon, as λ → 0, and to a multiple of Y as λ → ∞.

    The last two axes of ``axis`` are the rows and columns of a matrix. Over the axes before them, φ is a sum, and ∇φ*
    acts on each matrix. With a single axis, a point is a matrix of one column, for which this is `Isotropic`. To read a
    flat vector as matrices, use `Blocks`.

    Values come from singular value decompositions. Automatic differentiation does not pass through these: it uses
    closed forms, for two derivatives of φ and φ* and one of ∇φ and ∇φ*.
    """

    lift = "spectral"

    def __call__(self, x: Array, axis: Axis = None) -> Array:
        return self._sum(lambda s: self._term(self.kernel, s, dual=False), Isotropic.__call__, self.gradient, x, axis)

    def gradient(self, x: Array, axis: Axis = None) -> Array:
        def slope(s: Array) -> Array:
            return self.scale / self.kernel.curvature(self.kernel.gradient(s))

        return self._map(_Map(lambda s: self.scale * self.kernel.gradient(s), slope), Isotropic.gradient, x, axis)

    def conjugate(self, y: Array, axis: Axis = None) -> Array:
        return self._sum(
            lambda s: self._term(self.kernel.conjugate, self._relative(s), dual=True),
            Isotropic.conjugate,
            self.precondition,
            y,
            axis,
        )

    def precondition(self, y: Array, axis: Axis = None) -> Array:
        return self._map(self._preconditioner, Isotropic.precondition, y, axis)

    def conjugate_hessian(self, y: Array, axis: Axis = None, *, root: bool = False) -> Callable[[Array], Array]:
        xp, y, restore = promote(y)
        matrices, _, back = _matrices(xp, y, axis)
        if 1 in matrices.shape[-2:]:
            product = self._isotropic.conjugate_hessian(matrices, _MATRIX, root=root)
        else:
            product = _derivative(xp, self._preconditioner, matrices, root=root)
        return lambda v: restore(back(product(_matrices(xp, xp.astype(v, y.dtype, copy=False), axis)[0])))

    def stationarity(self, y: Array, axis: Axis = None) -> Array:
        # its gradient is U diag(t h*''(t)) Vᵀ with t = σ/λ, the second derivative of φ* along y itself
        return self._sum(
            lambda s: self._term(self.kernel.stationarity, self._relative(s), dual=True),
            Isotropic.stationarity,
            lambda y, axis: _derivative(promote(y)[0], self._preconditioner, y, finite=True)(y),
            y,
            axis,
        )

    def euclidean_radius(self, shape: tuple[int, ...]) -> float:
        singular_values = math.prod(shape[:-2]) * min(shape[-2:]) if len(shape) > 1 else 1
        return math.sqrt(singular_values) * self.radius

    def flattened(self, shape: tuple[int, ...]) -> Reference:
        return Blocks(self, (shape,)) if len(shape) > 1 else self

    @property
    def _isotropic(self) -> Isotropic:
        return Isotropic(self.kernel, self.scale)

    @property
    def _preconditioner(self) -> _Map:
        return _Map(
            lambda s: self.kernel.precondition(self._relative(s)),
            lambda s: self.kernel.curvature(self._relative(s)) / self.scale,
            smooth=self.kernel.strongly_convex_c2,
        )

    def _term(self, function: Callable[[Array], Array], s: Array, *, dual: bool) -> Array:
        return self._times_scale(promote(s)[0], function, s, dual=dual)

    def _relative(self, s: Array) -> Array:
        return divide(promote(s)[0], s, self.scale)

    def _map(self, entry: _Map, vector: Callable[..., Array], x: Array, axis: Axis) -> Array:
        """Return U diag(entry(σ_i)) Vᵀ for each matrix; ``vector`` is the same function of a matrix of one column."""
        xp, x, restore = promote(x)
        matrices, _, back = _matrices(xp, x, axis)
        if 0 in matrices.shape:
            return restore(x)
        if 1 in matrices.shape[-2:]:
            return restore(back(vector(self._isotropic, matrices, _MATRIX)))

        def function(x: Array) -> Array:
            u, s, vt, finite = decomposed(xp, x)
            return xp.where(finite, recomposed(xp, u, entry.value(s), vt), xp.full_like(x, math.nan))

        def derivative(x: Array, v: Array) -> Array:
            return _derivative(xp, entry, x, finite=True)(v)

        return restore(back(differentiable(function, matrices, jvp=derivative, vjp=derivative)))

    def _sum(
        self,
        term: Callable[[Array], Array],
        vector: Callable[..., Array],
        gradient: Callable[[Array, Axis], Array],
        x: Array,
        axis: Axis,
    ) -> Array:
        """Return Σ term(σ_i) over the singular values of the matrices that ``axis`` adds up."""
        xp, x, restore = promote(x)
        matrices, added, _ = _matrices(xp, x, axis)
        if 0 in matrices.shape:
            values = xp.zeros_like(xp.sum(matrices, axis=_MATRIX))
        elif 1 in matrices.shape[-2:]:
            values = vector(self._isotropic, matrices, _MATRIX)
        else:

            def function(x: Array) -> Array:
                _, s, _, finite = decomposed(xp, x)
                values = xp.sum(term(s), axis=-1)
                return xp.where(finite[..., 0, 0], values, xp.full_like(values, math.nan))

            def along(x: Array, v: Array) -> Array:
                return xp.sum(gradient(x, _MATRIX) * v, axis=_MATRIX)

            def transposed(x: Array, value: Array) -> Array:
                return gradient(x, _MATRIX) * value[..., None, None]

            # the gradient of each matrix by itself: those before the last two axes are a batch
            values = differentiable(function, matrices, jvp=along, vjp=transposed)
        return restore(xp.sum(values, axis=tuple(range(-added, 0))) if added else values)


class _Map(NamedTuple):
    """An odd increasing function of the singular values, with its derivative."""

    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    smooth: bool = True


def _matrices(xp: Namespace, x: Array, axis: Axis) -> tuple[Array, int, Callable[[Array], Array]]:
    """Return x with its matrices in the last two axes, how many axes before them are added up, and the way back."""
    moved, count, back = axes_last(xp, x, axis)
    missing = max(2 - count, 0)
    whole, spread = unsharded(xp.reshape(moved, (*moved.shape, *(1,) * missing)), _MATRIX)
    return whole, max(count - 2, 0), lambda result: back(xp.reshape(spread(result), moved.shape))


def decomposed(xp: Namespace, x: Array) -> tuple[Array, Array, Array, Array]:
    """Return U, σ, Vᵀ, and where the matrix is finite, of shape (..., 1, 1); σ ends at the largest number."""

    def decompose(x: Array) -> tuple[Array, Array, Array, Array]:
        finite = xp.all(xp.isfinite(x), axis=_MATRIX, keepdims=True)
        z, m, _ = scaled_norm(xp, xp.where(finite, x, xp.zeros_like(x)), _MATRIX)
        u, s, vt = xp.linalg.svd(z, full_matrices=False)
        return u, saturated_product(xp, m[..., 0], s), vt, finite

    def refuse(*_: Any) -> Any:
        raise NotImplementedError("a spectral preconditioner can be differentiated once, and its potential twice")

    return differentiable(decompose, x, jvp=refuse, vjp=refuse)  # type: ignore[no-any-return]


def recomposed(xp: Namespace, u: Array, values: Array, vt: Array) -> Array:
    """Return U diag(values) Vᵀ."""
    with full_precision(u):
        return xp.matmul(u * values[..., None, :], vt)


def _derivative(
    xp: Namespace, entry: _Map, x: Array, *, root: bool = False, finite: bool = False
) -> Callable[[Array], Array]:
    """Return the derivative of U diag(entry(σ)) Vᵀ, by Daleckii and Krein's formula (``docs/spectral.md``).

    In the coordinates UᵀVV it multiplies the symmetric part by difference quotients of the function between
    singular values, the antisymmetric part by those between a value and the negative of another, and what lies outside
    of the span of the singular vectors by the quotients with 0.

    Args:
        xp: the namespace.
        entry: the function.
        x: the matrices.
        root: whether to return the square root of the derivative.
        finite: whether an infinite slope counts as 0, as in automatic differentiation.
    """
    u, s, vt, _ = decomposed(xp, x)
    symmetric, antisymmetric = _quotients(xp, entry, s)
    outside = xp.where(s == 0, entry.slope(xp.zeros_like(s)), entry.value(s) / one_if_zero(xp, s))
    factors = [symmetric, antisymmetric, outside[..., None, :]]
    if root:
        factors = [xp.sqrt(xp.clip(factor, 0.0, None)) for factor in factors]
    if finite:
        factors = [xp.where(xp.isfinite(factor), factor, xp.zeros_like(factor)) for factor in factors]
    symmetric, antisymmetric, outside = factors
    ut, v = xp.matrix_transpose(u), xp.matrix_transpose(vt)
    rows, columns = x.shape[-2:]

    def product(d: Array) -> Array:
        with full_precision(d):
            inner = xp.matmul(xp.matmul(ut, d), v)
            mirrored = xp.matrix_transpose(inner)
            changed = 0.5 * (symmetric * (inner + mirrored) + antisymmetric * (inner - mirrored))
            result = xp.matmul(xp.matmul(u, changed), vt)
            if rows > columns:
                result = result + xp.matmul((xp.matmul(d, v) - xp.matmul(u, inner)) * outside, vt)
            if columns > rows:
                result = result + xp.matmul(u * outside, xp.matmul(ut, d) - xp.matmul(inner, vt))
            return result

    return product


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)


def _quotients(xp: Namespace, entry: _Map, s: Array) -> tuple[Array, Array]:
    """Return (g(a) - g(b))/(a - b) and (g(a) + g(b))/(a + b) for all pairs of singular values.

    Where the difference would cancel, the first is the mean of g' between the two, by Gauss' rule.
    """
    a, b = s[..., :, None], s[..., None, :]
    ga, gb = entry.value(a), entry.value(b)
    middle, half = 0.5 * a + 0.5 * b, 0.5 * (a - b)
    close = xp.abs(half) <= (5e-3 if entry.smooth else 1e-7) * middle
    inner = xp.where(close, half, xp.zeros_like(half))
    mean = sum(0.5 * float(w) * entry.slope(middle + float(t) * inner) for t, w in zip(_NODES, _WEIGHTS, strict=True))
    symmetric = xp.where(close, mean, 0.5 * (ga - gb) / xp.where(close, xp.ones_like(half), half))
    at_zero = entry.slope(xp.zeros_like(middle))
    antisymmetric = xp.where(middle == 0, at_zero, (0.5 * ga + 0.5 * gb) / one_if_zero(xp, middle))
    return symmetric, antisymmetric

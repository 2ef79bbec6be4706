"""The reference function of each component."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from npgm._common.array import Array, Axis, divide, promote
from npgm.references.base import Reference


@dataclass(frozen=True)
class Separable(Reference):
    """φ(x) = λ Σ h(x_i): rescales each component of a gradient on its own."""

    lift = "separable"

    def __call__(self, x: Array, axis: Axis = None) -> Array:
        xp, x, restore = promote(x)
        return restore(xp.sum(self._times_scale(xp, self.kernel, x, dual=False), axis=axis))

    def gradient(self, x: Array, axis: Axis = None) -> Array:
        _, x, restore = promote(x)
        return restore(self.scale * self.kernel.gradient(x))

    def euclidean_radius(self, shape: tuple[int, ...]) -> float:
        return math.sqrt(math.prod(shape)) * self.radius

    def conjugate(self, y: Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        terms = self._times_scale(xp, self.kernel.conjugate, divide(xp, y, self.scale), dual=True)
        return restore(xp.sum(terms, axis=axis))

    def precondition(self, y: Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        return restore(self.kernel.precondition(divide(xp, y, self.scale)))

    def conjugate_hessian(self, y: Array, axis: Axis = None, *, root: bool = False) -> Callable[[Array], Array]:
        xp, y, restore = promote(y)
        diagonal = self.kernel.curvature(divide(xp, y, self.scale)) / self.scale
        if root:
            diagonal = xp.sqrt(diagonal)
        return lambda v: restore(diagonal * xp.astype(v, y.dtype, copy=False))

    def stationarity(self, y: Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        terms = self._times_scale(xp, self.kernel.stationarity, divide(xp, y, self.scale), dual=True)
        return restore(xp.sum(terms, axis=axis))

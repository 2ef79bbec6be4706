"""The direction of the paper, ∇φ*(∇f(x))."""

from __future__ import annotations

from dataclasses import dataclass

from npgm._array import Array, Namespace, one_if_zero
from npgm.kernels import Quadratic
from npgm.references import Isotropic, Reference
from npgm.solvers.directions.base import Direction
from npgm.solvers.method import Point

RELATIVE_SCALE = 0.1
"""λ/‖∇f(x⁰)‖ for ``scale="auto"``; for a separable φ, λ over the root mean square of the entries."""


@dataclass(frozen=True)
class Preconditioned(Direction):
    """u = ∇φ*(∇f(x)), with φ fixed, or up to its λ, which then is a tenth of ‖∇f(x⁰)‖ in each run.

    Args:
        reference: φ.
        auto_scale: whether λ follows from the start, in place of that of ``reference``.
    """

    reference: Reference
    auto_scale: bool = False

    @property
    def curvature_at_zero(self) -> float:
        return self.reference.curvature_at_zero

    @property
    def unscaled(self) -> Reference:
        """φ, with λ = 1 where each run has its own."""
        if not self.auto_scale or self.reference.scale == 1.0:
            return self.reference
        return self.reference.with_scale(1.0)

    def init(self, xp: Namespace, start: Point) -> Array | None:
        if not self.auto_scale:
            return None
        entries = 1.0 if isinstance(self.reference, Isotropic) else start.grad.shape[-1] ** 0.5
        return RELATIVE_SCALE * one_if_zero(xp, start.grad_norm) / entries

    def __call__(self, xp: Namespace, grad: Array, state: Array | None) -> Array:
        """Return ∇φ*(grad)."""
        phi, grad = self.unscaled, grad if state is None else grad / state
        if type(phi.kernel) is Quadratic:  # which needs no norm
            return grad if phi.scale == 1.0 else grad / phi.scale
        return phi.precondition(grad, axis=-1)

    def at(self, xp: Namespace, here: Point, state: Array | None) -> tuple[Array, Array]:
        scaled = here.grad if state is None else here.grad / state
        measure = xp.expand_dims(self.unscaled.stationarity(scaled, axis=-1), axis=-1)
        return self(xp, here.grad, state), self._scaled(measure, state)

    def curvature(self, xp: Namespace, state: Array | None) -> Array | float:
        return self.unscaled.curvature_at_zero / (1.0 if state is None else state)

    def value(self, xp: Namespace, v: Array, state: Array | None) -> Array:
        return self._scaled(xp.expand_dims(self.unscaled(v, axis=-1), axis=-1), state)

    @staticmethod
    def _scaled(value: Array, state: Array | None) -> Array:
        return value if state is None else state * value

"""The direction of the paper, ∇φ*(∇f(x))."""

from __future__ import annotations

from dataclasses import dataclass

from npgm._common.array import Array, Floats, Namespace, one_if_zero, to_host
from npgm.kernels import Quadratic
from npgm.references import Isotropic, Reference
from npgm.solvers.point import Point

RELATIVE_SCALE = 0.1
"""λ/‖∇f(x⁰)‖ for ``scale="auto"``; for a separable φ, λ over the root mean square of the entries."""


@dataclass(frozen=True)
class Preconditioned:
    """φ for all runs, and the directions u = ∇φ*(∇f(x)) of their steps.

    Args:
        reference: φ, with λ = 1 where each run has its own.
        scale: the λ of each run, of shape (runs, 1); None for that of ``reference``.
    """

    reference: Reference
    scale: Array | None = None

    @property
    def curvature(self) -> Array | float:
        """The c with ∇²φ*(0) = c I, of shape (runs, 1) or one for all."""
        return self.reference.curvature_at_zero / (1.0 if self.scale is None else self.scale)

    def __call__(self, grad: Array) -> Array:
        """Return ∇φ*(grad), of shape (runs, n)."""
        phi, grad = self.reference, self._relative(grad)
        if type(phi.kernel) is Quadratic:  # which needs no norm
            return grad if phi.scale == 1.0 else grad / phi.scale
        return phi.precondition(grad, axis=-1)

    def value(self, v: Array) -> Array:
        """Return φ(v), of shape (runs,)."""
        return self._times_scale(self.reference(v, axis=-1))

    def gradient(self, v: Array) -> Array:
        """Return ∇φ(v), of shape (runs, n)."""
        gradient = self.reference.gradient(v, axis=-1)
        return gradient if self.scale is None else self.scale * gradient

    def stationarity(self, grad: Array) -> Array:
        """Return φ(∇φ*(grad)), of shape (..., runs) for gradients of shape (..., runs, n)."""
        return self._times_scale(self.reference.stationarity(self._relative(grad), axis=-1))

    def conjugate(self, grad: Array) -> Array:
        """Return φ*(grad), shaped as `stationarity`."""
        return self._times_scale(self.reference.conjugate(self._relative(grad), axis=-1))

    def stationarity_of_norms(self, grad_norm: Floats) -> Floats:
        """Return `stationarity` of an isotropic φ, from the norms of the gradients."""
        return to_host(self._on_host.stationarity(grad_norm[..., None]))

    def conjugate_of_norms(self, grad_norm: Floats) -> Floats:
        """Return `conjugate` of an isotropic φ, from the norms of the gradients."""
        return to_host(self._on_host.conjugate(grad_norm[..., None]))

    @property
    def _on_host(self) -> Preconditioned:
        scale = None if self.scale is None else to_host(self.scale[:, 0])[:, None]
        return Preconditioned(self.reference, scale)

    def _relative(self, grad: Array) -> Array:
        return grad if self.scale is None else grad / self.scale

    def _times_scale(self, value: Array) -> Array:
        return value if self.scale is None else self.scale[:, 0] * value


def scale_at(xp: Namespace, start: Point, reference: Reference) -> Array:
    """Return the λ that ``scale="auto"`` makes of the gradients at the start, of shape (runs, 1)."""
    entries = 1.0 if isinstance(reference, Isotropic) else start.grad.shape[-1] ** 0.5
    return RELATIVE_SCALE * one_if_zero(xp, start.grad_norm) / entries

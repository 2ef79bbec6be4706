"""What a reference function is."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from npgm import kernels
from npgm._common import validate
from npgm._common.array import Array, Axis, Namespace


@dataclass(frozen=True)
class Reference(ABC):
    """A reference function φ = λψ, with ψ built from a scalar kernel and λ = ``scale``.

    The vectors are arrays of any library that implements the array API standard, of a real floating-point dtype;
    results have the dtype of the argument. ``axis`` says which axes make up one vector, by default all of them. The
    functions act independently over the other axes, as `numpy.linalg.norm` does.

    Args:
        kernel: the scalar function h.
        scale: λ > 0. ∇φ*(y) = ∇ψ*(y/λ): gradients are measured in units of λ.

    Raises:
        TypeError, ValueError: if ``kernel`` is not a kernel or ``scale`` is not a positive finite number.
    """

    kernel: kernels.Kernel
    scale: float = 1.0

    lift: ClassVar[str]

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, kernels.Kernel):
            raise TypeError(f"kernel must be a kernel such as npgm.Cosh(), not {self.kernel!r}")
        validate.fields(self, scale=validate.positive)

    @property
    def name(self) -> str:
        """The name by which `reference` builds this function, up to ``scale`` and the kernel's parameters."""
        return f"{self.lift}-{self.kernel.key}"

    def with_scale(self, scale: float) -> Reference:
        """Return the same function with ``scale`` as its λ."""
        return replace(self, scale=scale)

    @property
    def mu(self) -> float:
        """The modulus of strong convexity of φ, 0 if there is none; ∇φ* is 1/mu-Lipschitz."""
        return self.scale * self.kernel.mu

    @property
    def curvature_at_zero(self) -> float:
        """The c with ∇²φ*(0) = c I, possibly 0 or infinity."""
        return self.kernel.curvature_at_zero / self.scale

    @property
    def radius(self) -> float:
        """The domain of φ: the open ball of this radius, possibly infinite.

        That of the Euclidean norm (isotropic), of the largest magnitude (separable) or of the largest singular value
        (spectral).
        """
        return self.kernel.radius

    def euclidean_radius(self, shape: tuple[int, ...]) -> float:
        """The radius of the least ball of the Euclidean norm around the domain of φ, for arrays of this shape."""
        del shape
        return self.radius

    @abstractmethod
    def __call__(self, x: Array, axis: Axis = None) -> Array:
        """φ(x), +∞ outside the domain, of the shape of ``x`` without ``axis``."""

    @abstractmethod
    def gradient(self, x: Array, axis: Axis = None) -> Array:
        """∇φ(x), of the shape of ``x``; NaN outside the domain."""

    @abstractmethod
    def conjugate(self, y: Array, axis: Axis = None) -> Array:
        """φ*(y), of the shape of ``y`` without ``axis``."""

    @abstractmethod
    def precondition(self, y: Array, axis: Axis = None) -> Array:
        """∇φ*(y), of the shape of ``y``: the direction of the step at a point of gradient ``y``."""

    @abstractmethod
    def conjugate_hessian(self, y: Array, axis: Axis = None, *, root: bool = False) -> Callable[[Array], Array]:
        """The function v ↦ ∇²φ*(y) v of arrays of the shape of ``y``, or ∇²φ*(y)^½ v, at a fixed ``y``."""

    def conjugate_hvp(self, y: Array, v: Array, axis: Axis = None) -> Array:
        """∇²φ*(y) v, of the shape of ``y``: the derivative of `precondition` at ``y`` along ``v``."""
        return self.conjugate_hessian(y, axis)(v)

    @property
    def stationarity_limit(self) -> float:
        """λ sup h(h*'), an upper bound of the measure of an isotropic φ, and of each term of the measure of another φ.

        Infinite, except where h is finite at the boundary of a bounded domain.
        """
        return self.scale * float(self.kernel(self.radius)) if self.radius < math.inf else math.inf

    @abstractmethod
    def stationarity(self, y: Array, axis: Axis = None) -> Array:
        """φ(∇φ*(y)), the paper's stationarity measure at a point of gradient ``y``; shaped as `conjugate`."""

    def _times_scale(self, xp: Namespace, function: Callable[[Array], Array], x: Array, *, dual: bool) -> Array:
        """Return λ function(x) for h, or if ``dual`` for h* or h(h*'): near zero x²/2 over, or times, h*''(0).

        Where x² underflows, λ x² need not.
        """
        limits, value, curvature = xp.finfo(x.dtype), self.scale * function(x), self.kernel.curvature_at_zero
        if not 0.0 < curvature < math.inf:
            return value
        small = xp.abs(x) < (float(limits.smallest_normal) / float(limits.eps)) ** 0.5
        safe = xp.where(small, x, xp.zeros_like(x))
        factor = 0.5 * self.scale * (curvature if dual else 1.0 / curvature)
        return xp.where(small, (factor * safe) * safe, value)

    def flattened(self, shape: tuple[int, ...]) -> Reference:
        """Return φ as a function of vectors that hold the entries of arrays of this shape, row by row."""
        del shape
        return self

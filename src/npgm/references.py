"""Reference functions φ on vectors, built from a kernel, and the preconditioners ∇φ* they generate.

>>> import numpy as np, npgm
>>> phi = npgm.Isotropic(npgm.Cosh(), scale=100.0)
>>> phi
Isotropic(kernel=Cosh(), scale=100.0)
>>> phi == npgm.reference("isotropic-cosh", scale=100.0)
True
>>> phi.precondition(np.array([300.0, 400.0])) / np.arcsinh(5.0)   # the norm 500 becomes arsinh(5)
array([0.6, 0.8])
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import ClassVar

from npgm import _validate, kernels
from npgm._array import Array, Axis, Namespace, divide, one_if_zero, promote, saturated_product, scaled_norm


@dataclass(frozen=True)
class Reference(ABC):
    """A reference function φ = λψ, with ψ built from a scalar kernel and λ = ``scale``.

    The vectors are arrays of any library that implements the array API standard, of a real floating-point dtype;
    results have the dtype of the argument. ``axis`` says which axes make up one vector, all of them by default;
    over the others the functions act independently, as `numpy.linalg.norm` does.

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
        object.__setattr__(self, "scale", _validate.positive("scale", self.scale))

    @property
    def name(self) -> str:
        """The name by which `reference` builds this function, up to ``scale`` and the kernel's parameters."""
        return f"{self.lift}-{self.kernel.key}"

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
        """The domain of φ: the open ball (isotropic) or cube (separable) of this radius, possibly infinite."""
        return self.kernel.radius

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
        """λ sup h(h*'): no measure of an isotropic φ, and no term of that of a separable φ, is larger.

        Infinite, except where h is finite at the boundary of a bounded domain.
        """
        return self.scale * float(self.kernel(self.radius)) if self.radius < math.inf else math.inf

    @abstractmethod
    def stationarity(self, y: Array, axis: Axis = None) -> Array:
        """φ(∇φ*(y)), the paper's stationarity measure at a point of gradient ``y``; shaped as `conjugate`."""


@dataclass(frozen=True)
class Isotropic(Reference):
    """φ(x) = λ h(‖x‖): rescales a gradient by its norm and keeps its direction."""

    lift = "isotropic"

    def __call__(self, x: Array, axis: Axis = None) -> Array:
        xp, x, restore = promote(x)
        _, m, q = scaled_norm(xp, x, axis)
        return restore(self.scale * xp.sum(self.kernel(m * q), axis=axis))

    def gradient(self, x: Array, axis: Axis = None) -> Array:
        xp, x, restore = promote(x)
        z, m, q = scaled_norm(xp, x, axis)
        slope = self.kernel.gradient(m * q) / one_if_zero(xp, q)
        at_zero = self.kernel.curvature_at_zero
        return restore(z * self.scale * xp.where(q == 0, xp.full_like(q, _derivative(1.0, at_zero)), slope))

    def conjugate(self, y: Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        _, m, q = scaled_norm(xp, y, axis)
        return restore(self.scale * xp.sum(self.kernel.conjugate(self.relative_norm(xp, m, q)), axis=axis))

    def precondition(self, y: Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        z, m, q = scaled_norm(xp, y, axis)
        return restore(z * self.factor(xp, m, q))

    def conjugate_hessian(self, y: Array, axis: Axis = None, *, root: bool = False) -> Callable[[Array], Array]:
        xp, y, restore = promote(y)
        z, m, q = scaled_norm(xp, y, axis)
        r = self.relative_norm(xp, m, q)
        direction = z / one_if_zero(xp, q)
        tangential = self.kernel.rescaling(r) / self.scale
        radial = self.kernel.curvature(r) / self.scale
        if root:
            tangential, radial = xp.sqrt(tangential), xp.sqrt(radial)
        difference = radial - tangential

        def product(v: Array) -> Array:
            v = xp.astype(v, y.dtype, copy=False)
            along = xp.sum(direction * v, axis=axis, keepdims=True)
            return restore(tangential * v + (difference * along) * direction)

        return product

    def stationarity(self, y: Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        _, m, q = scaled_norm(xp, y, axis)
        return restore(self.scale * xp.sum(self.kernel.stationarity(self.relative_norm(xp, m, q)), axis=axis))

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


@dataclass(frozen=True)
class Separable(Reference):
    """φ(x) = λ Σ h(x_i): rescales each component of a gradient on its own."""

    lift = "separable"

    def __call__(self, x: Array, axis: Axis = None) -> Array:
        xp, x, restore = promote(x)
        return restore(self.scale * xp.sum(self.kernel(x), axis=axis))

    def gradient(self, x: Array, axis: Axis = None) -> Array:
        _, x, restore = promote(x)
        return restore(self.scale * self.kernel.gradient(x))

    def conjugate(self, y: Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        return restore(self.scale * xp.sum(self.kernel.conjugate(divide(xp, y, self.scale)), axis=axis))

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
        return restore(self.scale * xp.sum(self.kernel.stationarity(divide(xp, y, self.scale)), axis=axis))


lifts: dict[str, type[Reference]] = {lift.lift: lift for lift in (Isotropic, Separable)}
"""The two ways from a kernel to a reference function, by name."""


def names() -> list[str]:
    """Return the names that `reference` accepts: every lift of every registered kernel."""
    return [f"{lift}-{key}" for lift in sorted(lifts) for key in sorted(kernels.registry)]


def reference(name: str, *, scale: float = 1.0, **parameters: float) -> Reference:
    """Build a reference function by name.

    Args:
        name: the lift and the kernel's key, as in ``"isotropic-cosh"``; `names` lists them all.
        scale: λ > 0.
        **parameters: the kernel's own parameters, if it has any.

    Raises:
        TypeError, ValueError: if the name, the scale or a parameter is not accepted.
    """
    _validate.choice("reference", name, names())
    lift, _, key = name.partition("-")
    kernel = kernels.registry[key]
    accepted: list[str] = [field.name for field in fields(kernel)] if is_dataclass(kernel) else []
    if unknown := set(parameters) - set(accepted):
        raise TypeError(f"the kernel {key} has no parameter {min(unknown)!r}; accepted: {accepted or 'none'}")
    return lifts[lift](kernel(**parameters), scale=scale)


def as_reference(value: Reference | str) -> Reference:
    """Return ``value`` itself, or the reference function of that name with λ = 1.

    Raises:
        TypeError, ValueError: if it is neither a reference function nor the name of one.
    """
    if isinstance(value, str):
        return reference(value)
    if not isinstance(value, Reference):
        raise TypeError(
            f"reference must be a reference function, such as npgm.Isotropic(npgm.Cosh()), or its name, not {value!r}"
        )
    return value


def _derivative(numerator: float, denominator: float) -> float:
    """Return the quotient where it is finite, else 0, as autograd libraries do where there is no derivative.

    It multiplies the zero vector, which an infinite factor would turn into NaN.
    """
    quotient = numerator / denominator if denominator > 0.0 else math.inf
    return quotient if quotient < math.inf else 0.0

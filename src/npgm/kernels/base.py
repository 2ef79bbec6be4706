"""What a kernel is, and the registry of all of them."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from npgm._common.array import Array, Namespace, as_real_array, elementwise
from npgm._common.derivatives import differentiable
from npgm._common.registry import Registry

registry: Registry[type[Kernel]] = Registry("kernel", __name__, "npgm.kernels")
"""The kernels by name: ``registry[name](**parameters)`` builds one, and every parameter has a default."""

register = registry.register


class Kernel(ABC):
    """An even convex function of one real variable, applied to arrays element by element.

    Every method takes and returns an array of any shape, of any array API library, in the dtype of its argument
    (bfloat16 and float16 are computed in float32), and differentiates under that library's autograd.
    A subclass is a frozen dataclass whose fields are the kernel's parameters, each with a default. It states ``key``,
    the formulas and every property that differs from the defaults below, and defines the five abstract functions. The
    other two have defaults; replace them by closed forms where these are more accurate.
    """

    def __init_subclass__(cls, *, closed_forms: bool = True, **others: Any) -> None:
        """Give h*, h*' and h(h*') of the class the derivatives h*', h*'' and y h*'' of the class.

        What JAX and torch make of the formulas forms squares, which overflow at large gradients.

        Args:
            closed_forms: False if these functions are less accurate than what differentiation makes of the formulas.
        """
        super().__init_subclass__(**others)
        for name, derivative in _DERIVATIVES.items():
            if closed_forms and name in vars(cls):
                setattr(cls, name, _with_derivative(vars(cls)[name], derivative))

    key: ClassVar[str]
    """The name under which the kernel is registered."""
    formula: ClassVar[str] = "given by code"
    """h(x), for tables."""
    preconditioner_formula: ClassVar[str] = "given by code"
    """h*'(y), for tables."""

    @property
    def radius(self) -> float:
        """The interior of the domain of h is (-radius, radius)."""
        return math.inf

    @property
    def mu(self) -> float:
        """The modulus of strong convexity of h, 0 if there is none; h*' is 1/mu-Lipschitz."""
        return 1.0

    @property
    def curvature_at_zero(self) -> float:
        """h*''(0) = 1/h''(0), possibly 0 or infinity; 1/mu for every kernel whose h'' is least at zero."""
        return 1.0 / self.mu if self.mu > 0.0 else math.inf

    @property
    def full_domain(self) -> bool:
        """Whether h is finite on the whole line, as Theorems 3.1 to 3.5 of the paper require."""
        return self.radius == math.inf

    @property
    def strongly_convex_c2(self) -> bool:
        """Whether the paper's Assumption 1.2 holds: mu > 0, h is C² inside its domain, and |h'| → ∞ at its boundary."""
        return True

    @property
    def two_subhomogeneous(self) -> bool:
        """Whether h(θx) <= θ² h(x) for all x and all θ in [0, 1], as Theorem 2.4 of the paper requires."""
        return True

    @property
    def noise_inequality(self) -> bool:
        """Whether h(h*'(y) - h*'(z)) <= ½ (y - z)² for all y and z, as Theorem 3.4 of the paper requires."""
        return False

    @property
    def nonincreasing_rescaling(self) -> bool:
        """Whether h*'(y)/y does not increase with y > 0: a larger gradient is never scaled up by more."""
        return True

    @abstractmethod
    def __call__(self, x: Array) -> Array:
        """h(x): the limit from inside at the boundary of the domain, +∞ beyond."""

    @abstractmethod
    def gradient(self, x: Array) -> Array:
        """h'(x): the limit from inside at the boundary of the domain, NaN beyond."""

    @abstractmethod
    def conjugate(self, y: Array) -> Array:
        """h*(y)."""

    @abstractmethod
    def precondition(self, y: Array) -> Array:
        """h*'(y), the inverse of h'."""

    @abstractmethod
    def curvature(self, y: Array) -> Array:
        """h*''(y), the derivative of the preconditioner."""

    @elementwise
    def stationarity(self, xp: Namespace, y: Array) -> Array:
        """h(h*'(y)), the scalar form of the paper's stationarity measure φ(∇φ*(∇f))."""
        return self(self.precondition(y))

    @elementwise
    def rescaling(self, xp: Namespace, y: Array) -> Array:
        """h*'(y)/y, continued by h*''(0) at zero: the factor by which a gradient of norm y is rescaled."""
        tiny = xp.abs(y) < float(xp.finfo(y.dtype).smallest_normal)  # of which libraries make zero
        safe = xp.where(tiny, xp.ones_like(y), y)
        return xp.where(tiny, xp.full_like(y, self.curvature_at_zero), self.precondition(safe) / safe)


def _slope_of_stationarity(kernel: Kernel, y: Array) -> Array:
    xp, y = as_real_array(y)
    curvature = kernel.curvature(y)
    return y * xp.where(xp.isinf(curvature), xp.zeros_like(y), curvature)  # infinite at zero alone


Function: TypeAlias = Callable[[Kernel, Array], Array]

_DERIVATIVES: dict[str, Function] = {
    "conjugate": lambda kernel, y: kernel.precondition(y),
    "precondition": lambda kernel, y: kernel.curvature(y),
    "stationarity": _slope_of_stationarity,
}


def _with_derivative(method: Function, derivative: Function) -> Function:
    @functools.wraps(method)
    def differentiated(self: Kernel, y: Array) -> Array:
        def product(at: Array, v: Array) -> Array:
            return derivative(self, at) * v

        return differentiable(functools.partial(method, self), y, jvp=product, vjp=product)

    return differentiated

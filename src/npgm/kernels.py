"""Scalar kernels h: the even convex functions from which reference functions are built.

A kernel has h(0) = 0, is strongly convex with modulus μ and twice continuously differentiable inside its domain
(-radius, radius), and h' maps the domain onto the real line (Assumption 1.2 of the paper). Its conjugate
h*(y) = sup_x xy - h(x) is then finite everywhere, and the preconditioner h*' is the inverse of h'.

To add a kernel, write one class and register it; the contract tests and the command line find it in `registry`:

    >>> import npgm
    >>> sorted(npgm.kernels.registry)
    ['cosh', 'log', 'quad']
    >>> float(npgm.Cosh().precondition(0.0))
    0.0
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from npgm._array import Array, Namespace, elementwise

registry: dict[str, type[Kernel]] = {}
"""The kernels by name: ``registry[name](**parameters)`` builds one."""

K = TypeVar("K", bound="type[Kernel]")


def register(kernel: K) -> K:
    """Enter a kernel class in the registry under its ``key``; use it as a decorator.

    Raises:
        ValueError: if another class holds the key already.
    """
    taken = registry.get(kernel.key)
    if taken is not None and taken.__qualname__ != kernel.__qualname__:
        raise ValueError(f"the kernel key {kernel.key!r} is taken by {taken.__qualname__}")
    registry[kernel.key] = kernel
    return kernel


class Kernel(ABC):
    """An even, strongly convex function of one real variable, applied to arrays element by element.

    Every method takes and returns an array of any shape, of any array API library, in the dtype of its argument
    (bfloat16 and float16 are computed in float32), and differentiates under that library's autograd.
    A subclass states ``key``, ``formula``, ``radius`` and ``mu`` and gives the five functions that are abstract here;
    the other two have defaults that a closed form should replace where it is more accurate.
    """

    key: ClassVar[str]
    """The name under which the kernel is registered."""
    formula: ClassVar[str]
    """h(x), for tables."""
    preconditioner_formula: ClassVar[str]
    """h*'(y), for tables."""
    radius: ClassVar[float] = math.inf
    """The domain of h is (-radius, radius)."""
    mu: ClassVar[float] = 1.0
    """The modulus of strong convexity of h; h*' is 1/mu-Lipschitz."""

    @abstractmethod
    def __call__(self, x: Array) -> Array:
        """h(x), +∞ outside the domain."""

    @abstractmethod
    def gradient(self, x: Array) -> Array:
        """h'(x), NaN outside the domain."""

    @abstractmethod
    def conjugate(self, y: Array) -> Array:
        """h*(y)."""

    @abstractmethod
    def precondition(self, y: Array) -> Array:
        """h*'(y), the inverse of h'."""

    @abstractmethod
    def curvature(self, y: Array) -> Array:
        """h*''(y), the derivative of the preconditioner."""

    def stationarity(self, y: Array) -> Array:
        """h(h*'(y)), the scalar form of the paper's stationarity measure φ(∇φ*(∇f))."""
        return self(self.precondition(y))

    @elementwise
    def rescaling(self, xp: Namespace, y: Array) -> Array:
        """h*'(y)/y, continued by 1/μ at zero: the factor by which a gradient of norm y is rescaled."""
        nonzero = y != 0
        safe = xp.where(nonzero, y, xp.ones_like(y))
        return xp.where(nonzero, self.precondition(safe) / safe, xp.full_like(y, 1.0 / self.mu))


@register
@dataclass(frozen=True)
class Cosh(Kernel):
    """h = cosh - 1, which generates hyperbolic gradient descent (iHGD and sHGD, Table 1 of the paper)."""

    key = "cosh"
    formula = "cosh(x) - 1"
    preconditioner_formula = "arsinh(y)"

    @elementwise
    def __call__(self, xp: Namespace, x: Array) -> Array:
        root = xp.sinh(0.5 * x)
        return 2.0 * root * root

    @elementwise
    def gradient(self, xp: Namespace, x: Array) -> Array:
        return xp.sinh(x)

    @elementwise
    def conjugate(self, xp: Namespace, y: Array) -> Array:
        # y arsinh(y) - (s - 1) with s = sqrt(1 + y²), rearranged so that nothing cancels at small y
        return y * (xp.asinh(y) - y / (1.0 + _hypot1(xp, y)))

    @elementwise
    def precondition(self, xp: Namespace, y: Array) -> Array:
        return xp.asinh(y)

    @elementwise
    def curvature(self, xp: Namespace, y: Array) -> Array:
        return 1.0 / _hypot1(xp, y)

    @elementwise
    def stationarity(self, xp: Namespace, y: Array) -> Array:
        return y * (y / (1.0 + _hypot1(xp, y)))


@register
@dataclass(frozen=True)
class Log(Kernel):
    """h = -|x| - ln(1 - |x|), which generates normalised gradient descent (NGD and sNGD, Table 1 of the paper)."""

    key = "log"
    formula = "-|x| - ln(1 - |x|)"
    preconditioner_formula = "y / (1 + |y|)"
    radius = 1.0

    # -b - ln(1 - b), b - ln(1 + b) and ln(1 + b) - b / (1 + b) cancel at small b. With t = b / (2 ∓ b) the logarithm
    # is 2 artanh(t), whose linear term combines with the rest in closed form.

    @elementwise
    def __call__(self, xp: Namespace, x: Array) -> Array:
        a = xp.abs(x)
        near, b, c = _split(xp, xp.where(a < 1.0, a, xp.full_like(a, 0.75)), 0.5)
        t = b / (2.0 - b)
        value = xp.where(near, b * t + 2.0 * _artanh_tail(t), -c - xp.log1p(-c))
        outside = xp.where(xp.isnan(a), a, xp.full_like(a, math.inf))
        return xp.where(a < 1.0, value, outside)

    @elementwise
    def gradient(self, xp: Namespace, x: Array) -> Array:
        inside = xp.abs(x) < 1.0
        safe = xp.where(inside, x, xp.zeros_like(x))
        return xp.where(inside, safe / (1.0 - xp.abs(safe)), xp.full_like(x, math.nan))

    @elementwise
    def conjugate(self, xp: Namespace, y: Array) -> Array:
        near, b, c = _split(xp, xp.abs(y), 1.0)
        t = b / (2.0 + b)
        return xp.where(near, b * t - 2.0 * _artanh_tail(t), c - xp.log1p(c))

    @elementwise
    def precondition(self, xp: Namespace, y: Array) -> Array:
        return y / (1.0 + xp.abs(y))

    @elementwise
    def curvature(self, xp: Namespace, y: Array) -> Array:
        slope = 1.0 / (1.0 + xp.abs(y))
        return slope * slope

    @elementwise
    def stationarity(self, xp: Namespace, y: Array) -> Array:
        near, b, c = _split(xp, xp.abs(y), 1.0)
        t = b / (2.0 + b)
        return xp.where(near, t * (b / (1.0 + b)) + 2.0 * _artanh_tail(t), xp.log1p(c) - c / (1.0 + c))

    @elementwise
    def rescaling(self, xp: Namespace, y: Array) -> Array:
        return 1.0 / (1.0 + xp.abs(y))


@register
@dataclass(frozen=True)
class Quadratic(Kernel):
    """h = x²/2, which generates gradient descent: the preconditioner is the identity."""

    key = "quad"
    formula = "x² / 2"
    preconditioner_formula = "y"

    @elementwise
    def __call__(self, xp: Namespace, x: Array) -> Array:
        return 0.5 * x * x

    @elementwise
    def gradient(self, xp: Namespace, x: Array) -> Array:
        return x

    @elementwise
    def conjugate(self, xp: Namespace, y: Array) -> Array:
        return 0.5 * y * y

    @elementwise
    def precondition(self, xp: Namespace, y: Array) -> Array:
        return y

    @elementwise
    def curvature(self, xp: Namespace, y: Array) -> Array:
        return xp.ones_like(y)

    @elementwise
    def rescaling(self, xp: Namespace, y: Array) -> Array:
        return xp.ones_like(y)


def _hypot1(xp: Namespace, y: Array) -> Array:
    """Return sqrt(1 + y²) without overflow."""
    return xp.hypot(xp.ones_like(y), y)


def _split(xp: Namespace, a: Array, at: float) -> tuple[Array, Array, Array]:
    """Return ``a < at`` and arguments for a formula below and one from there on, each safe where unused."""
    near = a < at
    return near, xp.where(near, a, xp.zeros_like(a)), xp.where(near, xp.full_like(a, at), a)


def _artanh_tail(t: Array) -> Array:
    r"""Return artanh(t) - t for \|t\| <= 1/3, by its Taylor series."""
    w = t * t
    tail = 0.0 * w
    for k in range(17, 0, -1):  # the terms left out are below 3**-36
        tail = w * (1.0 / (2 * k + 1) + tail)
    return t * tail

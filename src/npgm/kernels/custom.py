"""Kernels of your own: from h and h' alone, or from the preconditioner h*' alone.

The functions see magnitudes a >= 0 only, so that the kernel is even by construction, and the array namespace ``xp``,
so that one formula serves every array library. What is missing is found by safeguarded root finding, by the
Fenchel-Young equality, and by quadrature:

    >>> import numpy as np, npgm
    >>> from dataclasses import dataclass
    >>> @npgm.kernels.register
    ... @dataclass(frozen=True)
    ... class Steep(npgm.kernels.FromPrimal):
    ...     "h = x²/2 + c x⁶/6"
    ...     key = "steep-example"
    ...     mu = 1.0
    ...     c: float = 1.0
    ...     def h(self, xp, a):
    ...         return a**2 / 2 + self.c * a**6 / 6
    ...     def h_prime(self, xp, a):
    ...         return a + self.c * a**5
    >>> phi = npgm.reference("separable-steep-example", scale=2.0, c=1.0)
    >>> phi.precondition(np.array([4.0, -68.0]))
    array([ 1., -2.])
    >>> del npgm.kernels.registry["steep-example"]
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from npgm._common.array import Array, Floats, Namespace, elementwise, stop_gradient
from npgm.kernels._formulas import even, even_inside, odd, odd_inside
from npgm.kernels.base import Kernel

Function = Callable[[Namespace, Array], Array]

_sound: set[tuple[type, str]] = set()
"""The kernels that were checked, by class and parameters."""


class _Derived(Kernel):
    """A kernel of which some functions are computed numerically.

    The properties claim nothing that is not stated: a subclass that knows ``mu`` or a flag says so, and what it says
    is checked at construction. A subclass that is no dataclass, and has an ``__init__``, ends it with that of the base.
    """

    mu = 0.0
    two_subhomogeneous = False
    nonincreasing_rescaling = False

    def __init__(self) -> None:
        self.__post_init__()

    def __post_init__(self) -> None:
        identity = (type(self), repr(sorted(vars(self).items())))
        if identity not in _sound:  # an optimizer may build its reference function anew in every step
            self._check()
            _sound.add(identity)

    @functools.cached_property
    def strongly_convex_c2(self) -> bool:
        return self.mu > 0.0 and not _has_kink(self)

    @functools.cached_property
    def curvature_at_zero(self) -> float:
        with np.errstate(divide="ignore"):
            return float(self.curvature(np.zeros(())))

    @abstractmethod
    def _check(self) -> None:
        """Raise a ValueError that says what is wrong with the functions."""


class FromPrimal(_Derived, closed_forms=False):
    """A kernel from h and h' alone: h*' is the root of h'(u) = y, h* = u y - h(u) and h*'' = 1/h''(u).

    A subclass states ``key``, ``radius`` if its domain is bounded, and ``mu`` for the theorems that need it. It defines
    the two functions. The preconditioner is as accurate as ``h_prime`` and costs about 64 evaluations of it in float64,
    32 in float32. It does not branch on values, so it can be compiled. Autograd differentiates it once, by the implicit
    function rule.

    Raises:
        ValueError: at construction, if h(0) is not 0, h' is not the derivative of h, does not increase strictly, or is
            not onto; or if something stated (``mu``, a flag) does not hold.
    """

    @abstractmethod
    def h(self, xp: Namespace, a: Array) -> Array:
        """h(a), for 0 <= a < radius."""

    @abstractmethod
    def h_prime(self, xp: Namespace, a: Array) -> Array:
        """h'(a), for 0 <= a < radius."""

    def h_second(self, xp: Namespace, a: Array) -> Array:
        """h''(a); unless given, by differences of h', to about 12 digits in float64 and 5 in float32."""
        return _difference_quotient(xp, self.h_prime, a, self.radius)

    @even_inside(edge=math.inf)
    def __call__(self, xp: Namespace, a: Array) -> Array:
        return self.h(xp, a)

    @odd_inside
    def gradient(self, xp: Namespace, a: Array) -> Array:
        return self.h_prime(xp, a)

    @odd
    def precondition(self, xp: Namespace, a: Array) -> Array:
        return _root(xp, self.h_prime, self.h_second, a, self.radius)

    @even
    def conjugate(self, xp: Namespace, a: Array) -> Array:
        u = self.precondition(a)
        return u * a - self(u)

    @elementwise
    def curvature(self, xp: Namespace, y: Array) -> Array:
        return 1.0 / self.h_second(xp, xp.abs(self.precondition(y)))

    def _check(self) -> None:
        _check_primal(self, self.h, self.h_prime)
        check_stated(self)


class FromDual(_Derived, closed_forms=False):
    """A kernel from the preconditioner h*' alone: h' is its inverse, h* its integral and h(x) = x y - h*(y).

    A subclass states ``key``, ``radius`` if the preconditioner is bounded, and ``mu``, with h*' <= y/mu, for the
    theorems that need it. It defines the function.

    Raises:
        ValueError: at construction, if h*' is not 0 at 0, does not increase strictly, or does not tend to ``radius``;
            or if something stated (``mu``, a flag) does not hold.
    """

    @abstractmethod
    def conjugate_prime(self, xp: Namespace, a: Array) -> Array:
        """h*'(a), for a >= 0."""

    def conjugate_second(self, xp: Namespace, a: Array) -> Array:
        """h*''(a); unless given, by differences of h*', to about 12 digits in float64 and 5 in float32."""
        return _difference_quotient(xp, self.conjugate_prime, a, math.inf)

    @odd
    def precondition(self, xp: Namespace, a: Array) -> Array:
        return self.conjugate_prime(xp, a)

    @even
    def conjugate(self, xp: Namespace, a: Array) -> Array:
        return _integral(xp, self.conjugate_prime, a)

    @elementwise
    def curvature(self, xp: Namespace, y: Array) -> Array:
        return self.conjugate_second(xp, xp.abs(y))

    @odd_inside
    def gradient(self, xp: Namespace, a: Array) -> Array:
        return _root(xp, self.conjugate_prime, self.conjugate_second, a, math.inf)

    @even_inside(edge=math.inf)
    def __call__(self, xp: Namespace, a: Array) -> Array:
        y = self.gradient(a)
        return a * y - self.conjugate(y)

    @elementwise
    def stationarity(self, xp: Namespace, y: Array) -> Array:
        return y * self.precondition(y) - self.conjugate(y)

    def _check(self) -> None:
        _check_increasing(self, self.conjugate_prime, math.inf, "h*'")
        far = self._limit()
        if not (far > 0.99 * self.radius if self.radius < math.inf else far == math.inf):
            raise ValueError(f"{self!r}: h*' must tend to radius = {self.radius:g}, but tends to {far:g}")
        check_stated(self)

    def _limit(self) -> float:
        """Return lim h*'(a) for a → ∞, as far as floating point tells."""
        middle, far = _evaluate(self.conjugate_prime, np.array([1e150, 1e300]))
        return math.inf if not far <= 1.01 * middle else float(far)


def _root(xp: Namespace, function: Function, derivative: Function, a: Array, radius: float) -> Array:
    """Return the u in [0, radius) with function(u) = a, for an increasing function and a >= 0.

    Bisection, first of the exponent and then of the digits: it cannot fail, and needs no branch on values.
    """
    limits = xp.finfo(a.dtype)
    largest, eps = float(limits.max), float(limits.eps)
    constant = stop_gradient(a)
    low = xp.full_like(constant, float(limits.smallest_normal))
    high = xp.full_like(constant, min(radius * (1.0 - eps), largest))
    halvings = math.ceil(math.log2(math.log2(largest) - math.log2(float(limits.smallest_normal))))
    with np.errstate(over="ignore", invalid="ignore"):  # a function that overflows is larger than a
        for i in range(halvings + round(-math.log2(eps)) + 1):
            middle = xp.sqrt(low) * xp.sqrt(high) if i < halvings else low + 0.5 * (high - low)
            below = function(xp, middle) < constant
            low, high = xp.where(below, middle, low), xp.where(below, high, middle)
        u = xp.where(constant == 0, xp.zeros_like(high), high)
        u = xp.where(constant == math.inf, xp.full_like(u, radius), u)
        u = xp.where(xp.isnan(constant), constant, u)
        if constant is a:  # NumPy
            return u
        slope = derivative(xp, stop_gradient(u))
    finite = xp.isfinite(constant) & (slope > 0)
    return u + xp.where(finite, a - constant, xp.zeros_like(a)) / xp.where(finite, slope, xp.ones_like(a))


def _difference_quotient(xp: Namespace, function: Function, a: Array, radius: float) -> Array:
    """Return function'(a) for an odd function that is given for 0 <= a < radius, by five points."""
    eps = float(xp.finfo(a.dtype).eps)
    step = eps**0.2 * (a if radius == math.inf else xp.minimum(a, radius - a))
    positive = step > 0
    h = xp.where(positive, step, xp.full_like(a, math.sqrt(eps)))
    at_zero = function(xp, xp.full_like(a, math.sqrt(eps))) / math.sqrt(eps)
    center = xp.where(positive, a, 0.5 * xp.ones_like(a) * (1.0 if radius == math.inf else radius))
    near = function(xp, center + h) - function(xp, center - h)
    wide = function(xp, center + 2.0 * h) - function(xp, center - 2.0 * h)
    quotient = xp.where(positive, (8.0 * near - wide) / (12.0 * h), at_zero)
    return xp.where(xp.isnan(a), a, quotient)


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)


def _integral(xp: Namespace, function: Function, a: Array) -> Array:
    """Return the integral of an increasing function from 0 to a >= 0, by Gauss' rule on [a/2, a], [a/4, a/2], ...

    Relative to the integral, what is left out is of the size of the rounding, since the function increases.
    """
    total = xp.zeros_like(a)
    end = a
    for _ in range(round(-math.log2(float(xp.finfo(a.dtype).eps))) + 1):
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            total = total + (0.25 * float(weight)) * end * function(xp, end * (0.75 + 0.25 * float(node)))
        end = 0.5 * end
    return total


def _has_kink(kernel: Kernel) -> bool:
    """Return whether the preconditioner has two slopes at some point, as far as floating point tells.

    Where the slope changes most, intervals are halved; what is left of a change in 1e-4 of a point is a jump. Where the
    preconditioner is flat, its slope is not known.
    """
    low = np.concatenate([[0.0], np.geomspace(1e-4, 1e4, 321)])
    low, high = low[:-1], low[1:]

    def slope(y: Floats) -> Floats:
        h = 1e-6 * y + 1e-12
        with np.errstate(all="ignore"):
            quotient: Floats = (kernel.precondition(y + h) - kernel.precondition(np.maximum(y - h, 0.0))) / (
                h + np.minimum(y, h)
            )
        return quotient

    at_low, at_high = slope(low), slope(high)
    for _ in range(40):
        middle = 0.5 * (low + high)
        at_middle = slope(middle)
        right = np.abs(at_high - at_middle) > np.abs(at_middle - at_low)
        wide = high - low > 1e-4 * middle
        low, at_low = np.where(wide & right, middle, low), np.where(wide & right, at_middle, at_low)
        high, at_high = np.where(wide & ~right, middle, high), np.where(wide & ~right, at_middle, at_high)
    largest = np.maximum(np.abs(at_low), np.abs(at_high))
    known = largest * high > 1e-4 * kernel.precondition(high)
    return bool(np.any(known & (np.abs(at_high - at_low) > 0.01 * largest)))


def _evaluate(function: Function, a: Any) -> Floats:
    with np.errstate(all="ignore"):
        value: Floats = np.asarray(function(np, a))
    return value


def _grid(radius: float) -> Floats:
    if radius == math.inf:
        return np.geomspace(1e-4, 1e4, 321)
    return radius * np.concatenate([np.geomspace(1e-4, 0.5, 160), 1.0 - np.geomspace(0.4, 1e-9, 160)])


def _check_increasing(kernel: Kernel, function: Function, radius: float, name: str) -> tuple[Floats, Floats]:
    a = _grid(radius)
    value = _evaluate(function, a.astype(np.float32))
    if value.shape != a.shape or value.dtype != np.float32:
        raise ValueError(
            f"{kernel!r}: {name} must return an array of the shape and dtype of its argument, "
            f"but returned {value.dtype} {value.shape} for float32 {a.shape}"
        )
    value = _evaluate(function, a)
    if not abs(_evaluate(function, np.zeros(1))[0]) <= 1e-12:
        raise ValueError(f"{kernel!r}: {name}(0) must be 0, but is {_evaluate(function, np.zeros(1))[0]:g}")
    finite = np.isfinite(value)
    if not finite[0] or np.isnan(value).any():  # an overflow at large a is as it should be
        raise ValueError(f"{kernel!r}: {name} is not finite at {a[~finite][0]:g}, which lies inside its domain")
    a, value = a[finite], value[finite]
    fall = np.flatnonzero(np.diff(value, prepend=0.0) <= 0.0)
    if fall.size:
        raise ValueError(f"{kernel!r}: {name} must increase strictly, but does not up to {a[fall[0]]:g}")
    return a, value


def _check_primal(kernel: Kernel, h: Function, h_prime: Function) -> None:
    a, slope = _check_increasing(kernel, h_prime, kernel.radius, "h'")
    value = _evaluate(h, a)
    if value.shape != a.shape or not abs(_evaluate(h, np.zeros(1))[0]) <= 1e-12:
        raise ValueError(f"{kernel!r}: h must return an array of the shape of its argument, and h(0) must be 0")
    step, rise = np.diff(a), np.diff(value)
    slack = 1e-12 * np.abs(value[1:])
    with np.errstate(over="ignore"):  # between two points, a convex function rises at a rate between its slopes
        wrong = np.flatnonzero((rise < slope[:-1] * step - slack) | (rise > slope[1:] * step + slack))
    if wrong.size:
        raise ValueError(f"{kernel!r}: h' is not the derivative of h at {a[wrong[0]]:g}")
    at = np.array([1e150, 1e300]) if kernel.radius == math.inf else kernel.radius * (1.0 - np.array([1e-6, 1e-13]))
    middle, far = _evaluate(h_prime, at)
    if far < math.inf and far <= 1.01 * middle:
        raise ValueError(f"{kernel!r}: h' must be onto the real line, but tends to {far:g} at the end of the domain")


def check_stated(kernel: Kernel) -> None:
    """Check on a grid what a kernel of one's own states of itself.

    Raises:
        ValueError: if something does not hold.
    """
    y = np.concatenate([[0.0], np.geomspace(1e-4, 1e4, 81)])
    with np.errstate(all="ignore"):
        u, curvature, rescaling = kernel.precondition(y), kernel.curvature(y), kernel.rescaling(y)
        x = _grid(kernel.radius)[::4]
        theta = np.linspace(0.05, 0.95, 19)[:, None]
        difference = np.concatenate([u[:, None] - u, u[:, None] + u])
        distance = np.concatenate([y[:, None] - y, y[:, None] + y])
        broken = {
            "mu": kernel.mu > 0.0 and bool(np.any(curvature > (1.0 + 1e-6) / kernel.mu)),
            "two_subhomogeneous": bool(np.any(kernel(theta * x) > theta**2 * kernel(x) * (1.0 + 1e-9))),
            "noise_inequality": bool(np.any(kernel(difference) > 0.5 * distance**2 * (1.0 + 1e-9) + 1e-15)),
            "nonincreasing_rescaling": bool(np.any(np.diff(rescaling[1:]) > 1e-9 * rescaling[2:])),
        }
    for name, violated in broken.items():
        if getattr(kernel, name) and violated:
            raise ValueError(f"{kernel!r}: {name} = {getattr(kernel, name)!r} is stated, but does not hold")

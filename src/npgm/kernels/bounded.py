"""Kernels on a bounded interval: the preconditioner saturates, a smooth form of clipping."""

from __future__ import annotations

import math
from dataclasses import dataclass

from npgm._common.array import Array, Namespace, elementwise
from npgm.kernels._formulas import (
    artanh_tail,
    entropy,
    even,
    even_inside,
    horner,
    hypot1,
    minus_log1p,
    odd_inside,
    split,
)
from npgm.kernels.base import Kernel, register


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

    @even_inside(edge=math.inf)
    def __call__(self, xp: Namespace, a: Array) -> Array:
        near, b, c = split(xp, a, 0.5)
        t = b / (2.0 - b)
        return xp.where(near, b * t + 2.0 * artanh_tail(t), -c - xp.log1p(-c))

    @odd_inside
    def gradient(self, xp: Namespace, a: Array) -> Array:
        return a / (1.0 - a)

    @even
    def conjugate(self, xp: Namespace, a: Array) -> Array:
        return minus_log1p(xp, a)

    @elementwise
    def precondition(self, xp: Namespace, y: Array) -> Array:
        return y / (1.0 + xp.abs(y))

    @elementwise
    def curvature(self, xp: Namespace, y: Array) -> Array:
        slope = 1.0 / (1.0 + xp.abs(y))
        return slope * slope

    @elementwise
    def stationarity(self, xp: Namespace, y: Array) -> Array:
        near, b, c = split(xp, xp.abs(y), 1.0)
        t = b / (2.0 + b)
        return xp.where(near, t * (b / (1.0 + b)) + 2.0 * artanh_tail(t), xp.log1p(c) - c / (1.0 + c))


@register
@dataclass(frozen=True)
class Sqrt(Kernel):
    """h = 1 - √(1 - x²), whose preconditioner is the smooth clipping y/√(1 + y²)."""

    key = "sqrt"
    formula = "1 - √(1 - x²)"
    preconditioner_formula = "y / √(1 + y²)"
    radius = 1.0

    @even_inside(edge=1.0)
    def __call__(self, xp: Namespace, a: Array) -> Array:
        return a * a / (1.0 + xp.sqrt((1.0 - a) * (1.0 + a)))

    @odd_inside
    def gradient(self, xp: Namespace, a: Array) -> Array:
        return a / xp.sqrt((1.0 - a) * (1.0 + a))

    @elementwise
    def conjugate(self, xp: Namespace, y: Array) -> Array:
        return y * (y / (1.0 + hypot1(xp, y)))

    @elementwise
    def precondition(self, xp: Namespace, y: Array) -> Array:
        return y / hypot1(xp, y)

    @elementwise
    def curvature(self, xp: Namespace, y: Array) -> Array:
        slope = 1.0 / hypot1(xp, y)
        return slope * slope * slope

    @elementwise
    def stationarity(self, xp: Namespace, y: Array) -> Array:
        s = hypot1(xp, y)
        return (y / s) * (y / (1.0 + s))


@register
@dataclass(frozen=True)
class Artanh(Kernel):
    """h = x artanh(x) + ½ ln(1 - x²), the entropy of a coin, whose preconditioner is tanh."""

    key = "artanh"
    formula = "x artanh(x) + ½ ln(1 - x²)"
    preconditioner_formula = "tanh(y)"
    radius = 1.0

    @even_inside(edge=math.log(2.0))
    def __call__(self, xp: Namespace, a: Array) -> Array:
        return entropy(xp, a)

    @odd_inside
    def gradient(self, xp: Namespace, a: Array) -> Array:
        near, b, c = split(xp, a, 0.5)
        return xp.where(near, b + artanh_tail(b), 0.5 * xp.log((1.0 + c) / (1.0 - c)))

    @even
    def conjugate(self, xp: Namespace, a: Array) -> Array:
        near, b, c = split(xp, a, 1.0)
        square = xp.tanh(b) ** 2
        t = square / (2.0 - square)  # ln cosh b = -½ ln(1 - tanh² b) = artanh t
        return xp.where(near, t + artanh_tail(t), c - math.log(2.0) + xp.log1p(xp.exp(-2.0 * c)))

    @elementwise
    def precondition(self, xp: Namespace, y: Array) -> Array:
        return xp.tanh(y)

    @elementwise
    def curvature(self, xp: Namespace, y: Array) -> Array:
        e = xp.exp(-xp.abs(y))
        slope = 2.0 * e / (1.0 + e * e)
        return slope * slope

    @elementwise
    def stationarity(self, xp: Namespace, y: Array) -> Array:
        near, b, c = split(xp, xp.abs(y), 1.0)
        e = xp.exp(-2.0 * c)
        finite = xp.where(c < 1e3, c, xp.zeros_like(c))  # c e^-2c is 0 from there on
        far = math.log(2.0) - (2.0 * finite * (e / (1.0 + e)) + xp.log1p(e))
        return xp.where(near, entropy(xp, xp.tanh(b)), xp.where(xp.isnan(c), c, far))


@register
@dataclass(frozen=True)
class LogSquare(Kernel):
    """h = -ln(1 - x²), the logarithmic barrier of the interval (-1, 1)."""

    key = "logx2"
    formula = "-ln(1 - x²)"
    preconditioner_formula = "y / (1 + √(1 + y²))"
    radius = 1.0
    mu = 2.0

    @even_inside(edge=math.inf)
    def __call__(self, xp: Namespace, a: Array) -> Array:
        near, b, c = split(xp, a, 0.7)
        t = b * b / (2.0 - b * b)  # -ln(1 - b²) = 2 artanh t
        return xp.where(near, 2.0 * (t + artanh_tail(t)), -xp.log((1.0 - c) * (1.0 + c)))

    @odd_inside
    def gradient(self, xp: Namespace, a: Array) -> Array:
        return 2.0 * a / ((1.0 - a) * (1.0 + a))

    @elementwise
    def conjugate(self, xp: Namespace, y: Array) -> Array:
        # d - ln(1 + d/2) with d = √(1 + y²) - 1
        half = 0.5 * y * (y / (1.0 + hypot1(xp, y)))
        return half + minus_log1p(xp, half)

    @elementwise
    def precondition(self, xp: Namespace, y: Array) -> Array:
        return y / (1.0 + hypot1(xp, y))

    @elementwise
    def curvature(self, xp: Namespace, y: Array) -> Array:
        s = hypot1(xp, y)
        return (1.0 / s) * (1.0 / (1.0 + s))

    @elementwise
    def stationarity(self, xp: Namespace, y: Array) -> Array:
        return xp.log1p(0.5 * y * (y / (1.0 + hypot1(xp, y))))


_LOGCOS_DUAL = [(-1.0) ** (k - 1) / (2 * k * (2 * k - 1)) for k in range(1, 28)]


@register
@dataclass(frozen=True)
class LogCos(Kernel):
    """h = -ln cos(x), whose preconditioner is arctan."""

    key = "lncos"
    formula = "-ln cos(x)"
    preconditioner_formula = "arctan(y)"
    radius = 0.5 * math.pi

    @even_inside(edge=math.inf)
    def __call__(self, xp: Namespace, a: Array) -> Array:
        t = xp.tan(a)
        return 0.5 * xp.log1p(t * t)

    @odd_inside
    def gradient(self, xp: Namespace, a: Array) -> Array:
        return xp.tan(a)

    @even
    def conjugate(self, xp: Namespace, a: Array) -> Array:
        near, b, c = split(xp, a, 0.5)
        return xp.where(near, horner(b * b, _LOGCOS_DUAL), c * xp.atan(c) - _log_hypot1(xp, c))

    @elementwise
    def precondition(self, xp: Namespace, y: Array) -> Array:
        return xp.atan(y)

    @elementwise
    def curvature(self, xp: Namespace, y: Array) -> Array:
        slope = 1.0 / hypot1(xp, y)
        return slope * slope

    @elementwise
    def stationarity(self, xp: Namespace, y: Array) -> Array:
        return _log_hypot1(xp, xp.abs(y))


def _log_hypot1(xp: Namespace, a: Array) -> Array:
    """Return ½ ln(1 + a²)."""
    near, b, c = split(xp, a, 1e3)
    return xp.where(near, 0.5 * xp.log1p(b * b), xp.log(hypot1(xp, c)))

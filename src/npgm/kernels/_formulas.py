"""Pieces of the formulas that neither cancel nor overflow, and that autograd differentiates at zero."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from npgm._common.array import Array, Namespace, elementwise, stop_gradient

Formula: TypeAlias = Callable[[Any, Namespace, Array], Array]
"""Of a kernel, the array namespace and magnitudes a >= 0."""


def even(formula: Formula) -> Callable[[Any, Array], Array]:
    """Turn ``formula(self, xp, a)`` of magnitudes into a method of any array, even, evaluated in at least float32."""
    return elementwise(functools.wraps(formula)(lambda self, xp, x: formula(self, xp, sign_and_magnitude(xp, x)[1])))


def odd(formula: Formula) -> Callable[[Any, Array], Array]:
    """Turn ``formula(self, xp, a)`` of magnitudes into a method of any array, odd, evaluated in at least float32."""

    def method(self: Any, xp: Namespace, x: Array) -> Array:
        s, a = sign_and_magnitude(xp, x)
        return s * formula(self, xp, a)

    return elementwise(functools.wraps(formula)(method))


def even_inside(*, edge: float) -> Callable[[Formula], Callable[[Any, Array], Array]]:
    """As `even`, for h: of a below ``self.radius``; it is ``edge`` at the radius and +∞ beyond."""
    return lambda formula: even(_inside(formula, edge, math.inf))


def odd_inside(formula: Formula) -> Callable[[Any, Array], Array]:
    """As `odd`, for h': of a below ``self.radius``; it is +∞ at the radius and NaN beyond."""
    return odd(_inside(formula, math.inf, math.nan))


def _inside(formula: Formula, edge: float, beyond: float) -> Formula:
    @functools.wraps(formula)
    def guarded(self: Any, xp: Namespace, a: Array) -> Array:
        inside, safe = within(xp, a, self.radius)
        return xp.where(inside, formula(self, xp, safe), outside(xp, a, self.radius, edge, beyond))

    return guarded


def sign_and_magnitude(xp: Namespace, x: Array) -> tuple[Array, Array]:
    r"""Return (s, a) with s = ±1, a = \|x\| and x = s a; s f(a) and f(a) have the right derivative at zero."""
    s = xp.where(x < 0, -xp.ones_like(x), xp.ones_like(x))
    return s, s * x


def split(xp: Namespace, a: Array, at: float) -> tuple[Array, Array, Array]:
    """Return ``a < at`` and arguments for a formula below and one from there on, each safe where unused."""
    near = a < at
    return near, xp.where(near, a, xp.zeros_like(a)), xp.where(near, xp.full_like(a, at), a)


def within(xp: Namespace, a: Array, radius: float) -> tuple[Array, Array]:
    """Return ``a < radius`` and ``a`` where that holds, 0 elsewhere."""
    inside = a < radius
    return inside, xp.where(inside, a, xp.zeros_like(a))


def outside(xp: Namespace, a: Array, radius: float, edge: float, beyond: float) -> Array:
    """Return ``edge`` where ``a`` equals ``radius`` and ``beyond`` where it is larger; NaN stays."""
    value = xp.where(a > radius, xp.full_like(a, beyond), xp.full_like(a, edge))
    return xp.where(xp.isnan(a), a, value)


def hypot1(xp: Namespace, y: Array) -> Array:
    """Return sqrt(1 + y²) without overflow."""
    near, b, c = split(xp, sign_and_magnitude(xp, y)[1], _forgets_one(xp, y))
    return xp.where(near, xp.sqrt(1.0 + b * b), c)  # automatic differentiation of hypot forms y dy, which overflows


def arsinh(xp: Namespace, y: Array) -> Array:
    """Return arsinh(y), the derivative of whose library function forms y²."""
    s, a = sign_and_magnitude(xp, y)
    near, b, c = split(xp, a, _forgets_one(xp, y))
    return s * xp.where(near, xp.asinh(b), xp.log(c) + math.log(2.0))


def _forgets_one(xp: Namespace, y: Array) -> float:
    """Return a power of two from which on 1 + y² is y² in the dtype of ``y``."""
    return 2.0**28 if xp.finfo(y.dtype).bits == 64 else 2.0**13


def horner(w: Array, coefficients: list[float]) -> Array:
    """Return c_0 w + c_1 w² + c_2 w³ + ..."""
    total = 0.0 * w
    for c in reversed(coefficients):
        total = w * (c + total)
    return total


_ARTANH_TAIL = [1.0 / (2 * k + 1) for k in range(1, 28)]  # up to 1/2 the terms left out are below 2**-55
_EXP_TAIL = [1.0 / math.factorial(k) for k in range(2, 26)]
_ENTROPY = [1.0 / (2 * k * (2 * k - 1)) for k in range(1, 57)]


def artanh_tail(t: Array) -> Array:
    r"""Return artanh(t) - t for \|t\| <= 1/2, by its Taylor series."""
    return t * horner(t * t, _ARTANH_TAIL)


def exp_tail(xp: Namespace, a: Array) -> Array:
    """Return e^a - a - 1 for a >= 0."""
    near, b, c = split(xp, a, 2.0)
    return xp.where(near, b * horner(b, _EXP_TAIL), xp.expm1(c) - c)


def minus_log1p(xp: Namespace, a: Array) -> Array:
    """Return a - ln(1 + a) for a >= 0; with t = a/(2 + a) the logarithm is 2 artanh(t)."""
    near, b, c = split(xp, a, 1.0)
    t = b / (2.0 + b)
    return xp.where(near, b * t - 2.0 * artanh_tail(t), c - xp.log1p(c))


def entropy(xp: Namespace, t: Array) -> Array:
    """Return t artanh(t) + ½ ln(1 - t²) = ½ [(1+t) ln(1+t) + (1-t) ln(1-t)] for 0 <= t < 1."""
    near, b, c = split(xp, t, 0.77)
    far = 0.5 * ((1.0 + c) * xp.log1p(c) + (1.0 - c) * xp.log1p(-c))
    return xp.where(near, horner(b * b, _ENTROPY), far)


def power(xp: Namespace, a: Array, exponent: Fraction) -> Array:
    """Return a^exponent for a >= 0 to the last few digits, also where the exponent is no number of the dtype."""
    if exponent == 0:
        return xp.ones_like(a)
    if exponent == 1:
        return a
    rounded = float(exponent) if xp.finfo(a.dtype).bits == 64 else float(np.float32(exponent))
    rest = float(exponent - Fraction(rounded))
    value = a**rounded
    if rest == 0.0:
        return value
    positive = (a > 0) & xp.isfinite(a)
    # a constant of automatic differentiation: its derivative is beyond the last digit, and its cotangents are large
    correction = 1.0 + rest * xp.log(stop_gradient(xp.where(positive, a, xp.ones_like(a))))
    return value * xp.where(positive, correction, xp.ones_like(a))

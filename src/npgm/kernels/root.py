"""The kernels between normalisation and hard clipping."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

from npgm._common import validate
from npgm._common.array import Array, Namespace, elementwise
from npgm.kernels._formulas import even, horner, odd, odd_inside, outside, power, split, within
from npgm.kernels.base import Kernel, register


@register
@dataclass(frozen=True)
class Root(Kernel):
    """h' = x/(1 - |x|^κ)^(1/κ), whose preconditioner y/(1 + |y|^κ)^(1/κ) saturates more sharply for larger κ.

    κ = 1 is `Log`, κ = 2 is `Sqrt`, and κ → ∞ is hard clipping at 1. On singular values, κ = 4 is close to the
    polynomial iterations of Muon (``docs/spectral.md``).

    Args:
        kappa: κ >= 1.
    """

    key = "root"
    formula = "∫ x / (1 - |x|^κ)^(1/κ)"
    preconditioner_formula = "y / (1 + |y|^κ)^(1/κ)"
    radius = 1.0

    kappa: float = 4.0

    def __post_init__(self) -> None:
        validate.fields(self, kappa=validate.positive)
        if self.kappa < 1.0:
            raise ValueError(f"kappa must be at least 1, not {self.kappa!r}")

    # h, h* and h(h*') are incomplete beta functions: with a = 1/κ and w = x^κ, h = ½ x² F(a, 2a; 1 + 2a; w) by the
    # hypergeometric series, and beyond w = 2/3, where y^κ = w/(1 - w) = 2, they are the series in s = y^-κ, integrated
    # term by term.

    @even
    def __call__(self, xp: Namespace, a: Array) -> Array:
        inside, safe = within(xp, a, self.radius)
        near, b, c = split(xp, safe, (2.0 / 3.0) ** (1.0 / self.kappa))
        rest = self._rest(xp, c)
        y, s = c * power(xp, rest, -self._a), rest / (1.0 - rest)
        value = xp.where(near, self._primal_series(xp, b), self._far(xp, y, y * s, s))
        series = _series(self.kappa)
        return xp.where(inside, value, outside(xp, a, self.radius, edge=series.largest, beyond=math.inf))

    @odd_inside
    def gradient(self, xp: Namespace, a: Array) -> Array:
        return a * power(xp, self._rest(xp, a), -self._a)

    @even
    def conjugate(self, xp: Namespace, a: Array) -> Array:
        series = _series(self.kappa)
        near, b, c = split(xp, a, 2.0 ** (1.0 / self.kappa))
        z = power(xp, b, self._k)
        u = b * power(xp, 1.0 + z, -self._a)
        w = z / (1.0 + z)
        small = 0.5 * b * u * (1.0 + horner(w, series.conjugate))
        q, s = power(xp, c, 1 - self._k), power(xp, c, -self._k)
        large = c - (self._logarithm(xp, c) / self.kappa - series.shift) - q * horner(s, series.conjugate_far)
        return xp.where(near, small, large)

    @odd
    def precondition(self, xp: Namespace, a: Array) -> Array:
        near, b, c = split(xp, a, 1.0)
        small = b * power(xp, 1.0 + power(xp, b, self._k), -self._a)
        return xp.where(near, small, power(xp, 1.0 + power(xp, c, -self._k), -self._a))

    @elementwise
    def curvature(self, xp: Namespace, y: Array) -> Array:
        near, b, c = split(xp, xp.abs(y), 1.0)
        small = power(xp, 1.0 + power(xp, b, self._k), -1 - self._a)
        large = power(xp, c, -1 - self._k) * power(xp, 1.0 + power(xp, c, -self._k), -1 - self._a)
        return xp.where(near, small, large)

    @even
    def stationarity(self, xp: Namespace, a: Array) -> Array:
        near, b, c = split(xp, a, 2.0 ** (1.0 / self.kappa))
        small = self._primal_series(xp, b * power(xp, 1.0 + power(xp, b, self._k), -self._a))
        q, s = power(xp, c, 1 - self._k), power(xp, c, -self._k)
        return xp.where(near, small, self._far(xp, c, q, s))

    @property
    def _k(self) -> Fraction:
        return Fraction(self.kappa)

    @property
    def _a(self) -> Fraction:
        return 1 / Fraction(self.kappa)

    def _rest(self, xp: Namespace, x: Array) -> Array:
        """Return 1 - x^κ for 0 <= x < 1."""
        near, b, c = split(xp, x, 0.5)
        return xp.where(near, 1.0 - power(xp, b, self._k), -xp.expm1(self.kappa * xp.log(c)))

    def _primal_series(self, xp: Namespace, x: Array) -> Array:
        """Return h(x) for 0 <= x^κ <= 2/3."""
        return 0.5 * x * x * (1.0 + horner(power(xp, x, self._k), _series(self.kappa).primal))

    def _far(self, xp: Namespace, y: Array, q: Array, s: Array) -> Array:
        """Return h(h*'(y)) for s = y^-κ <= 1/2 and q = y s."""
        series = _series(self.kappa)
        terms = series.stationarity_far[0] + horner(s, series.stationarity_far[1:])
        return self._logarithm(xp, y) / self.kappa - series.shift + q * terms

    def _logarithm(self, xp: Namespace, y: Array) -> Array:
        """Return the integral of t^-κ from 1 to y, the logarithm for κ = 1."""
        if self.kappa == 1.0:
            return xp.log(y)
        return -xp.expm1((1.0 - self.kappa) * xp.log(y)) / (self.kappa - 1.0)


@dataclass(frozen=True)
class _Series:
    """The coefficients of `Root`, for κ given.

    Args:
        primal: of 2 h/x² in w, from w¹ on.
        conjugate: of 2 h*/(y u) in w, from w¹ on.
        conjugate_far: of what is left of h* in s, from s¹ on.
        stationarity_far: of what is left of h(h*') in s, from s⁰ on.
        shift: the constant of integration.
        largest: h(1).
    """

    primal: list[float]
    conjugate: list[float]
    conjugate_far: list[float]
    stationarity_far: list[float]
    shift: float
    largest: float


@functools.lru_cache(maxsize=64)
def _series(kappa: float) -> _Series:
    a = 1.0 / kappa
    primal, conjugate = [], []
    rising = quotient = 1.0  # (a)_n / n! and (a)_n / (1 + 2a)_n
    for n in range(1, 95):  # (2/3)^95 < 2^-55
        rising *= (a + n - 1) / n
        quotient *= (a + n - 1) / (2.0 * a + n)
        primal.append(rising * 2.0 * a / (2.0 * a + n))
        conjugate.append(quotient)
    binomial, conjugate_far, stationarity_far = -a, [], [-a]
    for n in range(2, 56):
        binomial *= (1.0 - a - n) / n
        conjugate_far.append(binomial / (kappa * n - 1.0))
        stationarity_far.append(binomial + conjugate_far[-1])
    # at w = 2/3 and s = 1/2 both series hold, with y = 2^a and u = (2/3)^a
    y, logarithm = 2.0**a, math.log(2.0) * a
    integral = logarithm if kappa == 1.0 else -math.expm1((1.0 - kappa) * logarithm) / (kappa - 1.0)
    near = 0.5 * (4.0 / 3.0) ** a * math.fsum([1.0, *(c * (2.0 / 3.0) ** n for n, c in enumerate(conjugate, 1))])
    rest = 0.5 * y * math.fsum(c * 0.5**n for n, c in enumerate(conjugate_far, 1))
    shift = math.fsum([near, -y, a * integral, rest])
    return _Series(
        primal,
        conjugate,
        conjugate_far,
        stationarity_far,
        shift,
        math.inf if kappa == 1.0 else a / (kappa - 1.0) - shift,
    )

"""Kernels of polynomial growth, from gradient descent to hard clipping."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from npgm._common import validate
from npgm._common.array import Array, Namespace, elementwise
from npgm.kernels._formulas import even, odd, outside, power, sign_and_magnitude, split, within
from npgm.kernels.base import Kernel, register


@register
@dataclass(frozen=True)
class Quadratic(Kernel):
    """h = x²/2, which generates gradient descent: the preconditioner is the identity."""

    key = "quad"
    formula = "x² / 2"
    preconditioner_formula = "y"
    noise_inequality = True

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


@register
@dataclass(frozen=True)
class Power(Kernel):
    """h = |x|^p / p, for p > 1, with the preconditioner sgn(y) |y|^(q-1), q = p/(p-1).

    Assumption 1.2 of the paper fails unless p = 2. For p > 2, h is not strongly convex at zero, and h*' has an infinite
    derivative there, which autograd returns. For p < 2, h is not strongly convex at infinity, and the preconditioner
    magnifies large gradients.

    Args:
        p: the exponent, larger than 1.
    """

    key = "pow"
    formula = "|x|^p / p"
    preconditioner_formula = "sgn(y) |y|^(1/(p-1))"

    p: float = 4.0

    def __post_init__(self) -> None:
        validate.fields(self, p=validate.positive)
        if self.p <= 1.0:
            raise ValueError(f"p must be larger than 1, not {self.p!r}")

    @property
    def mu(self) -> float:
        return 1.0 if self.p == 2.0 else 0.0

    @property
    def curvature_at_zero(self) -> float:
        return 1.0 if self.p == 2.0 else math.inf if self.p > 2.0 else 0.0

    @property
    def strongly_convex_c2(self) -> bool:
        return self.p == 2.0

    @property
    def two_subhomogeneous(self) -> bool:
        return self.p >= 2.0

    @property
    def noise_inequality(self) -> bool:
        return self.p == 2.0

    @property
    def nonincreasing_rescaling(self) -> bool:
        return self.p >= 2.0

    @property
    def _dual_power(self) -> Fraction:
        """1/(p - 1) = q - 1."""
        return 1 / (Fraction(self.p) - 1)

    @even
    def __call__(self, xp: Namespace, a: Array) -> Array:
        return _integrated_power(xp, a, Fraction(self.p) - 1)

    @odd
    def gradient(self, xp: Namespace, a: Array) -> Array:
        return power(xp, a, Fraction(self.p) - 1)

    @even
    def conjugate(self, xp: Namespace, a: Array) -> Array:
        return _integrated_power(xp, a, self._dual_power)

    @odd
    def precondition(self, xp: Namespace, a: Array) -> Array:
        return power(xp, a, self._dual_power)

    @elementwise
    def curvature(self, xp: Namespace, y: Array) -> Array:
        return float(self._dual_power) * self.rescaling(y)

    @elementwise
    def stationarity(self, xp: Namespace, y: Array) -> Array:
        a = xp.abs(y)
        return a * (power(xp, a, self._dual_power) / self.p)

    @elementwise
    def rescaling(self, xp: Namespace, y: Array) -> Array:
        a = xp.abs(y)
        exponent = self._dual_power - 1
        if exponent >= 0:
            return power(xp, a, exponent)
        nonzero = a != 0
        value = power(xp, xp.where(nonzero, a, xp.ones_like(a)), exponent)
        return xp.where(nonzero, value, xp.full_like(a, math.inf))


def _integrated_power(xp: Namespace, a: Array, exponent: Fraction) -> Array:
    """Return a^(exponent + 1) / (exponent + 1) for a >= 0, with the derivative 0 at 0."""
    nonzero = a != 0
    safe = xp.where(nonzero, a, xp.ones_like(a))
    return xp.where(nonzero, safe * (power(xp, safe, exponent) / float(exponent + 1)), xp.zeros_like(a))


@register
@dataclass(frozen=True)
class Huber(Kernel):
    """h = x²/2 on [-c, c], +∞ elsewhere, with c = ``radius``: the preconditioner is hard clipping at c.

    This is the limiting case of the smooth kernels. h' does not tend to infinity at the boundary, so the paper's
    Assumption 1.2 fails. The deterministic theorems hold nevertheless (`npgm.theory.bounds.clipping`). The conjugate is
    Huber's loss.

    Args:
        radius: the threshold c > 0.
    """

    key = "huber"
    formula = "x²/2 on [-c, c]"
    preconditioner_formula = "clip(y, -c, c)"
    strongly_convex_c2 = False

    radius: float = 1.0

    def __post_init__(self) -> None:
        validate.fields(self, radius=validate.positive)

    @even
    def __call__(self, xp: Namespace, a: Array) -> Array:
        c = self._threshold(xp, a)
        inside, b = within(xp, a, c)
        largest = 0.5 * c * c
        edge = largest if largest <= float(xp.finfo(a.dtype).max) else math.inf
        return xp.where(inside, 0.5 * b * b, outside(xp, a, c, edge=edge, beyond=math.inf))

    @odd
    def gradient(self, xp: Namespace, a: Array) -> Array:
        c = self._threshold(xp, a)
        inside, b = within(xp, a, c)
        return xp.where(inside, b, outside(xp, a, c, edge=c, beyond=math.nan))

    @even
    def conjugate(self, xp: Namespace, a: Array) -> Array:
        b = self._clipped(xp, a)
        return b * (a - 0.5 * b)

    @odd
    def precondition(self, xp: Namespace, a: Array) -> Array:
        return self._clipped(xp, a)

    @elementwise
    def curvature(self, xp: Namespace, y: Array) -> Array:
        a = xp.abs(y)
        return xp.where(xp.isnan(a), a, xp.astype(a < self._threshold(xp, a), a.dtype))

    def _clipped(self, xp: Namespace, a: Array) -> Array:
        c = self._threshold(xp, a)
        return xp.where(a >= c, xp.full_like(a, c), a)

    def _threshold(self, xp: Namespace, a: Array) -> float:
        """Return c, or the largest number of the dtype if that is smaller."""
        return min(self.radius, float(xp.finfo(a.dtype).max))


@register
@dataclass(frozen=True)
class Cubic(Kernel):
    """h = x²/2 + |x|³/3, whose preconditioner grows like a square root."""

    key = "mix3"
    formula = "x²/2 + |x|³/3"
    preconditioner_formula = "2y / (1 + √(1 + 4|y|))"
    noise_inequality = True

    @even
    def __call__(self, xp: Namespace, a: Array) -> Array:
        return a * a * (0.5 + a / 3.0)

    @odd
    def gradient(self, xp: Namespace, a: Array) -> Array:
        return a + a * a

    @even
    def conjugate(self, xp: Namespace, a: Array) -> Array:
        u = a / (0.5 + xp.sqrt(0.25 + a))
        return u * u * (0.5 + 2.0 / 3.0 * u)

    @odd
    def precondition(self, xp: Namespace, a: Array) -> Array:
        return a / (0.5 + xp.sqrt(0.25 + a))

    @elementwise
    def curvature(self, xp: Namespace, y: Array) -> Array:
        return 0.5 / xp.sqrt(0.25 + xp.abs(y))


@register
@dataclass(frozen=True)
class Quartic(Kernel):
    """h = x²/2 + x⁴/4, whose preconditioner, the real root u of u + u³ = y, grows like a cube root."""

    key = "mix4"
    formula = "x²/2 + x⁴/4"
    preconditioner_formula = "u with u + u³ = y"
    noise_inequality = True

    @elementwise
    def __call__(self, xp: Namespace, x: Array) -> Array:
        square = x * x
        return square * (0.5 + 0.25 * square)

    @elementwise
    def gradient(self, xp: Namespace, x: Array) -> Array:
        return x + x * x * x

    # with u⁴ = u y - u², an error of u is not magnified

    @even
    def conjugate(self, xp: Namespace, a: Array) -> Array:
        u = _cubic_root(xp, a)
        return 0.25 * u * (3.0 * a - u)

    @elementwise
    def precondition(self, xp: Namespace, y: Array) -> Array:
        return _cubic_root(xp, y)

    @elementwise
    def curvature(self, xp: Namespace, y: Array) -> Array:
        u = _cubic_root(xp, y)
        return 1.0 / (1.0 + 3.0 * u * u)

    @elementwise
    def stationarity(self, xp: Namespace, y: Array) -> Array:
        a = xp.abs(y)
        u = _cubic_root(xp, a)
        return 0.25 * u * (a + u)


def _cubic_root(xp: Namespace, y: Array) -> Array:
    """Return the real u with u + u³ = y: the closed form and Newton's method on it, or the series at large y."""
    s, a = sign_and_magnitude(xp, y)
    near, b, c = split(xp, a, 1e9)
    u = 2.0 / math.sqrt(3.0) * xp.sinh(xp.asinh(1.5 * math.sqrt(3.0) * b) / 3.0)
    for _ in range(2):
        square = u * u
        u = u - (u * square + u - b) / (1.0 + 3.0 * square)
    root = power(xp, c, Fraction(1, 3))
    return s * xp.where(near, u, root - 1.0 / (3.0 * root))

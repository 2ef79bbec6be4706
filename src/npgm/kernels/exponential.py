"""Kernels that grow exponentially: the preconditioner grows like a logarithm, and the domain is the whole line."""

from __future__ import annotations

from dataclasses import dataclass

from npgm._common.array import Array, Namespace, elementwise
from npgm.kernels._formulas import arsinh, artanh_tail, even, exp_tail, hypot1, minus_log1p, odd, split
from npgm.kernels.base import Kernel, register


@register
@dataclass(frozen=True)
class Cosh(Kernel):
    """h = cosh - 1, which generates hyperbolic gradient descent (iHGD and sHGD, Table 1 of the paper)."""

    key = "cosh"
    formula = "cosh(x) - 1"
    preconditioner_formula = "arsinh(y)"
    noise_inequality = True  # Proposition 3.2

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
        return y * (arsinh(xp, y) - y / (1.0 + hypot1(xp, y)))

    @elementwise
    def precondition(self, xp: Namespace, y: Array) -> Array:
        return arsinh(xp, y)

    @elementwise
    def curvature(self, xp: Namespace, y: Array) -> Array:
        return 1.0 / hypot1(xp, y)

    @elementwise
    def stationarity(self, xp: Namespace, y: Array) -> Array:
        return y * (y / (1.0 + hypot1(xp, y)))


@register
@dataclass(frozen=True)
class Exp(Kernel):
    """h = e^|x| - |x| - 1, the kernel of the logarithmic preconditioner."""

    key = "exp"
    formula = "e^|x| - |x| - 1"
    preconditioner_formula = "sgn(y) ln(1 + |y|)"
    noise_inequality = True

    @even
    def __call__(self, xp: Namespace, a: Array) -> Array:
        return exp_tail(xp, a)

    @odd
    def gradient(self, xp: Namespace, a: Array) -> Array:
        return xp.expm1(a)

    @even
    def conjugate(self, xp: Namespace, a: Array) -> Array:
        # (1 + a) ln(1 + a) - a; with t = a/(2 + a) the logarithm is 2 artanh(t)
        near, b, c = split(xp, a, 2.0)
        t = b / (2.0 + b)
        return xp.where(near, b * t + 2.0 * (1.0 + b) * artanh_tail(t), (1.0 + c) * xp.log1p(c) - c)

    @odd
    def precondition(self, xp: Namespace, a: Array) -> Array:
        return xp.log1p(a)

    @elementwise
    def curvature(self, xp: Namespace, y: Array) -> Array:
        return 1.0 / (1.0 + xp.abs(y))

    @even
    def stationarity(self, xp: Namespace, a: Array) -> Array:
        return minus_log1p(xp, a)


@register
@dataclass(frozen=True)
class ExpSquare(Kernel):
    """h = exp(x²/2) - 1, whose preconditioner grows like the square root of a logarithm, by Lambert's W."""

    key = "expsq"
    formula = "exp(x²/2) - 1"
    preconditioner_formula = "sgn(y) √W(y²)"

    @even
    def __call__(self, xp: Namespace, a: Array) -> Array:
        near, b, c = split(xp, a, 1.0)
        main, rest = _half_square(xp, c)
        small = xp.expm1(rest)
        return xp.where(near, xp.expm1(0.5 * b * b), xp.expm1(main) * (1.0 + small) + small)

    @elementwise
    def gradient(self, xp: Namespace, x: Array) -> Array:
        main, rest = _half_square(xp, x)
        return x * xp.exp(rest) * xp.exp(main)

    @even
    def conjugate(self, xp: Namespace, a: Array) -> Array:
        u = a * _inverse_growth(xp, a)
        near, v, w = split(xp, u, 1.25)
        far = xp.where(near, xp.ones_like(a), a)
        return xp.where(near, a * v - xp.expm1(0.5 * v * v), far * (w - 1.0 / w) + 1.0)

    @odd
    def precondition(self, xp: Namespace, a: Array) -> Array:
        return a * _inverse_growth(xp, a)

    @elementwise
    def curvature(self, xp: Namespace, y: Array) -> Array:
        rescaling = _inverse_growth(xp, xp.abs(y))
        u = y * rescaling
        return rescaling / (1.0 + u * u)

    @even
    def stationarity(self, xp: Namespace, a: Array) -> Array:
        rescaling = _inverse_growth(xp, a)
        near, v, _ = split(xp, a * rescaling, 1.25)
        return xp.where(near, xp.expm1(0.5 * v * v), 1.0 / rescaling - 1.0)


def _half_square(xp: Namespace, x: Array) -> tuple[Array, Array]:
    """Return x²/2 as the sum of two numbers of which the first, the larger one, is exact: exp magnifies its error."""
    coarse = xp.round(x * 64.0) / 64.0
    fine = x - coarse
    return 0.5 * coarse * coarse, fine * (coarse + 0.5 * fine)


def _inverse_growth(xp: Namespace, a: Array) -> Array:
    """Return ρ = u/a = exp(-u²/2) with u = √W(a²), for a >= 0.

    Newton's method in the form of Iacono and Boyd (2017), W ← W/(1 + W) (1 + ln(a²/W)), which converges from any
    positive start, here within 12 %: its relative error is squared in each of the iterations.
    """
    near, b, c = split(xp, a, 1.0)
    logarithm = 2.0 * xp.log(hypot1(xp, c))
    guess = xp.sqrt(logarithm * (1.0 - xp.log1p(logarithm) / (2.0 + logarithm))) / c
    rho = xp.where(near, 1.0 / hypot1(xp, b), guess)
    for _ in range(4):
        u = a * rho
        rho = rho * xp.sqrt((1.0 - 2.0 * xp.log(rho)) / (1.0 + u * u))
    return rho

"""The preconditioners h*' as functions of Triton, one for each kernel, for separable φ.

They are odd, and given a = |y|/λ >= 0, possibly infinite; what they make of NaN is not looked at. A kernel becomes
fused by one function here and its line in `PRECONDITIONERS`.

Made of +, ×, /, √ and of Triton's logarithm, which is accurate; its exponential of float32 is not, and is used only
where another step takes its error out. The interpreter and the compiler have the same formulas, and round differently.
"""

from __future__ import annotations

import math
from typing import Any

import triton
import triton.language as tl

INFINITY = tl.constexpr(math.inf)
LN4 = tl.constexpr(math.log(4.0))


@triton.jit
def log1p(a):
    """ln(1 + a): what is lost in the sum u = 1 + a is lost in u - 1 as well, and ln(u)/(u - 1) hardly varies."""
    u = 1.0 + a
    correction = tl.where(a < 1e15, a / tl.where(u == 1.0, 1.0, u - 1.0), 1.0)
    return tl.where(u == 1.0, a, tl.log(u) * correction)


@triton.jit
def hypot1(a):
    """√(1 + a²), which is a itself long before a² overflows."""
    b = tl.minimum(a, 1e15)
    return tl.where(a < 1e15, tl.sqrt(1.0 + b * b), a)


@triton.jit
def half_angle(a):
    """tan(x/2) for a = tan(x), and tanh(x/2) for a = sinh(x)."""
    return a / (1.0 + hypot1(a))


@triton.jit
def identity(a):
    """a."""
    return a


@triton.jit
def arsinh(a):
    """arsinh(a)."""
    # ln(1 + t) with t = a + √(1 + a²) - 1 = a + a half_angle(a); at the top, where t would overflow, ln(a/2) + ln 4
    near = a < 1e30
    b = tl.where(near, a, 0.0)
    u = log1p(tl.where(near, b + b * half_angle(b), 0.5 * a))
    return tl.where(near, u, u + LN4)


@triton.jit
def over_one_plus(a):
    """a / (1 + a)."""
    return a / (1.0 + a)


@triton.jit
def over_hypot1(a):
    """a / √(1 + a²)."""
    return a / hypot1(a)


@triton.jit
def tanh(a):
    """tanh(a)."""
    # with x = -2a and u = e^x, e^x - 1 = (u - 1) x / ln(u), whatever the error of u
    x = -2.0 * tl.minimum(a, 20.0)
    u = tl.exp(x)
    difference = tl.where(u == 1.0, x, (u - 1.0) * (x / tl.where(u == 1.0, 1.0, tl.log(u))))
    return -difference / (2.0 + difference)


@triton.jit
def arctan(a):
    """arctan(a)."""
    # three halvings, to below 0.2, and the Taylor series
    t = tl.where(a == INFINITY, 1.0, half_angle(a))
    t = half_angle(half_angle(t))
    square = t * t
    series = tl.zeros_like(a)
    for k in tl.static_range(12):
        series = 1.0 / (23 - 2 * k) - square * series
    return tl.where(a < 1e-8, a, 8.0 * (t * series))


@triton.jit
def sqrt_lambert(a):
    """√W(a²) = a ρ, by the iteration of `npgm.kernels.exponential`, where it is explained."""
    b = tl.maximum(a, 1.0)
    logarithm = 2.0 * tl.log(hypot1(b))
    guess = tl.sqrt(logarithm * (1.0 - log1p(logarithm) / (2.0 + logarithm))) / b
    rho = tl.where(a < 1.0, 1.0 / hypot1(a), guess)
    for _ in tl.static_range(4):
        u = a * rho
        rho = rho * tl.sqrt((1.0 - 2.0 * tl.log(rho)) / (1.0 + u * u))
    return a * rho


@triton.jit
def square_root_of_mixture(a):
    """The root u of u + u² = a."""
    return a / (0.5 + tl.sqrt(0.25 + a))


@triton.jit
def cube_root_of_mixture(a):
    """The root u of u + u³ = a: Newton's method, downhill from the lesser of a and ∛a; or the series at large a."""
    b = tl.where(a < INFINITY, tl.maximum(a, 1.0), 1.0)
    root = tl.exp(tl.log(b) / 3.0)
    root = (2.0 * root + b / (root * root)) / 3.0
    near = a < 1e9
    c = tl.where(near, a, 1.0)
    u = tl.minimum(c, root)
    for _ in tl.static_range(6):
        square = u * u
        u = u - (u * square + (u - c)) / (1.0 + 3.0 * square)
    far = tl.where(a == INFINITY, a, root - 1.0 / (3.0 * root))
    return tl.where(near, u, far)


PRECONDITIONERS: dict[str, Any] = {
    "artanh": tanh,
    "cosh": arsinh,
    "exp": log1p,
    "expsq": sqrt_lambert,
    "lncos": arctan,
    "log": over_one_plus,
    "logx2": half_angle,
    "mix3": square_root_of_mixture,
    "mix4": cube_root_of_mixture,
    "quad": identity,
    "sqrt": over_hypot1,
}
"""By the key of the kernel."""

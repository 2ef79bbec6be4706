"""The mathematics once more, in any precision: h, h', h* and the preconditioner u = h*' of each kernel, for x, y > 0."""

from __future__ import annotations

import mpmath as mp


def quartic(y):
    return 2 / mp.sqrt(3) * mp.sinh(mp.asinh(3 * mp.sqrt(3) * y / 2) / 3)


DEFINITIONS = {
    "cosh": (lambda x: mp.cosh(x) - 1, mp.sinh, lambda y: y * mp.asinh(y) - mp.sqrt(1 + y * y) + 1, mp.asinh),
    "exp": (lambda x: mp.exp(x) - x - 1, mp.expm1, lambda y: (1 + y) * mp.log(1 + y) - y, mp.log1p),
    "expsq": (
        lambda x: mp.exp(x * x / 2) - 1,
        lambda x: x * mp.exp(x * x / 2),
        lambda y: y * mp.sqrt(mp.lambertw(y * y)) - mp.exp(mp.lambertw(y * y) / 2) + 1,
        lambda y: mp.sqrt(mp.lambertw(y * y)),
    ),
    "log": (
        lambda x: -x - mp.log(1 - x),
        lambda x: x / (1 - x),
        lambda y: y - mp.log(1 + y),
        lambda y: y / (1 + y),
    ),
    "sqrt": (
        lambda x: 1 - mp.sqrt(1 - x * x),
        lambda x: x / mp.sqrt(1 - x * x),
        lambda y: mp.sqrt(1 + y * y) - 1,
        lambda y: y / mp.sqrt(1 + y * y),
    ),
    "artanh": (
        lambda x: x * mp.atanh(x) + mp.log(1 - x * x) / 2,
        mp.atanh,
        lambda y: y - mp.log(2) + mp.log(1 + mp.exp(-2 * y)),
        mp.tanh,
    ),
    "logx2": (
        lambda x: -mp.log(1 - x * x),
        lambda x: 2 * x / (1 - x * x),
        lambda y: mp.sqrt(1 + y * y) - 1 - mp.log((1 + mp.sqrt(1 + y * y)) / 2),
        lambda y: y / (1 + mp.sqrt(1 + y * y)),
    ),
    "lncos": (
        lambda x: -mp.log(mp.cos(x)),
        mp.tan,
        lambda y: y * mp.atan(y) - mp.log(1 + y * y) / 2,
        mp.atan,
    ),
    "quad": (lambda x: x * x / 2, lambda x: x, lambda y: y * y / 2, lambda y: y),
    "pow": (
        lambda x: x**4 / 4,
        lambda x: x**3,
        lambda y: y ** (mp.mpf(4) / 3) * 3 / 4,
        lambda y: y ** (mp.mpf(1) / 3),
    ),
    "huber": (
        lambda x: x * x / 2,
        lambda x: x,
        lambda y: y * y / 2 if y <= 1 else y - mp.mpf(1) / 2,
        lambda y: min(y, mp.mpf(1)),
    ),
    "root": (  # κ = 4
        lambda x: x**2 / 2 * mp.hyp2f1(0.25, 0.5, 1.5, x**4),
        lambda x: x / mp.root(1 - x**4, 4),
        lambda y: y**2 / 2 * mp.hyp2f1(0.25, 0.5, 1.5, -(y**4)),
        lambda y: y / mp.root(1 + y**4, 4),
    ),
    "mix3": (
        lambda x: x * x / 2 + x**3 / 3,
        lambda x: x + x * x,
        lambda y: (lambda u: u * u / 2 + 2 * u**3 / 3)(2 * y / (1 + mp.sqrt(1 + 4 * y))),
        lambda y: 2 * y / (1 + mp.sqrt(1 + 4 * y)),
    ),
    "mix4": (
        lambda x: x * x / 2 + x**4 / 4,
        lambda x: x + x**3,
        lambda y: (lambda u: u * u / 2 + 3 * u**4 / 4)(quartic(y)),
        lambda y: quartic(y),
    ),
}


def preconditioner(kernel):
    """The last of them, for the parameters of a kernel."""
    if kernel.key == "pow":
        return lambda y: y ** (1 / (mp.mpf(kernel.p) - 1))
    if kernel.key == "root":
        return lambda y: y / (1 + y ** mp.mpf(kernel.kappa)) ** (1 / mp.mpf(kernel.kappa))
    if kernel.key == "huber":
        return lambda y: min(y, mp.mpf(kernel.radius))
    return DEFINITIONS[kernel.key][3]

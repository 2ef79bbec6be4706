"""Roots of increasing functions, over all entries of an array at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from npgm._common.array import Array, Namespace, holds_somewhere

_EVALUATIONS = 100
"""More than a jump over zero takes, where every step is a bisection."""


def positive_root(xp: Namespace, rising: Callable[[Array], Array], guess: Array) -> Array:
    """Return where a nondecreasing function of a positive number becomes positive, to the last digits.

    Strides that double lead from the guess to a bracket, and Chandrupatla's method (1997) to the root in it: inverse
    quadratic interpolation of the logarithm where that is safe, else bisection. It needs no derivative, and finds a
    jump over zero, as the derivative of a kink has, like a root.

    Args:
        xp: the namespace.
        rising: of an array of the shape and dtype of ``guess``, entry by entry. NaN counts as +∞.
        guess: where to begin.

    Returns:
        the smallest normal number where it is positive everywhere, the largest where nowhere.
    """
    limits = xp.finfo(guess.dtype)
    eps, least, most = float(limits.eps), float(limits.smallest_normal), float(limits.max)
    half = xp.full_like(guess, 0.5)
    stride = 2.0

    def value(x: Array) -> Array:
        f = rising(x)
        return xp.where(xp.isnan(f), xp.full_like(f, math.inf), f)

    with np.errstate(all="ignore"):  # far away from the root
        # a is the last point, b the last on the other side of the root, c the one that one of them has replaced
        a = xp.clip(xp.where(xp.isnan(guess), xp.ones_like(guess), guess), least, most)
        fa = value(a)
        b = xp.where(fa <= 0, xp.full_like(a, most), xp.full_like(a, least))
        c, fb = b, xp.where(fa <= 0, xp.full_like(a, math.inf), xp.full_like(a, -math.inf))
        fc = fb
        for _ in range(_EVALUATIONS):
            width, replaced = _log_ratio(xp, b, a), _log_ratio(xp, c, a)
            least_share = 2.0 * eps / xp.abs(width)
            done = ~(least_share < 0.5)
            if not holds_somewhere(xp, ~done):
                break
            across, along = (fa - fb) / (fc - fb), width / (width - replaced)
            safe = (across**2 < along) & ((1.0 - across) ** 2 < 1.0 - along)
            share = (fa / (fb - fa)) * (fc / (fb - fc)) + (replaced / width) * (fa / (fc - fa)) * (fb / (fc - fb))
            share = xp.clip(xp.where(safe, share, half), least_share, 1.0 - least_share)
            bracketed = (b > least) & (b < most)
            move = xp.where(bracketed, share * width, stride * xp.sign(width))
            x = xp.where(done, a, xp.clip(a * xp.exp(move), least, most))
            stride = min(2.0 * stride, 512.0)
            fx = value(x)
            stays = (fx <= 0) == (fa <= 0)
            c, fc = xp.where(stays, a, b), xp.where(stays, fa, fb)
            b, fb = xp.where(stays, b, a), xp.where(stays, fb, fa)
            a, fa = x, fx
    return xp.where(fa > 0, a, b)


def _log_ratio(xp: Namespace, x: Array, y: Array) -> Array:
    """Return ln(x/y) for positive numbers, with all digits where they are close."""
    difference = (x - y) / y
    return xp.where(xp.abs(difference) < 0.5, xp.log1p(difference), xp.log(x / y))

"""Roots of increasing functions, over all entries of an array at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import numpy as np

from npgm._common.array import Array, Namespace, State, is_traced, repeat

_EVALUATIONS = 100
"""More than a jump over zero takes, where every step is a bisection."""

Function: TypeAlias = Callable[[Array], Array]


def positive_root(xp: Namespace, rising: Function, guess: Array) -> Array:
    """Return where a nondecreasing function of a positive number becomes positive, to the last digits.

    Strides that double lead from the guess to a bracket, and Chandrupatla's method (1997) to the root in it: inverse
    quadratic interpolation of the logarithm where that is safe, else bisection. It needs no derivative, and finds a
    jump over zero, as the derivative of a kink has, like a root. JAX differentiates it as the implicit function that
    it is.

    Args:
        xp: the namespace.
        rising: of an array of the shape and dtype of ``guess``, entry by entry. NaN counts as +∞.
        guess: where to begin.

    Returns:
        the smallest normal number where it is positive everywhere, the largest where nowhere.
    """
    with np.errstate(all="ignore"):  # far away from the root
        if is_traced(guess) or is_traced(rising(guess)):
            return _implicit_root(xp, rising, guess)
        return _search(xp, rising, guess)


def _implicit_root(xp: Namespace, rising: Function, guess: Array) -> Array:
    import jax  # present, since the guess is one of its arrays

    def quotient(slope: Function, change: Array) -> Array:
        s = slope(xp.ones_like(change))
        moves = (s != 0) & xp.isfinite(s)  # a root at an end of the numbers stays there
        return xp.where(moves, change / xp.where(moves, s, xp.ones_like(s)), xp.zeros_like(s))

    lax = cast(Any, jax.lax)
    return lax.custom_root(rising, guess, lambda f, start: _search(xp, f, start), quotient)


def _search(xp: Namespace, rising: Function, guess: Array) -> Array:
    limits = xp.finfo(guess.dtype)
    eps, least, most = float(limits.eps), float(limits.smallest_normal), float(limits.max)

    def value(x: Array) -> Array:
        f = rising(x)
        return xp.where(xp.isnan(f), xp.full_like(f, math.inf), f)

    def least_share(width: Array) -> Array:
        return 2.0 * eps / xp.abs(width)

    def unfinished(state: State) -> Array:
        a, _, b, *_ = state
        return least_share(_log_ratio(xp, b, a)) < 0.5

    def closer(state: State) -> State:
        a, fa, b, fb, c, fc, stride = state
        width, replaced = _log_ratio(xp, b, a), _log_ratio(xp, c, a)
        across, along = (fa - fb) / (fc - fb), width / (width - replaced)
        safe = (across**2 < along) & ((1.0 - across) ** 2 < 1.0 - along)
        share = (fa / (fb - fa)) * (fc / (fb - fc)) + (replaced / width) * (fa / (fc - fa)) * (fb / (fc - fb))
        share = xp.where(safe, share, xp.full_like(share, 0.5))
        share = xp.clip(share, least_share(width), 1.0 - least_share(width))
        bracketed = (b > least) & (b < most)
        move = xp.where(bracketed, share * width, stride * xp.sign(width))
        going = unfinished(state)
        x = xp.where(going, xp.clip(a * xp.exp(move), least, most), a)
        fx = value(x)
        # XLA may compute fx twice and round it to either side of zero: on which side a is, its place says, not fa
        stays = ((fx <= 0) == (a < b)) | ~going
        c, fc = xp.where(stays, a, b), xp.where(stays, fa, fb)
        b, fb = xp.where(stays, b, a), xp.where(stays, fb, fa)
        return x, fx, b, fb, c, fc, xp.clip(2.0 * stride, None, 512.0)

    # a is the last point, b the last on the other side of the root, c the one that one of them has replaced
    a = xp.clip(xp.where(xp.isnan(guess), xp.ones_like(guess), guess), least, most)
    fa = value(a)
    b = xp.where(fa <= 0, xp.full_like(a, most), xp.full_like(a, least))
    fb = xp.where(fa <= 0, xp.full_like(a, math.inf), xp.full_like(a, -math.inf))
    a, _, b, *_ = repeat(xp, unfinished, closer, (a, fa, b, fb, b, fb, xp.full_like(a, 2.0)), _EVALUATIONS)
    return xp.maximum(a, b)


def _log_ratio(xp: Namespace, x: Array, y: Array) -> Array:
    """Return ln(x/y) for positive numbers, with all digits where they are close."""
    difference = (x - y) / y
    return xp.where(xp.abs(difference) < 0.5, xp.log1p(difference), xp.log(x / y))

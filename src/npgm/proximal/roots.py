"""Roots of increasing functions by bisection, over all entries of an array at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npgm._array import Array, Namespace

_HALVINGS_OF_THE_EXPONENT = 20


def positive_root(xp: Namespace, rising: Callable[[Array], Array], like: Array) -> Array:
    """Return where a nondecreasing function of a positive number becomes positive, to the last digits.

    Bisection needs no derivative, and a jump over zero, as the derivative of a kink has, is found like a root.

    Args:
        xp: the namespace.
        rising: of an array of the shape and dtype of ``like``, entry by entry. NaN counts as +∞.
        like: tells shape and dtype.

    Returns:
        the smallest normal number where it is positive everywhere, the largest where nowhere.
    """
    limits = xp.finfo(like.dtype)
    low, high = xp.full_like(like, float(limits.smallest_normal)), xp.full_like(like, float(limits.max))
    digits = 2 - round(float(xp.log2(xp.asarray(float(limits.eps), dtype=xp.float64))))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # far away from the root
        for i in range(_HALVINGS_OF_THE_EXPONENT + digits):
            middle = xp.sqrt(low) * xp.sqrt(high) if i < _HALVINGS_OF_THE_EXPONENT else low + 0.5 * (high - low)
            below = rising(middle) <= 0
            low, high = xp.where(below, middle, low), xp.where(below, high, middle)
    return high

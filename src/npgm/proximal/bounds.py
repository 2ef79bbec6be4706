"""SciPy's bounds as a box."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import Bounds

from npgm._common.array import to_numpy
from npgm.proximal.entries import Box


def as_box(bounds: Any, shape: int | tuple[int, ...]) -> Box:
    """Return the `Box` of what `scipy.optimize.minimize` accepts as ``bounds``.

    Args:
        bounds: a `scipy.optimize.Bounds`; or a pair (lower, upper) for each entry, row by row, as a sequence or an
            array of shape (n, 2), where None and an infinity are no bound; or a `Box`.
        shape: the shape of a point, or the number of its entries.

    Raises:
        TypeError, ValueError: if there are not as many bounds as entries, one is NaN, or a lower one is above its upper
            one.

    Example:
        >>> import npgm
        >>> npgm.proximal.as_box([(0.0, None), (-1.0, 1.0)], 2)
        Box(lower=array([ 0., -1.]), upper=array([inf,  1.]))
    """
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if isinstance(bounds, Box):
        lower, upper = bounds.lower, bounds.upper
    elif isinstance(bounds, Bounds):
        lower, upper = bounds.lb, bounds.ub
    else:
        lower, upper = (column.reshape(shape) for column in _columns(bounds, math.prod(shape)))
    try:
        np.broadcast_to(lower, shape), np.broadcast_to(upper, shape)
    except ValueError:
        shapes = f"{np.shape(lower)} and {np.shape(upper)}"
        raise ValueError(f"bounds have the shapes {shapes}, but x0 has the shape {shape}") from None
    return bounds if isinstance(bounds, Box) else Box(lower, upper)


def _columns(bounds: Any, count: int) -> Any:
    """Return the lower and the upper bounds of a sequence of pairs."""
    try:
        pairs = list(to_numpy(bounds) if hasattr(bounds, "dtype") else bounds)
        if any(len(pair) != 2 for pair in pairs):
            raise TypeError
    except TypeError:
        raise TypeError(
            f"bounds must be a scipy.optimize.Bounds, or a pair (lower, upper) for each entry, not {bounds!r}"
        ) from None
    if len(pairs) != count:
        raise ValueError(f"bounds has {len(pairs)} pairs, but x0 has {count} entries")
    missing = (-math.inf, math.inf)
    return np.array([[missing[i] if pair[i] is None else pair[i] for pair in pairs] for i in (0, 1)])

"""What rounding can do to the values of a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from npgm._common import validate
from npgm._common.array import Floats

_ULPS = 64.0
_DIP = 1e-9


def resolution(values: Any, minimum: float, *, eps: float = 2.0**-52, given: float | None = None) -> float:
    """Return ρ, the size of the error with which f - ``minimum`` is known along a run.

    An error is as large as the terms that f is the sum of, times eps, however small f itself becomes. f - inf f, which
    tends to zero, does not show it. Unless it is given, ρ is 64 eps times the largest |f| of the run, or |minimum|: the
    terms of ½‖Ax-b‖² are no larger than f, and those of x·x - 2c·x + c·c about as large as f at a start as far from the
    minimiser as that is from 0. Values below ``minimum`` by less than 1e-9 of that size show that ρ is larger: it is
    then eight times their distance below.

    Args:
        values: f along the run.
        minimum: inf f or a lower bound of it.
        eps: the machine epsilon of the dtype in which f was computed.
        given: ρ, if known: the size of the terms of f times eps.

    Raises:
        ValueError: if f is not finite, or falls below ``minimum`` by more.
    """
    f = np.asarray(values, dtype=np.float64)
    minimum = validate.finite("minimum", minimum)
    if not np.isfinite(f).all():
        k = int(np.argmin(np.isfinite(f).reshape(len(f), -1).all(axis=1)))
        raise ValueError(f"f must be finite along the run, but is not at iteration {k}")
    largest = max(float(np.max(np.abs(f), initial=0.0)), abs(minimum))
    rho = _ULPS * eps * largest if given is None else validate.nonnegative("resolution", given)
    below = float(np.max(minimum - f, initial=0.0))
    if below <= rho:
        return rho
    if given is not None or not below <= _DIP * largest:
        k = int(np.argmin(np.min(f, axis=tuple(range(1, f.ndim)))))
        raise ValueError(
            f"minimum = {minimum!r} is above f at iteration {k} of the run, by {below:.3g}; if f is a small difference "
            f"of large terms, pass their size times the machine epsilon as resolution"
        )
    return 8.0 * below


def gap(values: Floats, minimum: float) -> Floats:
    """Return f - ``minimum``, which is not negative but for rounding."""
    return np.maximum(values - minimum, 0.0)

"""Numbers that a function takes for all entries of a point, or one for each entry."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from npgm._common.array import Array, Axis, Floats, Namespace, axes_last, from_host, to_numpy

Values: TypeAlias = float | Floats
"""One number, or a read-only array of float64 that broadcasts against a point."""


class Comparable:
    """A dataclass with ``eq=False`` that compares and hashes by its fields, arrays among them by their entries."""

    def _key(self) -> tuple[Any, ...]:
        return (type(self), *(_hashable(getattr(self, each.name)) for each in fields(self) if each.init))  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Comparable) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    return tuple(map(_hashable, value)) if isinstance(value, tuple) else value


def values(accepts: Callable[[Any], Any], what: str) -> Callable[[str, Any], Values]:
    """Return a check of a field that holds `Values`, all of which a predicate of arrays must accept.

    Args:
        accepts: the predicate.
        what: what it accepts, in words.
    """

    def check(name: str, value: Any) -> Values:
        array = to_numpy(value)
        if isinstance(value, bool | str) or array.dtype.kind not in "fiu":
            raise TypeError(f"{name} must be a real number or an array of them, not {value!r}")
        array = array.astype(np.float64) + 0.0  # of the two zeros one is left, as the bytes are compared
        if not (accepted := accepts(array)).all():
            refused = value if isinstance(value, Real) else f"{array[~accepted].flat[0]} in an array"
            raise ValueError(f"{name} must be {what}, not {refused}")
        if array.ndim == 0:
            return float(array)
        array.flags.writeable = False
        return array

    return check


nonnegative = values(lambda v: (v >= 0.0) & (v < math.inf), "nonnegative and finite")


def spread(xp: Namespace, name: str, value: Values, y: Array, axis: Axis) -> Any:
    """Return ``value``, broadcast to the shape of a point, as what broadcasts against ``y``.

    Raises:
        ValueError: if it does not broadcast to the shape of a point.
    """
    if isinstance(value, float):
        return value
    points, count, back = axes_last(xp, y, axis)
    shape = tuple(points.shape[points.ndim - count :])
    try:
        whole = np.broadcast_to(value, shape)
    except ValueError:
        raise ValueError(f"{name} has the shape {value.shape}, but a point the shape {shape}") from None
    return back(from_host(xp, whole.reshape((1,) * (points.ndim - count) + shape), y))

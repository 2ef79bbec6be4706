"""Sums of norms over groups of entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from npgm._common import validate
from npgm._common.array import Array, Axis, Namespace, axes_last, from_host, norm, promote, to_numpy
from npgm.proximal.base import Proximable, as_vectors, per_point
from npgm.proximal.values import Comparable, Values, nonnegative, spread
from npgm.proximal.vectors import shortened, shortened_by_entries
from npgm.references import Reference, Separable

Indices: TypeAlias = np.ndarray[Any, np.dtype[np.intp]]


@dataclass(frozen=True, eq=False)
class GroupL2(Comparable, Proximable):
    """g(z) = Σ τ_b‖z_b‖ over groups of entries, which makes whole groups zero.

    The groups are the rows of a point along one of its axes, or any groups of entries, given by ``groups``.

    Args:
        weight: τ ≥ 0: a number, or an array with one for each group. For groups of unequal size, √size is usual.
        along: the axis of a group, counted from the last: -1 for groups that are the rows of a matrix.
        groups: an array of the shape of a point with the label of each entry's group; the weights are in increasing
            order of the labels. Or a list with the indices of each group, which number the entries row by row. An entry
            in no group is left alone.

    Example:
        >>> import numpy as np, npgm
        >>> g = npgm.proximal.GroupL2([1.0, 2.0], groups=[[0, 1], [3]])
        >>> g.prox(np.array([3.0, 4.0, 0.1, 1.5]), 1.0)
        array([2.4, 3.2, 0.1, 0. ])
    """

    weight: Values = 1.0
    along: int = -1
    groups: Any = None

    def __post_init__(self) -> None:
        validate.fields(self, weight=nonnegative)
        if not isinstance(self.along, int) or self.along >= 0:
            raise ValueError(f"along must be a negative integer, which numbers axes from the last, not {self.along!r}")
        if self.groups is None:
            if np.ndim(self.weight) > 0 and -self.along > np.ndim(self.weight) + 1:
                raise ValueError(f"along={self.along} is beyond the axes of weight plus one")
            return
        if self.along != -1:
            raise ValueError(f"along must not be given with groups, but is {self.along!r}")
        validate.assign(self, groups=_indices(self.groups) if _is_list(self.groups) else _labels(self.groups))
        count = len(self._members)
        if not isinstance(self.weight, float) and self.weight.shape != (count,):
            raise ValueError(f"weight has the shape {self.weight.shape}, but there are {count} groups")

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        xp, z, restore = promote(z)
        if self.groups is None:
            points, count, _ = self._points(xp, z, axis)
            terms = self._weight(xp, points, count) * norm(xp, points, self.along)
            return restore(xp.sum(terms, axis=tuple(range(-count, 0))))
        rows, _ = self._rows(xp, z, axis)
        blocks = self._blocks(xp, rows)
        return restore(sum(xp.sum(weight * norm(xp, block, -1), axis=(-2, -1)) for block, weight in blocks))

    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        return self._each(lambda xp, block, t, weight, along: shortened(xp, block, t * weight, along), y, t, axis)

    def step(self, phi: Reference, y: Array, lr: float | Array, axis: Axis = None) -> Array:
        if not isinstance(phi, Separable):
            return super().step(phi, y, lr, axis)
        return self._each(lambda xp, *block: shortened_by_entries(xp, phi, *block), y, lr, axis)

    def _each(self, shorten: Callable[..., Array], y: Array, t: float | Array, axis: Axis) -> Array:
        """Return ``shorten(xp, block, t, weight, along)`` of all groups."""
        xp, y, restore = promote(y)
        if self.groups is None:
            points, count, back = self._points(xp, y, axis)
            t = per_point(xp, t, y, axis, count)
            return restore(back(shorten(xp, points, t, self._weight(xp, points, count), self.along)))
        rows, back = self._rows(xp, y, axis)
        t = per_point(xp, t, y, axis, 2)
        kept = tuple(rows.shape[:-1])
        parts = [xp.reshape(shorten(xp, block, t, weight, -1), (*kept, -1)) for block, weight in self._blocks(xp, rows)]
        # from where in the parts, and after them in the point itself, each entry comes
        order = np.concatenate([indices.ravel() for indices, _ in self._by_size])
        source = np.arange(rows.shape[-1]) + order.size
        source[order] = np.arange(order.size)
        return restore(back(xp.take(xp.concat([*parts, rows], axis=-1), from_host(xp, source, rows), axis=-1)))

    def _points(self, xp: Namespace, y: Array, axis: Axis) -> tuple[Array, int, Callable[[Array], Array]]:
        points, count, back = axes_last(xp, y, axis)
        if -self.along > count:
            raise ValueError(f"along={self.along} is beyond the {count} axes of a point")
        return points, count, back

    def _weight(self, xp: Namespace, points: Array, count: int) -> float | Array:
        """Return the weights of the groups along an axis, which is kept."""
        if isinstance(self.weight, float):
            return self.weight
        one_each = norm(xp, points, self.along)
        return spread(xp, "weight", np.expand_dims(self.weight, self.along), one_each, tuple(range(-count, 0)))

    def _rows(self, xp: Namespace, y: Array, axis: Axis) -> tuple[Array, Callable[[Array], Array]]:
        rows, back = as_vectors(xp, y, axis)
        if isinstance(self.groups, tuple):
            most = max(int(member.max()) for member in self.groups)
            fits, needed = rows.shape[-1] > most, f"more than {most}"
        else:
            fits, needed = rows.shape[-1] == self.groups.size, str(self.groups.size)
        if not fits:
            raise ValueError(f"groups needs points of {needed} entries, not {rows.shape[-1]}")
        return rows, back

    def _blocks(self, xp: Namespace, rows: Array) -> Iterator[tuple[Array, float | Array]]:
        """Yield the groups of each size, as blocks of shape (..., groups, size), and their weights."""
        for indices, weight in self._by_size:
            block = xp.take(rows, from_host(xp, indices.ravel(), rows), axis=-1)
            block = xp.reshape(block, (*rows.shape[:-1], *indices.shape))
            yield block, weight if isinstance(weight, float) else from_host(xp, weight, rows)

    @cached_property
    def _members(self) -> tuple[Indices, ...]:
        if isinstance(self.groups, tuple):
            return self.groups
        order = np.argsort(self.groups, axis=None, kind="stable")
        return tuple(np.split(order, np.flatnonzero(np.diff(self.groups.ravel()[order])) + 1))

    @cached_property
    def _by_size(self) -> list[tuple[Indices, Values]]:
        """The indices of the groups of each size, of shape (groups, size), and their weights, of shape (groups, 1)."""
        sizes = np.array([member.size for member in self._members])
        return [
            (
                np.stack([self._members[i] for i in np.flatnonzero(sizes == size)]),
                self.weight if isinstance(self.weight, float) else self.weight[sizes == size, None],
            )
            for size in np.unique(sizes)
        ]


def _is_list(groups: Any) -> bool:
    return isinstance(groups, list | tuple) and all(np.ndim(each) == 1 for each in groups)


def _labels(groups: Any) -> Indices:
    labels = _integers(groups)
    if labels.size == 0:
        raise ValueError("groups must have a label for each entry, but is empty")
    return labels


def _indices(groups: Sequence[Any]) -> tuple[Indices, ...]:
    if not groups or any(np.size(group) == 0 for group in groups):
        raise ValueError(f"groups must be a list of index arrays that are not empty, not {groups!r}")
    members = tuple(map(_integers, groups))
    indices, counts = np.unique(np.concatenate(members), return_counts=True)
    if indices[0] < 0:
        raise ValueError(f"groups must have indices from 0 on, not {indices[0]}")
    if (counts > 1).any():
        raise ValueError(f"groups must not overlap, but the entry {indices[counts > 1][0]} is in more than one")
    return members


def _integers(value: Any) -> Indices:
    array = to_numpy(value)
    if array.dtype.kind not in "iu":
        raise TypeError(f"groups must be an array of integer labels or a list of index arrays, not {value!r}")
    array = array.astype(np.intp)
    array.flags.writeable = False
    return array

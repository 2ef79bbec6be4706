"""A reference function of several arrays that are given as one vector."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from npgm import kernels
from npgm._common import validate
from npgm._common.array import Array, Axis, Namespace, as_real_array, axes_last
from npgm.references.base import Reference


@dataclass(frozen=True)
class Blocks(Reference):
    """φ(x) = Σ_b φ_b(x_b), for a vector x of several arrays of given shapes, one after the other, each row by row.

    A factorisation U Vᵀ with U of shape (m, r) and V of shape (n, r), over the array [U; V] of shape (m + n, r), has
    two matrices as its variables:

    >>> import npgm
    >>> phi = npgm.Blocks(npgm.Spectral(npgm.Cosh(), scale=100.0), shapes=[(943, 10), (1682, 10)])
    >>> phi.name
    'spectral-cosh in 2 blocks'

    Args:
        reference: φ of each block.
        shapes: the shapes of the blocks. ``axis`` then names axes of as many entries as all of them have.

    Raises:
        TypeError, ValueError: if an argument is not accepted; in a call, if the vector has another size.
    """

    kernel: kernels.Kernel = field(init=False, repr=False)
    scale: float = field(init=False, repr=False)
    reference: Reference
    shapes: Sequence[tuple[int, ...]]

    lift = "blocks"

    def __post_init__(self) -> None:
        if not isinstance(self.reference, Reference):
            raise TypeError(f"reference must be a reference function, not {self.reference!r}")
        if isinstance(self.shapes, str) or not isinstance(self.shapes, Sequence) or not self.shapes:
            raise TypeError(f"shapes must be a list of at least one shape, not {self.shapes!r}")
        shapes = tuple(tuple(validate.count("a length in shapes", n) for n in shape) for shape in self.shapes)
        validate.assign(self, shapes=shapes, kernel=self.reference.kernel, scale=self.reference.scale)

    @property
    def name(self) -> str:
        return f"{self.reference.name} in {len(self.shapes)} block{'s' * (len(self.shapes) > 1)}"

    def with_scale(self, scale: float) -> Blocks:
        return Blocks(self.reference.with_scale(scale), self.shapes)

    @property
    def size(self) -> int:
        """The number of entries of all blocks."""
        return sum(map(math.prod, self.shapes))

    def __call__(self, x: Array, axis: Axis = None) -> Array:
        return self._sum(self.reference, x, axis)

    def gradient(self, x: Array, axis: Axis = None) -> Array:
        return self._map(self.reference.gradient, x, axis)

    def conjugate(self, y: Array, axis: Axis = None) -> Array:
        return self._sum(self.reference.conjugate, y, axis)

    def precondition(self, y: Array, axis: Axis = None) -> Array:
        return self._map(self.reference.precondition, y, axis)

    def conjugate_hessian(self, y: Array, axis: Axis = None, *, root: bool = False) -> Callable[[Array], Array]:
        xp, y = as_real_array(y)
        blocks, _ = self._split(xp, y, axis)
        products = [self.reference.conjugate_hessian(b, _last(s), root=root) for b, s in self._shaped(blocks)]

        def product(v: Array) -> Array:
            parts, join = self._split(xp, v, axis)
            return join([p(part) for p, part in zip(products, parts, strict=True)])

        return product

    def stationarity(self, y: Array, axis: Axis = None) -> Array:
        return self._sum(self.reference.stationarity, y, axis)

    def euclidean_radius(self, shape: tuple[int, ...]) -> float:
        self.flattened(shape)  # refuses another size
        return math.hypot(*(self.reference.euclidean_radius(block) for block in self.shapes))

    def flattened(self, shape: tuple[int, ...]) -> Reference:
        if math.prod(shape) != self.size:
            raise ValueError(f"{self!r} has {self.size} entries, but the variables have the shape {shape}")
        return self

    def _sum(self, function: Callable[[Array, Axis], Array], x: Array, axis: Axis) -> Array:
        xp, x = as_real_array(x)
        total, *others = [function(b, _last(s)) for b, s in self._shaped(self._split(xp, x, axis)[0])]
        for value in others:
            total = total + value
        return total

    def _map(self, function: Callable[[Array, Axis], Array], x: Array, axis: Axis) -> Array:
        xp, x = as_real_array(x)
        blocks, join = self._split(xp, x, axis)
        return join([function(b, _last(s)) for b, s in self._shaped(blocks)])

    def _shaped(self, blocks: list[Array]) -> list[tuple[Array, tuple[int, ...]]]:
        return list(zip(blocks, self.shapes, strict=True))

    def _split(self, xp: Namespace, x: Array, axis: Axis) -> tuple[list[Array], Callable[[list[Array]], Array]]:
        """Return the blocks of x, their axes last, and the way back."""
        moved, count, back = axes_last(xp, x, axis)
        kept = tuple(moved.shape[: moved.ndim - count])
        if math.prod(moved.shape[moved.ndim - count :]) != self.size:
            raise ValueError(f"{self!r} has {self.size} entries, but the vector has the shape {tuple(x.shape)}")
        flat = xp.reshape(moved, (*kept, self.size))
        ends = list(itertools.accumulate(math.prod(shape) for shape in self.shapes))
        blocks = [
            xp.reshape(flat[..., end - math.prod(shape) : end], (*kept, *shape))
            for end, shape in zip(ends, self.shapes, strict=True)
        ]

        def join(parts: list[Array]) -> Array:
            rows = [xp.reshape(part, (*kept, -1)) for part in parts if 0 not in part.shape]
            return back(xp.reshape(xp.concat(rows, axis=-1), moved.shape)) if rows else x

        return blocks, join


def _last(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(range(-len(shape), 0))

"""A function of each row of a matrix."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.lib.array_utils import normalize_axis_tuple

from npgm._common import validate
from npgm._common.array import Array, Axis, as_real_array
from npgm.proximal.base import Proximable
from npgm.references import Isotropic, Reference


@dataclass(frozen=True)
class Rows(Proximable):
    """g(Z) = Σ g₁(zᵢ) over the rows zᵢ of a point, with the same g₁ for each row, such as a ball or a sphere.

    A row consists of all entries with one index along one axis, so a point may have two or more axes. The first axis
    numbers the outputs of a layer in PyTorch, the last one in flax and Keras.

    Args:
        function: g₁.
        index: the axis of a point that numbers its rows.

    Example:
        >>> import numpy as np, npgm
        >>> g = npgm.proximal.Rows(npgm.proximal.Ball(1.0))
        >>> g.prox(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0)
        array([[0.6, 0.8],
               [0.3, 0.4]])
    """

    function: Proximable
    index: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.function, Proximable):
            raise TypeError(f"function must be a function of npgm.proximal, not {self.function!r}")
        if not isinstance(self.index, int):
            raise TypeError(f"index must be an integer, not {self.index!r}")
        validate.assign(self, separable=self.function.separable, indicator=self.function.indicator)

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        xp, z = as_real_array(z)
        axes, row = self._axes(z, axis)
        kept = [i for i in range(z.ndim) if i not in axes]
        (numbering,) = set(axes) - set(row)
        return xp.sum(self.function(z, row), axis=sum(i < numbering for i in kept))

    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        return self.function.prox(y, t, self._axes(y, axis)[1])

    def step(self, phi: Reference, y: Array, lr: float | Array, axis: Axis = None) -> Array:
        if isinstance(phi, Isotropic):  # which sees all rows as one vector
            return super().step(phi, y, lr, axis)
        return self.function.step(phi, y, lr, self._axes(y, axis)[1])

    def minimises(self, phi: Reference) -> bool:
        return isinstance(phi, Isotropic) or self.function.minimises(phi)

    def _axes(self, y: Array, axis: Axis) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the axes of a point, and those of a row."""
        axes = tuple(range(y.ndim)) if axis is None else normalize_axis_tuple(axis, y.ndim)
        if len(axes) < 2 or not -len(axes) <= self.index < len(axes):
            raise ValueError(f"{self!r} needs points with two axes or more, one of them {self.index}, not {len(axes)}")
        return axes, tuple(a for i, a in enumerate(axes) if i != self.index % len(axes))

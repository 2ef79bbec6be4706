"""What the methods have in common that minimise f + g."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import ClassVar

from npgm._common import validate
from npgm._common.array import Array, Namespace
from npgm.proximal import Proximable
from npgm.solvers.method import Method


@dataclass(frozen=True, kw_only=True)
class CompositeMethod(Method):
    """A method for f + g, with g one of `npgm.proximal`.

    Its state has ``g``, the values of g at the present points; ``decrease``, what the last step takes at least off a
    bound of f + g, over γ, were it without momentum, both of shape (runs, 1); and ``subgradient``, one of g at
    the present points, of shape (runs, n).
    """

    smooth: ClassVar[bool] = False

    prox: Proximable
    shape: tuple[int, ...] = field(default=(), init=False, repr=False, compare=False)
    """That of the user's points."""

    def __post_init__(self) -> None:
        if not isinstance(self.prox, Proximable):
            raise TypeError(
                f"prox must be a function of npgm.proximal such as npgm.proximal.L1(0.1), not {self.prox!r}"
            )

    def flattened(self, shape: tuple[int, ...]) -> CompositeMethod:
        method = copy.copy(self)
        validate.assign(method, shape=shape)
        return method

    def value_at_start(self, xp: Namespace, x: Array) -> Array:
        """Return g at the start of each run, of shape (runs, 1).

        Raises:
            ValueError: if it is not finite, unless JAX traces.
        """
        g = self.value(xp, x)
        try:
            finite = bool(xp.all(xp.isfinite(g)))
        except TypeError:  # of which JAX's error of a tracer that is asked for its value is one
            finite = True
        if not finite:
            raise ValueError(f"{self.prox!r} is not finite at x0; start for example at prox.prox(x0, 1.0)")
        return g

    def value(self, xp: Namespace, x: Array) -> Array:
        """Return g of each run, of shape (runs, 1)."""
        return xp.reshape(self.prox(self.points(xp, x), self.axes), (-1, 1))

    def points(self, xp: Namespace, x: Array) -> Array:
        """Return rows in the shape of the user's points."""
        return xp.reshape(x, (x.shape[0], *self.shape))

    def rows(self, xp: Namespace, points: Array, like: Array) -> Array:
        """Return the result of a proximal step as rows.

        Raises:
            ValueError: if it has not the shape of ``like``, the points from which the step was made.
        """
        if points.shape != like.shape:
            shape, wanted = tuple(points.shape[1:]), tuple(like.shape[1:])
            raise ValueError(f"a step of {self.prox!r} has shape {shape}, but x0 has shape {wanted}")
        return xp.reshape(points, (points.shape[0], -1))

    def each(self, xp: Namespace, numbers: Array) -> Array:
        """Return one number for each run, of shape (runs, 1), as what is broadcast against points."""
        return xp.reshape(numbers, (-1, *(1 for _ in self.shape)))

    @property
    def axes(self) -> tuple[int, ...]:
        """Those of one point."""
        return tuple(range(1, len(self.shape) + 1))

"""Where all runs of a call of `minimize` are, and the way to the next points."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from npgm._array import Array, Bools, Floats, full_precision, norm, to_host
from npgm.solvers.method import Method
from npgm.solvers.objective import Objective


class Iterate(Protocol):
    """The present points of all runs, with values and gradients there."""

    @property
    def x(self) -> Array:
        """The points, of shape (runs, n)."""

    @property
    def grad(self) -> Array:
        """The gradients, of the same shape."""

    @property
    def f(self) -> Floats:
        """The values, of shape (runs,)."""

    @property
    def grad_norm(self) -> Floats:
        """The norms of the gradients, of shape (runs,)."""

    @property
    def least(self) -> float:
        """The smallest of the norms; NaN if one of them or of the values is not finite."""

    def advance(self, running: Bools | None) -> Bools | None:
        """Take a step in the runs where ``running`` holds, None for all, and evaluate the objective at all points.

        Returns:
            where a value or a gradient was not finite, None if nowhere; there, the step is taken back.
        """


def not_finite(iterate: Iterate) -> Bools:
    """Return the runs whose value or gradient norm is not finite."""
    return ~(np.isfinite(iterate.f) & np.isfinite(iterate.grad_norm))


class ArrayIterate:
    """An iterate on any array library, which steps as the method itself says."""

    x: Array
    grad: Array
    f: Floats
    grad_norm: Floats
    least: float

    def __init__(self, objective: Objective, method: Method) -> None:
        self.objective, self.method, self.xp = objective, method, objective.xp
        limits = self.xp.finfo(objective.x0.dtype)
        # sums of squares between these lost no digit to underflow or overflow
        self.safe_squares = float(limits.smallest_normal) / float(limits.eps) ** 2, float(limits.max)
        self.state = method.init(self.xp, objective.x0)
        self._arrive(objective.x0)

    def advance(self, running: Bools | None) -> Bools | None:
        x, grad, f, grad_norm = self.x, self.grad, self.f, self.grad_norm
        following, self.state = self.method.step(self.xp, x, grad, self.state)
        self._arrive(following if running is None else self._where(running, following, x))
        if not math.isnan(self.least):
            return None
        failed = not_finite(self)
        self.x, self.grad = self._where(failed, x, self.x), self._where(failed, grad, self.grad)
        self.f, self.grad_norm = np.where(failed, f, self.f), np.where(failed, grad_norm, self.grad_norm)
        return failed

    def _arrive(self, x: Array) -> None:
        self.x = x
        self.f, self.grad = self.objective.at(x)
        self.grad_norm = self._grad_norm()
        self.least = math.nan if not_finite(self).any() else float(self.grad_norm.min())

    def _grad_norm(self) -> Floats:
        with full_precision(self.grad):
            squares = to_host(self.xp.vecdot(self.grad, self.grad, axis=-1))
        if ((squares > self.safe_squares[0]) & (squares < self.safe_squares[1])).all():
            return np.sqrt(squares)
        return to_host(norm(self.xp, self.grad, axis=-1)[:, 0])

    def _where(self, mask: Bools, new: Array, old: Array) -> Array:
        """Select the rows of ``new`` where ``mask`` holds, those of ``old`` elsewhere."""
        return self.xp.stack([new[i, ...] if chosen else old[i, ...] for i, chosen in enumerate(mask)])

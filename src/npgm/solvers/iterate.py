"""Where all runs of a call of `minimize` are, and the way to the next points, on any array library."""

from __future__ import annotations

import math

import numpy as np

from npgm._array import Array, Bools, Floats, norm, to_host
from npgm.solvers.method import Method
from npgm.solvers.objective import Objective


class Iterate:
    """The present points of all runs, with values and gradients there.

    Attributes:
        x, grad: arrays of shape (runs, n).
        f, grad_norm: NumPy arrays of shape (runs,), in float64.
        least: the smallest of the gradient norms; NaN if one of them, or an f, is not finite.
    """

    def __init__(self, objective: Objective, method: Method) -> None:
        self.objective, self.method, self.xp = objective, method, objective.xp
        limits = self.xp.finfo(objective.x0.dtype)
        # sums of squares between these lost no digit to underflow or overflow
        self.safe_squares = float(limits.smallest_normal) / float(limits.eps) ** 2, float(limits.max)
        self.state = method.init(self.xp, objective.x0)
        self._arrive(objective.x0)

    def advance(self, running: Bools | None) -> None:
        """Take a step in the runs where ``running`` holds, None for all, and evaluate the objective there."""
        self.last = self.x, self.grad, self.f, self.grad_norm
        x, self.state = self.method.step(self.xp, self.x, self.grad, self.state)
        self._arrive(x if running is None else self._where(running, x, self.x))

    def retreat(self, runs: Bools) -> None:
        """Take back the last step in the runs where ``runs`` holds."""
        x, grad, f, grad_norm = self.last
        self.x, self.grad = self._where(runs, x, self.x), self._where(runs, grad, self.grad)
        self.f, self.grad_norm = np.where(runs, f, self.f), np.where(runs, grad_norm, self.grad_norm)

    def _arrive(self, x: Array) -> None:
        self.x = x
        self.f, self.grad = self.objective.at(x)
        self.grad_norm = self._grad_norm()
        finite = np.isfinite(self.f).all() and np.isfinite(self.grad_norm).all()
        self.least = float(self.grad_norm.min()) if finite else math.nan

    def _grad_norm(self) -> Floats:
        squares = to_host(self.xp.vecdot(self.grad, self.grad, axis=-1))
        if ((squares > self.safe_squares[0]) & (squares < self.safe_squares[1])).all():
            return np.sqrt(squares)
        return to_host(norm(self.xp, self.grad, axis=-1)[:, 0])

    def _where(self, mask: Bools, new: Array, old: Array) -> Array:
        """Select the rows of ``new`` where ``mask`` holds, those of ``old`` elsewhere."""
        return self.xp.stack([new[i, ...] if chosen else old[i, ...] for i, chosen in enumerate(mask)])

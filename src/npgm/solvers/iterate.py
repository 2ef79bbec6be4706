"""Where all runs of a call of `minimize` are, and the way to the next points."""

from __future__ import annotations

import math
from typing import Protocol

import array_api_compat
import numpy as np

from npgm._common.array import Array, Bools, Floats, Namespace, full_precision, norm, safe_squares, to_bools, to_host
from npgm.solvers.method import Method
from npgm.solvers.objective import NotFiniteError, Objective
from npgm.solvers.point import Point


class Iterate(Protocol):
    """The present points of all runs, with values and gradients there."""

    @property
    def x(self) -> Array:
        """The points, of shape (runs, n)."""

    @property
    def grad(self) -> Array:
        """The gradients, of the same shape."""

    @property
    def smooth_grad(self) -> Array:
        """∇f at the points, of the same shape, without the part of a function beside f."""

    @property
    def f(self) -> Floats:
        """The values, of shape (runs,)."""

    @property
    def grad_norm(self) -> Floats:
        """The norms of the gradients, of shape (runs,)."""

    @property
    def least(self) -> float:
        """The smallest of the norms; NaN if one of them or of the values is not finite."""

    @property
    def last_x(self) -> Array:
        """The points before the last step, of the same shape, or those of a step that was not taken."""

    @property
    def taken(self) -> Bools | None:
        """The runs whose last step was taken, None for all."""

    @property
    def stepsize(self) -> Floats | float:
        """The γ of the last step, of shape (runs,) or one for all."""

    @property
    def decrease(self) -> Floats | None:
        """What the last step took at least off a bound of f + g, over γ, were it without momentum; None without a g."""

    def advance(self, running: Bools | None) -> Bools | None:
        """Take a step in the runs where ``running`` holds, None for all, and evaluate the objective at all points.

        Returns:
            where a value or a gradient was not finite, None if nowhere; there, the step is taken back. But where the
            value is -∞, it is taken.
        """


def not_finite(iterate: Iterate) -> Bools:
    """Return the runs whose value or gradient norm is not finite."""
    return ~(np.isfinite(iterate.f) & np.isfinite(iterate.grad_norm))


def unbounded(iterate: Iterate) -> Bools:
    """Return the runs whose value is -∞."""
    below: Bools = iterate.f == -math.inf
    return below


def point(xp: Namespace, iterate: Iterate) -> Point:
    """Return an iterate as the methods see it."""
    x, f, grad_norm = iterate.x, iterate.f[:, None], iterate.grad_norm[:, None]
    if not isinstance(x, np.ndarray) or x.dtype != f.dtype:
        device = array_api_compat.device(x)
        f, grad_norm = (xp.asarray(v, dtype=x.dtype, device=device) for v in (f, grad_norm))
    return Point(x, f, iterate.grad, grad_norm)


class ArrayIterate:
    """An iterate on any array library, which steps as the method itself says."""

    x: Array
    last_x: Array
    grad: Array
    f: Floats
    grad_norm: Floats
    least: float
    decrease: Floats | None = None

    def __init__(self, objective: Objective, method: Method) -> None:
        self.objective, self.method, self.xp = objective, method, objective.xp
        self._arrive(objective.x0)
        if math.isnan(self.least):
            raise NotFiniteError.at_start()
        self.last_x = self.x
        self.state = method.init(self.xp, point(self.xp, self))
        self.taken: Bools | None = None

    @property
    def smooth_grad(self) -> Array:
        return self.grad

    @property
    def stepsize(self) -> Floats | float:
        lr = self.method.stepsize(self.state)
        return lr if isinstance(lr, float) else to_host(lr[:, 0])

    def advance(self, running: Bools | None) -> Bools | None:
        x, grad, f, grad_norm = self.x, self.grad, self.f, self.grad_norm
        self.last_x = x
        here = point(self.xp, self)
        following, state = self.method.step(self.xp, here, self.state)
        self._arrive(following if running is None else rows(self.xp, running, following, x))
        if self.method.judges:
            taken, self.state = self.method.judge(self.xp, here, point(self.xp, self), state)
            arrived = to_bools(taken[:, 0]) | unbounded(self)
            self.taken = arrived = arrived if running is None else arrived | ~running
        else:
            self.state, arrived = state, None
        if arrived is None or arrived.all():
            if not math.isnan(self.least):
                return None
            arrived = np.ones(f.size, dtype=np.bool_)
        failed = arrived & not_finite(self)
        arrived = arrived & (~failed | unbounded(self))
        self.x, self.grad = rows(self.xp, arrived, self.x, x), rows(self.xp, arrived, self.grad, grad)
        self.f, self.grad_norm = np.where(arrived, self.f, f), np.where(arrived, self.grad_norm, grad_norm)
        self.least = math.nan if failed.any() else float(self.grad_norm.min())
        return failed

    def _arrive(self, x: Array) -> None:
        self.x = x
        self.f, self.grad = self.objective.at(x)
        with full_precision(self.grad):
            squares = to_host(self.xp.vecdot(self.grad, self.grad, axis=-1))
        safe = ((squares > safe_squares(self.xp, self.grad.dtype)) & (squares < math.inf)).all()
        self.grad_norm = np.sqrt(squares) if safe else to_host(norm(self.xp, self.grad, axis=-1)[:, 0])
        self.least = math.nan if not_finite(self).any() else float(self.grad_norm.min())


def rows(xp: Namespace, mask: Bools, new: Array, old: Array) -> Array:
    """Return the rows of ``new`` where ``mask`` holds, those of ``old`` elsewhere."""
    if mask.all():
        return new
    return xp.stack([new[i, ...] if chosen else old[i, ...] for i, chosen in enumerate(mask)])

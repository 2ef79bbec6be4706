"""Whether the runs of a call of `minimize` get on, the best point of each, and a stepsize where they do not."""

from __future__ import annotations

import math

import numpy as np

from npgm._array import Array, Bools, Floats, Namespace, norm, to_host
from npgm.solvers.iterate import Iterate, rows
from npgm.solvers.method import Method
from npgm.solvers.objective import Objective

_ROUNDING, _SHRINKS = 1e-12, 0.99
"""Progress is an f that fell by more than rounding, or a ‖∇f‖ below this share of the least so far."""
_PATIENCE = 50
"""A run rests that has made none for half its iterations, and for so many."""
_FAR = 1e-6
"""Length of a step, or distance from the best point, over its size, at which a run that does not get on moves."""


class Progress:
    """The least value of each run with its point and iteration, and the last iteration that brought anything."""

    def __init__(self, objective: Objective, iterate: Iterate) -> None:
        self.objective = objective
        self.x, self.f, self.nit = iterate.x, iterate.f.copy(), np.zeros(objective.runs, dtype=np.int64)
        self.last_progress = self.nit.copy()
        self.least_norm = iterate.grad_norm.copy()

    def follow(self, iterate: Iterate, k: int) -> None:
        """Take note of iteration ``k``."""
        f, least = iterate.f, self.f
        if f.size == 1:
            self._follow_one(iterate, k, float(f[0]), float(least[0]), float(iterate.grad_norm[0]))
            return
        better = f < least
        useful = (iterate.grad_norm < _SHRINKS * self.least_norm) | (f < least - _ROUNDING * abs(least))
        if useful.any():
            self.last_progress[useful] = k
            self.least_norm[useful] = np.minimum(self.least_norm, iterate.grad_norm)[useful]
        if better.all():  # holding the array is enough: nobody writes to one that is held
            self.x = iterate.x
        elif better.any():
            self.x = rows(self.objective.xp, better, iterate.x, self.x)
        else:
            return
        self.f[better], self.nit[better] = f[better], k

    def _follow_one(self, iterate: Iterate, k: int, f: float, least: float, grad_norm: float) -> None:
        """Do the same for a single run, for which operations on arrays would take as long as the step."""
        if grad_norm < _SHRINKS * self.least_norm[0] or f < least - _ROUNDING * abs(least):
            self.last_progress[0], self.least_norm[0] = k, min(self.least_norm[0], grad_norm)
        if f < least:
            self.x, self.f[0], self.nit[0] = iterate.x, f, k

    def resting(self, nit: np.ndarray) -> Bools:
        """Return which runs of ``nit`` iterations have made no progress for long."""
        without: Bools = nit - self.last_progress >= np.maximum(_PATIENCE, 0.5 * nit)
        return without

    def moving(self, xp: Namespace, iterate: Iterate) -> Bools:
        """Return which runs still make long steps, or are far from their best points."""
        here = iterate.x
        step, distance, size = (
            to_host(norm(xp, v, axis=-1)[:, 0]) for v in (here - iterate.last_x, here - self.x, self.x)
        )
        moving: Bools = np.fmax(step, distance) > _FAR * np.where(size > 0.0, size, 1.0)
        return moving


def suggested_lr(method: Method, objective: Objective, x: Array) -> Floats:
    """Return a stepsize for each run from the secant of the gradient at ``x`` along it; takes two evaluations.

    It is 1/L for the secant L of the preconditioned gradient, and at most half the present one.
    """
    xp, precondition = objective.xp, method.measure.precondition
    _, grad = objective.at(x)
    short = math.sqrt(float(xp.finfo(x.dtype).eps)) * xp.clip(norm(xp, x, axis=-1), 1.0, None)
    step = grad * (short / xp.clip(norm(xp, grad, axis=-1), float(xp.finfo(x.dtype).tiny), None))
    _, near = objective.at(x - step)
    change = to_host(norm(xp, precondition(near, axis=-1) - precondition(grad, axis=-1), axis=-1)[:, 0])
    inverse = to_host(short[:, 0]) / change
    if not isinstance(method.lr, float):
        return inverse
    return np.where(inverse > 0.0, np.fmin(0.5 * method.lr, inverse), 0.5 * method.lr)

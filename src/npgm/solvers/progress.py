"""Whether the runs of a call of `minimize` get on, the best point of each, and what may be wrong where they do not."""

from __future__ import annotations

import math

import numpy as np

from npgm._common.array import Array, Bools, Namespace, norm, to_bools, to_host
from npgm.solvers.iterate import Iterate, rows
from npgm.solvers.method import Method
from npgm.solvers.objective import Objective
from npgm.solvers.point import rounding

SHRINKS = 0.99
"""Progress is an f that fell by more than rounding, or a ‖∇f‖ below this share of the least so far."""
PATIENCE = 50
"""After so many iterations without progress a run is asked whether any is possible. It rests where so many, and half of
all, brought none."""
LEFT = 16.0
"""A gradient is what rounding leaves if it is at most so many times what the least move of the point makes of it."""
_FAR = 1e-6
"""Length of a step, or distance from the best point, over its size, at which a run that does not get on moves."""


class Progress:
    """The least value of each run with its point and iteration, and the last iteration that brought anything."""

    def __init__(self, objective: Objective, iterate: Iterate) -> None:
        self.objective, self.iterate = objective, iterate
        self.rounding = rounding(float(objective.xp.finfo(objective.x0.dtype).eps))
        self.x, self.f, self.nit = iterate.x, iterate.f.copy(), np.zeros(objective.runs, dtype=np.int64)
        self.last_progress = self.nit.copy()
        self.least_norm = iterate.grad_norm.copy()

    def record(self, k: int) -> Bools | None:
        """Take note of iteration ``k``; return the runs to ask whether progress is possible, None if there are none."""
        iterate, f, least = self.iterate, self.iterate.f, self.f
        if f.size == 1:
            return self._record_one(k, float(f[0]), float(least[0]), float(iterate.grad_norm[0]))
        better = f < least
        useful = (iterate.grad_norm < SHRINKS * self.least_norm) | (f < least - self.rounding * abs(least))
        if useful.any():
            self.last_progress[useful] = k
            self.least_norm[useful] = np.minimum(self.least_norm, iterate.grad_norm)[useful]
        if better.all():  # holding the array is enough: nobody writes to one that is held
            self.x = iterate.x
        elif better.any():
            self.x = rows(self.objective.xp, better, iterate.x, self.x)
        self.f[better], self.nit[better] = f[better], k
        without = k - self.last_progress
        due: Bools = (without > 0) & (without % PATIENCE == 0)
        return due if due.any() else None

    def _record_one(self, k: int, f: float, least: float, grad_norm: float) -> Bools | None:
        """Do the same for a single run, for which operations on arrays would take as long as the step."""
        if grad_norm < SHRINKS * self.least_norm[0] or f < least - self.rounding * abs(least):
            self.last_progress[0], self.least_norm[0] = k, min(self.least_norm[0], grad_norm)
        if f < least:
            self.x, self.f[0], self.nit[0] = self.iterate.x, f, k
        without = k - int(self.last_progress[0])
        return np.ones(1, np.bool_) if without and without % PATIENCE == 0 else None

    def resting(self, nit: np.ndarray) -> Bools:
        """Return which runs of ``nit`` iterations have made no progress for long."""
        without: Bools = nit - self.last_progress >= np.maximum(PATIENCE, 0.5 * nit)
        return without

    def moving(self) -> Bools:
        """Return which runs still make long steps, or are far from their best points."""
        here = self.iterate.x
        step, distance, size = (
            to_host(norm(self.objective.xp, v, axis=-1)[:, 0])
            for v in (here - self.iterate.last_x, here - self.x, self.x)
        )
        moving: Bools = np.fmax(step, distance) > _FAR * np.where(size > 0.0, size, 1.0)
        return moving

    def still(self) -> Bools:
        """Return which runs made, or tried, a step that changes no entry of the point."""
        return to_bools(self.objective.xp.all(self.iterate.x == self.iterate.last_x, axis=-1))

    def exhausted(self) -> Bools:
        """Return where f is as low, and ∇f as small, as rounding lets them be; takes an evaluation."""
        objective, iterate, xp = self.objective, self.iterate, self.objective.xp
        x, f, grad_norm = iterate.x, iterate.f, iterate.grad_norm
        size = to_host(norm(xp, x, axis=-1)[:, 0])
        eps = float(xp.finfo(x.dtype).eps)
        low: Bools = lowest(f, self.f, grad_norm, size, eps)
        if not low.any():
            return low
        _, near = objective.at(nudged(xp, x, iterate.smooth_grad))
        return low & (grad_norm <= LEFT * to_host(norm(xp, near - iterate.smooth_grad, axis=-1)[:, 0]))


def lowest(f: Array, least: Array, grad_norm: Array, size: Array, eps: float) -> Array:
    """Return where rounding of f, or of a point of this size, explains by what f is above its least value."""
    return f - least <= LEFT * (rounding(eps) * abs(f) + eps * size * grad_norm)


def nudged(xp: Namespace, x: Array, grad: Array) -> Array:
    """Return a point of which each entry is the next but one to that of ``x``, or about, downhill."""
    return x - 2.0 * float(xp.finfo(x.dtype).eps) * xp.abs(x) * xp.sign(grad)


class Probe:
    """What f does along its gradient at ``x``; takes two evaluations.

    Args:
        method: the method whose stepsize is to be judged.
        objective: f.
        x: a point of each run.
    """

    def __init__(self, method: Method, objective: Objective, x: Array) -> None:
        xp, precondition = objective.xp, method.stationarity_reference.precondition
        eps = float(xp.finfo(x.dtype).eps)
        f, grad = objective.at(x)
        short = math.sqrt(eps) * xp.clip(norm(xp, x, axis=-1), 1.0, None)
        step = grad * (short / xp.clip(norm(xp, grad, axis=-1), float(xp.finfo(x.dtype).tiny), None))
        near_f, near = objective.at(x - step)
        change = to_host(norm(xp, precondition(near, axis=-1) - precondition(grad, axis=-1), axis=-1)[:, 0])
        inverse = to_host(short[:, 0]) / change
        self.lr = inverse
        """1/L for the secant L of the preconditioned gradient, and at most half the present stepsize."""
        if method.fixed_lr is not None:
            self.lr = np.where(inverse > 0.0, np.fmin(0.5 * method.fixed_lr, inverse), 0.5 * method.fixed_lr)
        fall, expected = f - near_f, to_host(xp.vecdot(0.5 * (grad + near), step, axis=-1))
        larger = np.fmax(np.abs(fall), np.abs(expected))
        resolved = larger > 1e3 * eps * (np.abs(f) + np.abs(near_f))
        self.contradicts: Bools = resolved & (np.abs(fall - expected) > 0.5 * larger)
        """Whether f changes otherwise than its gradient says."""

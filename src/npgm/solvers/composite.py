"""Where all runs of a call of `minimize` are that has a function g beside the smooth one."""

from __future__ import annotations

import math

import numpy as np

from npgm._common.array import Array, Bools, Floats, norm, to_host
from npgm.solvers.iterate import ArrayIterate, rows, unbounded


class CompositeIterate:
    """An `npgm.solvers.iterate.Iterate` whose value is f + g, and whose gradient is a subgradient of that.

    The step to x = argmin g + γ φ((· - y)/γ) leaves -∇φ((x - y)/γ), which is a subgradient of g at x, so that
    ∇f(x) - ∇φ((x - y)/γ) is one of f + g. Before the first step that is taken none is known: its entries are NaN, and
    its norm is infinite, so that nothing stops there.

    Args:
        smooth: the iterate of f, with `npgm.solvers.methods.proximal.Proximal`, whose state tells g and its part.
    """

    def __init__(self, smooth: ArrayIterate) -> None:
        self.smooth, self.xp = smooth, smooth.xp
        self.f = smooth.f + self._g()
        self.grad = self.xp.full_like(smooth.grad, math.nan)
        self.grad_norm, self.least = np.full(self.f.size, math.inf), math.inf

    @property
    def x(self) -> Array:
        return self.smooth.x

    @property
    def smooth_grad(self) -> Array:
        return self.smooth.grad

    @property
    def last_x(self) -> Array:
        return self.smooth.last_x

    @property
    def taken(self) -> Bools | None:
        return self.smooth.taken

    @property
    def stepsize(self) -> Floats | float:
        return self.smooth.stepsize

    @property
    def decrease(self) -> Floats | None:
        return None if isinstance(self.stepsize, float) else to_host(self.smooth.state.decrease[:, 0])

    def advance(self, running: Bools | None) -> Bools | None:
        failed = self.smooth.advance(running)
        moved = np.ones(self.f.size, dtype=np.bool_) if running is None else running.copy()
        if self.taken is not None:
            moved &= self.taken
        if failed is not None:
            moved &= ~failed | unbounded(self.smooth)
        if moved.any():
            grad = self.smooth.grad + self.smooth.state.subgradient
            self.grad = rows(self.xp, moved, grad, self.grad)
            self.f = np.where(moved, self.smooth.f + self._g(), self.f)
            self.grad_norm = np.where(moved, to_host(norm(self.xp, grad, axis=-1)[:, 0]), self.grad_norm)
        self.least = math.nan if failed is not None else float(self.grad_norm.min())
        return failed

    def _g(self) -> Floats:
        return to_host(self.smooth.state.g[:, 0])

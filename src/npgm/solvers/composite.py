"""Where all runs of a call of `minimize` are that has a function g beside the smooth one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

from npgm._common.array import Array, Bools, Floats, norm, to_host
from npgm.solvers.iterate import ArrayIterate, Iterate, rows, unbounded


class CompositeIterate(ABC):
    """An `npgm.solvers.iterate.Iterate` whose value is f + g, and whose gradient is a subgradient of that.

    The step to x = argmin g + γ φ((· - y)/γ) leaves -∇φ((x - y)/γ), which is a subgradient of g at x, so that
    ∇f(x) - ∇φ((x - y)/γ) is one of f + g. Before the first step that is taken none is known: its entries are NaN, and
    its norm is infinite, so that nothing stops there.

    Args:
        smooth: the iterate of f.
        g: the values of g at its points, of shape (runs,).
    """

    grad: Array

    def __init__(self, smooth: Iterate, g: Floats) -> None:
        self.smooth = smooth
        self.f = smooth.f + g
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
    @abstractmethod
    def decrease(self) -> Floats | None:
        """As `npgm.solvers.iterate.Iterate` has it."""

    @abstractmethod
    def arrive(self, moved: Bools) -> None:
        """Take over the value, the gradient and its norm at the points of the runs that have ``moved``."""

    def advance(self, running: Bools | None) -> Bools | None:
        failed = self.smooth.advance(running)
        moved = np.ones(self.f.size, dtype=np.bool_) if running is None else running.copy()
        if self.taken is not None:
            moved &= self.taken
        if failed is not None:
            moved &= ~failed | unbounded(self.smooth)
        if moved.any():
            self.arrive(moved)
        self.least = math.nan if failed is not None else float(self.grad_norm.min())
        return failed


class ArrayComposite(CompositeIterate):
    """One on any array library, of a `npgm.solvers.composite_method.CompositeMethod`, whose state tells g's part."""

    smooth: ArrayIterate

    def __init__(self, smooth: ArrayIterate) -> None:
        super().__init__(smooth, to_host(smooth.state.g[:, 0]))
        self.grad = smooth.xp.full_like(smooth.grad, math.nan)

    @property
    def decrease(self) -> Floats | None:
        return None if isinstance(self.stepsize, float) else to_host(self.smooth.state.decrease[:, 0])

    def arrive(self, moved: Bools) -> None:
        smooth, xp = self.smooth, self.smooth.xp
        grad = smooth.grad + smooth.state.subgradient
        self.grad = rows(xp, moved, grad, self.grad)
        self.f = np.where(moved, smooth.f + to_host(smooth.state.g[:, 0]), self.f)
        self.grad_norm = np.where(moved, to_host(norm(xp, grad, axis=-1)[:, 0]), self.grad_norm)

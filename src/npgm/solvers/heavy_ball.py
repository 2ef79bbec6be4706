"""What gd, gdm and npgm share: the preconditioned heavy ball, with a stepsize that is a number or a rule."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from npgm._common import validate
from npgm._common.array import Array, Namespace
from npgm.solvers.method import Algorithm1, Method
from npgm.solvers.point import Point, Trial
from npgm.solvers.preconditioned import Preconditioned
from npgm.solvers.search import Search
from npgm.solvers.stepsizes import Stepsize, as_lr


@dataclass(frozen=True)
class HeavyBall(Method):
    """x ← x - γ m with m ← β m + (1-β) u, from m = 0, where u = ∇φ*(∇f(x))."""

    momentum: float

    def __post_init__(self) -> None:
        validate.assign(self, lr=as_lr(self.lr))

    @cached_property
    def search(self) -> Search | None:
        """The heavy ball with its rule, where γ is not a number."""
        rule = self.lr
        return Search(self.stationarity_reference, rule, self.momentum) if isinstance(rule, Stepsize) else None

    @property
    def as_npgm(self) -> Algorithm1 | None:
        if self.fixed_lr is None or self.scale_follows:
            return None
        return Algorithm1(self.fixed_lr, self.momentum, self.stationarity_reference)

    @property
    def sharpness_limit(self) -> float | None:
        curvature = self.stationarity_reference.curvature_at_zero
        if self.fixed_lr is None or self.scale_follows:
            return None
        return heavy_ball_limit(self.fixed_lr, self.momentum) / curvature if curvature > 0.0 else math.inf

    def init(self, xp: Namespace, start: Point) -> Any:
        phi = self.preconditioned(xp, start)
        return (phi.scale, xp.zeros_like(start.x)) if self.search is None else self.search.init(xp, start, phi)

    def step(self, xp: Namespace, here: Point, state: Any) -> tuple[Array, Any]:
        if self.search is not None:
            p, state = self.search.step(xp, here, state)
            return here.x + p, state
        scale, m = state
        u = Preconditioned(self.stationarity_reference, scale)(here.grad)
        following, m = heavy_ball(here.x, u, m, self.lr, self.momentum)
        return following, (scale, m)

    @property
    def judges(self) -> bool:
        return self.search is not None

    def judge(self, xp: Namespace, here: Point, there: Point, state: Any) -> tuple[Array, Any]:
        assert self.search is not None
        trial = Trial.of(xp, here, there, state.step, state.direction, state.stationarity)
        return self.search.judge(xp, trial, state)

    def stepsize(self, state: Any) -> Array | float:
        return super().stepsize(state) if self.search is None else state.lr


def heavy_ball(x: Array, u: Array, m: Array, lr: float, momentum: float) -> tuple[Array, Array]:
    """Return x - γ m' and m' = β m + (1-β) u."""
    if momentum:
        # augmented assignments to new arrays save an allocation where arrays can change, and are sums where not
        m = momentum * m
        m += (1.0 - momentum) * u
    else:
        m = u
    step = -lr * m
    step += x
    return step, m


def heavy_ball_limit(lr: float, momentum: float) -> float:
    """Return the curvature up to which m ← β m + (1-β) g, x ← x - γ m is stable: 2(1+β)/((1-β)γ)."""
    return 2.0 * (1.0 + momentum) / ((1.0 - momentum) * lr)

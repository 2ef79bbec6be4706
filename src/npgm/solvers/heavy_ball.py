"""What gd, gdm and npgm share: the preconditioned heavy ball, with a stepsize that is a number or a rule."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from npgm._array import Array, Namespace
from npgm.references import Reference
from npgm.solvers.directions import Preconditioned
from npgm.solvers.method import Method, Point
from npgm.solvers.search import Search
from npgm.solvers.stepsizes import Stepsize, as_lr
from npgm.solvers.trial import Trial


@dataclass(frozen=True)
class HeavyBall(Method):
    """x ← x - γ m with m ← β m + (1-β) u, from m = 0, where u = ∇φ*(∇f(x)) is the `direction`."""

    momentum: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", as_lr(self.lr))

    @property
    @abstractmethod
    def direction(self) -> Preconditioned:
        """What gives u."""

    @cached_property
    def search(self) -> Search | None:
        """The direction with the rule, where γ is not a number."""
        return Search(self.direction, self.lr, self.momentum) if isinstance(self.lr, Stepsize) else None

    @property
    def measure(self) -> Reference:
        return self.direction.unscaled

    def scales(self, xp: Namespace, start: Point) -> Array | None:
        return self.direction.init(xp, start)

    @property
    def sharpness_limit(self) -> float | None:
        curvature = self.direction.curvature_at_zero
        if not isinstance(self.lr, float) or self.direction.auto_scale:
            return None
        return heavy_ball_limit(self.lr, self.momentum) / curvature if curvature > 0.0 else math.inf

    def init(self, xp: Namespace, start: Point) -> Any:
        if self.search is not None:
            return self.search.init(xp, start)
        return self.direction.init(xp, start), xp.zeros_like(start.x)

    def step(self, xp: Namespace, here: Point, state: Any) -> tuple[Array, Any]:
        if self.search is not None:
            p, state = self.search.step(xp, here, state)
            return here.x + p, state
        along, m = state
        following, m = heavy_ball(here.x, self.direction(xp, here.grad, along), m, self.lr, self.momentum)
        return following, (along, m)

    @property
    def judges(self) -> bool:
        return self.search is not None

    def judge(self, xp: Namespace, here: Point, there: Point, state: Any) -> tuple[Array, Any]:
        assert self.search is not None
        trial = Trial.of(xp, here, there, state.step, state.direction, state.measure)
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

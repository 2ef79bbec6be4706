"""Nesterov's accelerated gradient method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from npgm._common.array import Array, Namespace, dot
from npgm.solvers.method import Method, register
from npgm.solvers.point import Point


class State(NamedTuple):
    """The last point before extrapolation, and the weight t of the extrapolation, of shape (runs, 1)."""

    y: Array
    t: Array


@register
@dataclass(frozen=True)
class Nesterov(Method):
    """y' = x - γ ∇f(x), x ← y' + ((t-1)/t')(y' - y) with t' = (1 + sqrt(1 + 4t²))/2, from t = 1 (Nesterov, 1983).

    The reported points are the extrapolated ones, at which the gradient is evaluated.

    Args:
        lr: γ > 0; at most 1/L for a convex function with an L-Lipschitz gradient.
        restart: whether t returns to 1 where ⟨∇f(x), y' - y⟩ > 0, the gradient scheme of O'Donoghue and Candès,
            Adaptive restart for accelerated gradient schemes (2015), which adapts to strong convexity.
    """

    key = "nesterov"
    update = "y' = x - γ ∇f(x);  x ← y' + ((t-1)/t') (y' - y)"

    restart: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.restart, bool):
            raise TypeError(f"restart must be True or False, not {self.restart!r}")

    def init(self, xp: Namespace, start: Point) -> State:
        return State(start.x, xp.ones_like(start.grad_norm))

    def step(self, xp: Namespace, here: Point, state: State) -> tuple[Array, State]:
        y = here.x - self.lr * here.grad
        move, last = y - state.y, state.t
        if self.restart:
            last = xp.where(dot(xp, here.grad, move) > 0.0, xp.ones_like(last), last)
        t = 0.5 * (1.0 + xp.sqrt(1.0 + 4.0 * last**2))
        return y + ((last - 1.0) / t) * move, State(y, t)

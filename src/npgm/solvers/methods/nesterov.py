"""Nesterov's accelerated gradient method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from npgm._array import Array, Namespace
from npgm.solvers.method import Method, Point, register


class State(NamedTuple):
    """The last point before extrapolation, and the weight t of the extrapolation."""

    y: Array
    t: float


@register
@dataclass(frozen=True)
class Nesterov(Method):
    """y' = x - γ ∇f(x), x ← y' + ((t-1)/t')(y' - y) with t' = (1 + sqrt(1 + 4t²))/2, from t = 1 (Nesterov, 1983).

    The points reported are the extrapolated ones, at which the gradient is taken.

    Args:
        lr: γ > 0; at most 1/L for a convex function with an L-Lipschitz gradient.
    """

    key = "nesterov"
    update = "y' = x - γ ∇f(x);  x ← y' + ((t-1)/t') (y' - y)"

    def init(self, xp: Namespace, start: Point) -> State:
        return State(start.x, 1.0)

    def step(self, xp: Namespace, here: Point, state: State) -> tuple[Array, State]:
        x, grad = here.x, here.grad
        y = x - self.lr * grad
        t = 0.5 * (1.0 + (1.0 + 4.0 * state.t**2) ** 0.5)
        return y + ((state.t - 1.0) / t) * (y - state.y), State(y, t)

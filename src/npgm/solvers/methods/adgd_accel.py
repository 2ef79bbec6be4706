"""Adaptive gradient descent with the heuristic acceleration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from npgm._common.array import Array, Namespace
from npgm.solvers.method import register
from npgm.solvers.methods.adgd import AdGD, curvature, damped, first_lr
from npgm.solvers.point import Point


class State(NamedTuple):
    """The last points x and y and gradient; stepsize λ and curvature Λ with their growth, of shape (runs, 1)."""

    x: Array
    y: Array
    grad: Array
    lr: Array
    lr_growth: Array
    mu: Array
    mu_growth: Array


@register
@dataclass(frozen=True)
class AdGDAccel(AdGD):
    """Nesterov's method with estimates of stepsize and strong convexity in the manner of AdGD.

    y = x - λ ∇f(x), x ← y + β (y - y'), with λ = min(sqrt(1+θ/2) λ', 1/(2L)), Λ = min(sqrt(1+Θ/2) Λ', L/2),
    L = ‖∇f(x) - ∇f(x')‖/‖x - x'‖, β = (1 - sqrt(λΛ))/(1 + sqrt(λΛ)), θ = λ/λ', Θ = Λ/Λ', infinite at first.
    Malitsky and Mishchenko, Adaptive gradient descent without descent, ICML 2020, section 4.

    Args:
        lr: the very first stepsize; any tiny value works. A step too short to change x is lengthened.
    """

    key = "adgd_accel"
    update = "y' = x - λ ∇f(x);  x ← y' + β (y' - y), λ and β estimated"

    def step(self, xp: Namespace, here: Point, state: Any) -> tuple[Array, Any]:
        x, grad = here.x, here.grad
        if state is None:
            lr = first_lr(xp, x, grad, self.lr)
            y = x - lr * grad
            unbounded = xp.full_like(lr, xp.inf)
            return y, State(x, y, grad, lr, unbounded, xp.ones_like(lr), unbounded)
        half, half_inverse = curvature(xp, x - state.x, grad - state.grad)
        lr = damped(xp, state.lr, state.lr_growth, half_inverse, weight=0.5)
        mu = damped(xp, state.mu, state.mu_growth, half, weight=0.5)
        root = xp.sqrt(lr * mu)
        y = x - lr * grad
        following = y + (1.0 - root) / (1.0 + root) * (y - state.y)
        return following, State(x, y, grad, lr, lr / state.lr, mu, mu / state.mu)

"""Adaptive gradient descent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from npgm._common.array import Array, Namespace, one_if_zero, row_norms
from npgm.solvers.method import Method, register
from npgm.solvers.point import Point


class State(NamedTuple):
    """The last point and gradient, the last stepsize λ and its growth θ; the last two of shape (runs, 1)."""

    x: Array
    grad: Array
    lr: Array
    growth: Array


@register
@dataclass(frozen=True)
class AdGD(Method):
    """x ← x - λ ∇f(x), with λ from the local Lipschitz constant of the gradient; no stepsize to tune.

    λ = min(sqrt(1+θ) λ', ‖x - x'‖ / (2‖∇f(x) - ∇f(x')‖)), θ = λ/λ', where primes are the last step's, and θ = ∞ at
    first. Malitsky and Mishchenko, Adaptive gradient descent without descent, ICML 2020, Algorithm 1.

    Args:
        lr: the very first stepsize; any tiny value works. A step too short to change x is lengthened.
    """

    key = "adgd"
    update = "λ = min(√(1+θ) λ', ‖Δx‖ / (2‖Δ∇f‖));  x ← x - λ ∇f(x)"

    lr: float = 1e-9

    def init(self, xp: Namespace, start: Point) -> None:
        return None

    def step(self, xp: Namespace, here: Point, state: State | None) -> tuple[Array, State]:
        x, grad = here.x, here.grad
        if state is None:
            lr = first_lr(xp, x, grad, self.lr)
            return x - lr * grad, State(x, grad, lr, xp.full_like(lr, xp.inf))
        _, half_inverse = curvature(xp, x - state.x, grad - state.grad)
        lr = damped(xp, state.lr, state.growth, half_inverse)
        return x - lr * grad, State(x, grad, lr, lr / state.lr)

    @property
    def fixed_lr(self) -> None:
        return None

    def stepsize(self, state: State) -> Array:
        return state.lr


def first_lr(xp: Namespace, x: Array, grad: Array, lr: float) -> Array:
    """Return ``lr`` for each run, or as much more as makes ‖Δx‖ = sqrt(eps) ‖x‖, so that ‖Δ∇f‖/‖Δx‖ has a meaning."""
    length = row_norms(xp, grad)
    shortest = math.sqrt(float(xp.finfo(x.dtype).eps)) * row_norms(xp, x)
    return xp.clip(shortest / one_if_zero(xp, length), lr, None)


def curvature(xp: Namespace, dx: Array, dgrad: Array) -> tuple[Array, Array]:
    """Return L/2 and 1/(2L) for the local Lipschitz constant L = ‖Δ∇f‖/‖Δx‖, infinite for a zero denominator."""
    a, b = row_norms(xp, dx), row_norms(xp, dgrad)
    return _half_ratio(xp, b, a), _half_ratio(xp, a, b)


def damped(xp: Namespace, last: Array, growth: Array, bound: Array, weight: float = 1.0) -> Array:
    """Return min(sqrt(1 + weight θ) last, bound), or ``last`` where that is 0 or ∞ and so says nothing."""
    first = xp.isinf(growth)  # whose tangent under forward differentiation must not be multiplied by infinity
    grown = xp.sqrt(1.0 + weight * xp.where(first, xp.zeros_like(growth), growth)) * last
    value = xp.where(first, bound, xp.minimum(grown, bound))
    return xp.where((value == 0) | xp.isinf(value), last, value)


def _half_ratio(xp: Namespace, a: Array, b: Array) -> Array:
    return xp.where(b == 0, xp.full_like(b, xp.inf), 0.5 * a / one_if_zero(xp, b))

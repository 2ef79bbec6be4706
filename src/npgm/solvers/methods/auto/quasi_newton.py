"""The direction of the limited-memory BFGS method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from npgm._array import Array, Namespace, dot, one_if_zero, row_norms, select
from npgm.solvers.point import Point, Trial


class Pair(NamedTuple):
    """s and y over ‖s‖, and 1/⟨s, y⟩ of these, 0 for a pair that is not there."""

    s: Array
    y: Array
    inverse: Array


class State(NamedTuple):
    """The pairs, the oldest first, and the factor of the identity from which the matrix is built."""

    pairs: tuple[Pair, ...]
    factor: Array


@dataclass(frozen=True)
class QuasiNewton:
    """u = H ∇f(x), with H the inverse BFGS matrix of the last secants (Liu and Nocedal, 1989); φ(u) = ½⟨u, H⁻¹u⟩.

    Args:
        memory: the number of secants.
    """

    memory: int = 10

    def init(self, xp: Namespace, start: Point) -> State:
        zero = xp.zeros_like(start.grad_norm)
        none = Pair(xp.zeros_like(start.x), xp.zeros_like(start.x), zero)
        scale = one_if_zero(xp, row_norms(xp, start.x))
        return State((none,) * self.memory, 0.1 * scale / one_if_zero(xp, start.grad_norm))

    def at(self, xp: Namespace, here: Point, state: State) -> tuple[Array, Array]:
        """Return u, of shape (runs, n), and φ(u), of shape (runs, 1)."""
        u = self._product(xp, here.grad, state)
        slope = dot(xp, u, here.grad)
        # where rounding made of H what is not positive definite, its multiple of the identity remains
        good = slope > 1e-12 * here.grad_norm * row_norms(xp, u)
        u = select(xp, good, u, state.factor * here.grad)
        return u, 0.5 * xp.where(good, slope, state.factor * here.grad_norm**2)

    def learn(self, xp: Namespace, trial: Trial, state: State) -> State:
        """Return the state after a step was tried, whether it was taken or not."""
        length, change, product = trial.step_norm, trial.change_norm, trial.product
        good = product > 1e-8 * length * change
        unit = one_if_zero(xp, length)
        new = Pair(trial.step / unit, trial.change / unit, unit * (unit / xp.where(good, product, xp.ones_like(unit))))
        # older pairs move up one place in the runs where there is a new one
        pairs = tuple(
            Pair(*(select(xp, good, *each) for each in zip(following, pair, strict=True)))
            for following, pair in zip((*state.pairs[1:], new), state.pairs, strict=True)
        )
        doubled = xp.where(trial.finite & (state.pairs[-1].inverse == 0), 2.0 * state.factor, state.factor)
        some = xp.where(good, change, xp.ones_like(change))
        return State(pairs, xp.where(good, product / some / some, doubled))

    @staticmethod
    def _product(xp: Namespace, grad: Array, state: State) -> Array:
        u, weights = grad, []
        for pair in reversed(state.pairs):
            weight = pair.inverse * dot(xp, pair.s, u)
            u = u - weight * pair.y
            weights.append(weight)
        u = state.factor * u
        for pair, weight in zip(state.pairs, reversed(weights), strict=True):
            u = u + (weight - pair.inverse * dot(xp, pair.y, u)) * pair.s
        return u

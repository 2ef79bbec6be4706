"""The direction of the limited-memory BFGS method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from npgm._common.array import Array, Namespace, dot, is_jax, one_if_zero, promote, row_norms, select
from npgm.solvers.methods.auto.growth import bend
from npgm.solvers.point import Point, Trial
from npgm.solvers.stepsizes.edge_of_stability import FIRST, extent

ENTRIES, LEAST, MOST = 20_000, 10, 50
"""The memory holds as many pairs as make so many entries, within these limits."""
CURVED = 1e-8
"""A pair is learnt if ⟨s, y⟩ exceeds this share of ‖s‖‖y‖: the update is then positive definite."""
KEPT = 0.1
"""A pair says something of the free entries if these have more than this share of ⟨s, y⟩."""
STRAIGHT = 1e-12
"""The least cosine of the angle between u and ∇f(x); below it, rounding has spoilt H."""
CLEAR, FLATTER, STEEPER = 1e-4, 0.2, 5.0
"""The curvature at the end of a step is told from f if rounding of f is less than the first share of ⟨p, y⟩, and is
taken to be between the other multiples of its mean."""


class State(NamedTuple):
    """The pairs, the oldest first, zero where there are fewer, and what H is made of besides them."""

    s: Array
    """The steps over their lengths, of shape (runs, memory, n)."""
    y: Array
    """The changes of the gradient over the same lengths, of the same shape."""
    inverse: Array
    """The inverse of the upper triangle of ⟨s_i, y_j⟩, of shape (runs, memory, memory)."""
    products: Array
    """⟨y_i, y_j⟩, of the same shape."""
    curvatures: Array
    """⟨s_i, y_i⟩, of shape (runs, memory)."""
    factor: Array
    """The factor of the identity from which H is built, of shape (runs, 1)."""


@dataclass(frozen=True)
class QuasiNewton:
    """u = H ∇f(x), with H the inverse BFGS matrix of the last pairs; φ(u) = ½⟨u, H⁻¹u⟩.

    In its compact form (Byrd, Nocedal and Schnabel, 1994), a product takes four passes over the pairs, whatever their
    number.

    Args:
        memory: the number of pairs; None for 20,000/n, at least 10 and at most 50.
    """

    memory: int | None = None

    def pairs(self, n: int) -> int:
        """Return the number of pairs for n variables."""
        return self.memory or max(LEAST, min(MOST, ENTRIES // max(n, 1)))

    def init(self, xp: Namespace, start: Point) -> State:
        memory = self.pairs(start.x.shape[-1])
        none = xp.stack([xp.zeros_like(start.x)] * memory, axis=1)
        numbers = xp.concat([xp.zeros_like(start.grad_norm)] * memory, axis=-1)
        square = xp.stack([numbers] * memory, axis=1)
        factor = FIRST * extent(xp, start.x) / one_if_zero(xp, start.grad_norm)
        return State(none, none, square, square, numbers, factor)

    def at(self, xp: Namespace, here: Point, state: State) -> tuple[Array, Array]:
        """Return u, of shape (runs, n), and φ(u), of shape (runs, 1)."""
        u = self.product(xp, here.grad, state)
        slope = dot(xp, u, here.grad)
        good = slope > STRAIGHT * here.grad_norm * row_norms(xp, u)
        u = select(xp, good, u, state.factor * here.grad)
        return u, 0.5 * xp.where(good, slope, state.factor * here.grad_norm**2)

    def curved(self, trial: Trial) -> Array:
        """Return the runs in which the step gives a pair to learn from: boolean, of shape (runs, 1)."""
        return trial.product > CURVED * trial.step_norm * trial.change_norm

    def learn(self, xp: Namespace, trial: Trial, where: Array, state: State) -> State:
        """Return the state with the pair of the step in the runs where ``where`` holds."""
        unit = one_if_zero(xp, trial.step_norm)
        s, y = trial.step / unit, trial.change / unit
        curvature = trial.product / unit / unit
        curvature = xp.where(where, curvature, xp.ones_like(curvature))
        change = xp.where(where, trial.change_norm / unit, xp.ones_like(curvature))
        inverse = state.inverse[:, 1:, 1:]
        column = -_times(xp, inverse, _times(xp, state.s[:, 1:, :], y)) / curvature
        products = _times(xp, state.y[:, 1:, :], y)
        new = State(
            xp.concat([state.s[:, 1:, :], s[:, None, :]], axis=1),
            xp.concat([state.y[:, 1:, :], y[:, None, :]], axis=1),
            _bordered(xp, inverse, column, xp.zeros_like(column), 1.0 / curvature),
            _bordered(xp, state.products[:, 1:, 1:], products, products, change * change),
            xp.concat([state.curvatures[:, 1:], curvature], axis=-1),
            curvature / change / change,
        )
        return _chosen(xp, where, new, state)

    @staticmethod
    def forget(xp: Namespace, where: Array, state: State) -> State:
        """Return the state with the newest pair alone in the runs where ``where`` holds."""
        newest = State(*(xp.concat([xp.zeros_like(each[:, :-1]), each[:, -1:]], axis=1) for each in state))
        return _chosen(xp, where, newest, state)

    @staticmethod
    def product(xp: Namespace, grad: Array, state: State) -> Array:
        """Return H times a vector of each run, of shape (runs, n)."""
        along_y = _times(xp, state.inverse, _times(xp, state.s, grad))
        rest = state.factor * (_times(xp, state.products, along_y) - _times(xp, state.y, grad))
        along_s = _combination(xp, state.curvatures * along_y + rest, state.inverse)
        return state.factor * (grad - _combination(xp, along_y, state.y)) + _combination(xp, along_s, state.s)

    @classmethod
    def product_on_faces(cls, xp: Namespace, grad: Array, free: Array, state: State) -> Array:
        """Return the product with the inverse BFGS matrix of the pairs' free entries, zero in the other entries.

        Pairs whose curvature is mostly in the other entries are left out. The idea is in Schmidt, Kim and Sra (2011).

        Args:
            grad: the vectors, of shape (runs, n), whose other entries are taken for zero.
            free: the free entries: boolean, of the same shape.
        """
        curvatures = xp.sum(xp.where(free[:, None, :], state.s * state.y, xp.zeros_like(state.s)), axis=-1)
        kept = curvatures > KEPT * state.curvatures
        entries = kept[:, :, None] & free[:, None, :]
        s, y = (xp.where(entries, each, xp.zeros_like(each)) for each in (state.s, state.y))
        one = xp.tril(xp.triu(xp.ones_like(state.products)))
        # of a pair that is left out, whatever the inverse has is multiplied by zero
        upper = xp.triu(xp.matmul(s, xp.matrix_transpose(y))) + xp.where(kept[:, :, None], xp.zeros_like(one), one)
        products = xp.matmul(y, xp.matrix_transpose(y))
        newest = xp.where(kept[:, -1:], curvatures[:, -1:] / one_if_zero(xp, products[:, -1:, -1]), state.factor)
        curvatures = xp.where(kept, curvatures, xp.zeros_like(curvatures))
        of_free = State(s, y, _inverse(upper), products, curvatures, newest)
        return cls.product(xp, xp.where(free, grad, xp.zeros_like(grad)), of_free)


def at_end(xp: Namespace, trial: Trial) -> Trial:
    """Return the step with y multiplied so that ⟨p, y⟩ is the curvature at its end, not the mean along it.

    That is ⟨p, y⟩ + ½f'''·‖p‖³ of the cubic with the values and slopes of f at both ends (Biggs, Minimization
    algorithms making use of non-quadratic properties of the objective function, 1971).
    """
    clear = trial.slack(xp) < CLEAR * trial.product
    ratio = 1.0 + 0.5 * bend(xp, trial) / xp.where(clear, trial.product, xp.ones_like(trial.product))
    ratio = xp.where(clear, xp.clip(ratio, FLATTER, STEEPER), xp.ones_like(ratio))
    return replace(
        trial, change=ratio * trial.change, change_norm=ratio * trial.change_norm, product=ratio * trial.product
    )


def numbers() -> dict[str, float]:
    """Return the numbers by the names that the native module has for them."""
    return {
        "curved": CURVED,
        "kept": KEPT,
        "straight": STRAIGHT,
        "clear": CLEAR,
        "flatter": FLATTER,
        "steeper": STEEPER,
    }


def _chosen(xp: Namespace, where: Array, new: State, old: State) -> State:
    """Return the new state in the runs where ``where``, of shape (runs, 1), holds."""
    block = where[:, :, None]
    return State(*(select(xp, block if n.ndim == 3 else where, n, o) for n, o in zip(new, old, strict=True)))


def _times(xp: Namespace, rows: Array, v: Array) -> Array:
    """Return the inner products of v with the rows of a matrix, in each run."""
    if is_jax(v):  # which does not multiply matrices that a mesh shards over the variables
        return xp.sum(rows * v[:, None, :], axis=-1)
    return xp.matmul(rows, v[:, :, None])[:, :, 0]


def _combination(xp: Namespace, weights: Array, rows: Array) -> Array:
    """Return the sum of the rows of a matrix with weights, in each run."""
    return xp.matmul(weights[:, None, :], rows)[:, 0, :]


def _bordered(xp: Namespace, matrix: Array, column: Array, row: Array, corner: Array) -> Array:
    """Return the matrix with a further column and row, in each run."""
    above = xp.concat([matrix, column[:, :, None]], axis=2)
    below = xp.concat([row, corner], axis=-1)[:, None, :]
    return xp.concat([above, below], axis=1)


def _inverse(matrix: Array) -> Array:
    """Return the inverse of a matrix of each run."""
    xp, matrix, restore = promote(matrix)
    return restore(xp.linalg.inv(matrix))

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
CURVED = 1e-12
"""A pair is learnt if ⟨s, y⟩ exceeds this share of ‖s‖‖y‖: the update is then positive definite."""
KEPT = 0.1
"""A pair says something of the free entries if these have more than this share of ⟨s, y⟩."""
STRAIGHT = 1e-12
"""The least cosine of the angle between u and ∇f(x); below it, rounding has spoilt H."""
FADE, GAIN, SPREAD = 0.9, 2.0, 1e12
"""E is used where log(‖y‖²‖s‖²/(⟨y, E⁻¹y⟩⟨s, Es⟩)), summed over the pairs and discounted by the first number each time,
exceeds the second. The entries of E are within the third, a factor, of ‖y‖²/⟨s, y⟩."""
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
    curvatures: Array
    """⟨s_i, y_i⟩, of shape (runs, memory)."""
    factor: Array
    """The factor of the identity from which H is built, of shape (runs, 1)."""
    width: Array
    """What multiplies that identity, or E⁻¹, of the same shape."""
    gain: Array
    """By how much better E explains the last pairs than a multiple of the identity does, of the same shape."""
    diagonal: Array
    """The diagonal matrix E of which the inverse takes the place of that multiple, of shape (runs, n)."""


@dataclass(frozen=True)
class QuasiNewton:
    """u = H ∇f(x), with H the inverse BFGS matrix of the last pairs; φ(u) = ½⟨u, H⁻¹u⟩.

    H is built from a multiple of the identity; where the variables are of different scales, so that it explains the
    last pairs much better, from E⁻¹ instead: E is the diagonal of the BFGS matrix that is made of E and the next pair
    (Gilbert and Lemaréchal, 1989). The multiple is ⟨s, y⟩/‖y‖² or, where steps may be long, the larger ‖s‖/‖y‖: then
    steps along flat directions of which there is no pair yet are not as short as those along the steep ones.

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
        return State(none, none, square, numbers, factor, xp.ones_like(factor), 0.0 * factor, xp.zeros_like(start.x))

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

    def learn(self, xp: Namespace, trial: Trial, where: Array, state: State, wide: Array | None = None) -> State:
        """Return the state with the pair of the step in the runs where ``where`` holds.

        Where ``wide`` holds, H is built from the larger multiple.
        """
        unit = one_if_zero(xp, trial.step_norm)
        s, y = trial.step / unit, trial.change / unit
        curvature = trial.product / unit / unit
        curvature = xp.where(where, curvature, xp.ones_like(curvature))
        change = xp.where(where, trial.change_norm / unit, xp.ones_like(curvature))
        inverse = state.inverse[:, 1:, 1:]
        column = -_times(xp, inverse, _times(xp, state.s[:, 1:, :], y)) / curvature
        factor = curvature / change / change
        gain, width, diagonal = _scales(xp, s, y, curvature, change, state)
        one = xp.ones_like(width)
        new = State(
            xp.concat([state.s[:, 1:, :], s[:, None, :]], axis=1),
            xp.concat([state.y[:, 1:, :], y[:, None, :]], axis=1),
            _bordered(xp, inverse, column, xp.zeros_like(column), 1.0 / curvature),
            xp.concat([state.curvatures[:, 1:], curvature], axis=-1),
            factor,
            one if wide is None else xp.where(wide, width, one),
            gain,
            diagonal,
        )
        return _chosen(xp, where, new, state)

    @staticmethod
    def forget(xp: Namespace, where: Array, state: State) -> State:
        """Return the state with the newest pair alone in the runs where ``where`` holds."""
        newest = {
            name: xp.concat([xp.zeros_like(pairs[:, :-1]), pairs[:, -1:]], axis=1)
            for name, pairs in state._asdict().items()
            if name in ("s", "y", "inverse", "curvatures")
        }
        even = xp.ones_like(state.diagonal) / state.factor
        new = state._replace(**newest, width=xp.ones_like(state.width), gain=0.0 * state.gain, diagonal=even)
        return _chosen(xp, where, new, state)

    @staticmethod
    def product(xp: Namespace, grad: Array, state: State) -> Array:
        """Return H times a vector of each run, of shape (runs, n)."""
        along_y = _times(xp, state.inverse, _times(xp, state.s, grad))
        uneven = state.gain > GAIN
        first = xp.where(uneven, 1.0 / xp.where(uneven, state.diagonal, xp.ones_like(grad)), state.factor)
        u = state.width * first * (grad - _combination(xp, along_y, state.y))
        along_s = _combination(xp, state.curvatures * along_y - _times(xp, state.y, u), state.inverse)
        return u + _combination(xp, along_s, state.s)

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
        one = xp.tril(xp.triu(xp.ones_like(state.inverse)))
        # of a pair that is left out, whatever the inverse has is multiplied by zero
        upper = xp.triu(xp.matmul(s, xp.matrix_transpose(y))) + xp.where(kept[:, :, None], xp.zeros_like(one), one)
        change = dot(xp, y[:, -1, :], y[:, -1, :])
        newest = xp.where(kept[:, -1:], curvatures[:, -1:] / one_if_zero(xp, change), state.factor)
        curvatures = xp.where(kept, curvatures, xp.zeros_like(curvatures))
        of_free = State(s, y, _inverse(upper), curvatures, newest, state.width, state.gain, state.diagonal)
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
        "fade": FADE,
        "gain": GAIN,
        "spread": SPREAD,
        "clear": CLEAR,
        "flatter": FLATTER,
        "steeper": STEEPER,
    }


def _scales(
    xp: Namespace, s: Array, y: Array, curvature: Array, change: Array, state: State
) -> tuple[Array, Array, Array]:
    """Return the gain, the width and E after a pair, of which s has length 1 and y the length ``change``."""
    even = change / curvature * change
    old = xp.where(state.curvatures[:, -1:] == 0.0, even, state.diagonal)
    along_s, along_y = dot(xp, old * s, s), dot(xp, y / old, y)
    gain = FADE * state.gain + xp.log(change / along_s) + xp.log(change / along_y)
    width = xp.where(gain > GAIN, xp.sqrt(along_s) * xp.sqrt(along_y), change) / curvature
    # scaled, the old E has the curvature along y
    new = (along_y / curvature) * old * (1.0 - old * s / along_s * s) + y / curvature * y
    return gain, width, xp.clip(new, even / SPREAD, SPREAD * even)


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

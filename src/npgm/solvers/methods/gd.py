"""Gradient descent."""

from __future__ import annotations

from dataclasses import dataclass

from npgm._array import Array, Namespace
from npgm.solvers.method import Method, register
from npgm.solvers.methods.npgm import NPGM


@register
@dataclass(frozen=True)
class GD(Method):
    """x ← x - γ ∇f(x).

    Args:
        lr: γ > 0; at most 1/L, and less than 2/L, for an L-Lipschitz gradient.
    """

    key = "gd"
    update = "x ← x - γ ∇f(x)"

    @property
    def as_npgm(self) -> NPGM:
        return NPGM(self.lr, reference=self.measure)

    @property
    def sharpness_limit(self) -> float:
        return 2.0 / self.lr

    def init(self, xp: Namespace, x: Array) -> None:
        return None

    def step(self, xp: Namespace, x: Array, grad: Array, state: None) -> tuple[Array, None]:
        return x - self.lr * grad, None

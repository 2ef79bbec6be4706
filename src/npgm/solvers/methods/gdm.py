"""Gradient descent with heavy-ball momentum."""

from __future__ import annotations

from dataclasses import dataclass

from npgm import _validate
from npgm._array import Array, Namespace
from npgm.solvers.method import Method, heavy_ball, heavy_ball_limit, register
from npgm.solvers.methods.npgm import NPGM


@register
@dataclass(frozen=True)
class GDM(Method):
    """x ← x - γ m with m ← β m + (1-β) ∇f(x), from m = 0.

    This is Polyak's heavy ball with the stepsize (1-β)γ.

    Args:
        lr: γ > 0.
        momentum: β in [0, 1).
    """

    key = "gdm"
    update = "m ← β m + (1-β) ∇f(x);  x ← x - γ m"

    momentum: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "momentum", _validate.fraction("momentum", self.momentum))

    @property
    def as_npgm(self) -> NPGM:
        return NPGM(self.lr, self.momentum, self.measure)

    @property
    def sharpness_limit(self) -> float:
        return heavy_ball_limit(self.lr, self.momentum)

    def init(self, xp: Namespace, x: Array) -> Array:
        return xp.zeros_like(x)

    def step(self, xp: Namespace, x: Array, grad: Array, state: Array) -> tuple[Array, Array]:
        return heavy_ball(x, grad, state, self.lr, self.momentum)

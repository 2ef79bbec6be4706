"""Gradient descent with heavy-ball momentum."""

from __future__ import annotations

from dataclasses import dataclass

from npgm import _validate
from npgm.kernels import Quadratic
from npgm.references import Isotropic
from npgm.solvers.directions import Preconditioned
from npgm.solvers.heavy_ball import HeavyBall
from npgm.solvers.method import register
from npgm.solvers.methods.npgm import NPGM


@register
@dataclass(frozen=True)
class GDM(HeavyBall):
    """x ← x - γ m with m ← β m + (1-β) ∇f(x), from m = 0.

    This is Polyak's heavy ball with the stepsize (1-β)γ.

    Args:
        lr: γ > 0, or a rule, see `npgm.solvers.stepsizes`.
        momentum: β in [0, 1).
    """

    key = "gdm"
    update = "m ← β m + (1-β) ∇f(x);  x ← x - γ m"

    momentum: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "momentum", _validate.fraction("momentum", self.momentum))

    @property
    def direction(self) -> Preconditioned:
        return Preconditioned(Isotropic(Quadratic()))

    @property
    def as_npgm(self) -> NPGM | None:
        return NPGM(self.lr, self.momentum, self.measure).as_npgm

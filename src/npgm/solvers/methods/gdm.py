"""Gradient descent with heavy-ball momentum."""

from __future__ import annotations

from dataclasses import dataclass

from npgm._common import validate
from npgm.solvers.heavy_ball import HeavyBall
from npgm.solvers.method import register


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
        validate.fields(self, momentum=validate.fraction)

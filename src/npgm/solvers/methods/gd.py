"""Gradient descent."""

from __future__ import annotations

from dataclasses import dataclass, field

from npgm.solvers.heavy_ball import HeavyBall
from npgm.solvers.method import register


@register
@dataclass(frozen=True)
class GD(HeavyBall):
    """x ← x - γ ∇f(x).

    Args:
        lr: γ > 0, at most 1/L, and less than 2/L, for an L-Lipschitz gradient; or a rule, see `npgm.solvers.stepsizes`.
    """

    key = "gd"
    update = "x ← x - γ ∇f(x)"

    momentum: float = field(default=0.0, init=False)

"""What the optimizers of `npgm.torch`, `npgm.optax` and `npgm.keras` ask of a reference function."""

from __future__ import annotations

import math
from typing import Any

from npgm.references.base import Reference
from npgm.references.isotropic import Isotropic


def like_sgd(phi: Reference, scale: Any, momentum: Any, *, follows: bool) -> Any:
    """Return what makes of ∇φ* of small gradients, averaged, the steps of SGD with the same momentum.

    Args:
        phi: φ, whose own λ does not matter.
        scale: λ.
        momentum: β, 0 for none.
        follows: whether λ follows the gradients.

    Raises:
        ValueError: if λ is no fixed number, or ∇φ* is not linear at small gradients.
    """
    if follows:
        raise ValueError(
            "lr_like='sgd' needs a number as scale; with scale='auto', lr is in the units of the parameters"
        )
    if not 0.0 < phi.curvature_at_zero < math.inf:
        raise ValueError(f"lr_like='sgd' needs a φ whose ∇φ* is linear at small gradients, not {phi!r}")
    return scale / (phi.kernel.curvature_at_zero * (1.0 - momentum))


def default_scope(lift: str) -> str:
    """Return what a φ of this lift sees as one vector where nothing is said."""
    return "global" if lift == Isotropic.lift else "tensor"

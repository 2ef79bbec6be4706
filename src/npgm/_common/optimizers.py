"""What `npgm.torch` and `npgm.optax` have in common: options, and the recurrence of ``scale="auto"``."""

from __future__ import annotations

import math
from typing import Any

from npgm._common import validate
from npgm._common.array import Array

MOMENTUM_ORDERS = ("after", "before")
LR_LIKE = ("paper", "sgd")
ADJUSTMENTS = ("aspect", "rms")

OUTLIER = 10.0
"""A measurement counts for at most so many times the running root mean square (docs/auto-scale.md)."""

LIMIT_DECAY = 0.99
"""The decay of the running mean by which ``limit`` cuts gradients."""


def checked_limit(name: str, value: Any) -> float:
    """Return ``value`` as a float in (1, ∞), or raise."""
    if not (number := validate.positive(name, value)) > 1.0:
        raise ValueError(f"{name} must be greater than 1, not {value!r}")
    return number


def adjustment(adjust: str, outputs: int, inputs: int) -> float:
    """Return by what ∇φ* of a matrix that maps so many inputs to so many outputs is multiplied."""
    return (
        math.sqrt(max(1.0, outputs / max(inputs, 1))) if adjust == "aspect" else 0.2 * math.sqrt(max(outputs, inputs))
    )


def update_rms(
    xp: Any, size: Array, rms: Array, weight: Array, decay: Any, applies: Any = True, outlier: Any = OUTLIER
) -> tuple[Array, Array, Array]:
    """Take a measurement into the running mean of squares, by (2) to (4) of docs/auto-scale.md.

    Args:
        xp: the library of the arrays, which have one shape.
        size: what is measured, the norm or a root mean square; zero and what is not finite do not count.
        rms: the root of the mean, from 0.
        weight: the sum of its weights, from 0.
        decay: ρ.
        applies: whether anything counts.
        outlier: a measurement counts for at most so many times the mean.

    Returns:
        The new ``rms`` and ``weight``, and the root mean square that they say: λ with κ = 1, which is 1 at first.
    """
    counts = applies & (size > 0) & xp.isfinite(size)
    limited = (weight > 0) & (decay > 0)  # without a memory there is nothing that an outlier would spoil
    size = xp.where(limited, xp.minimum(size, outlier * _mean(xp, rms, weight)), size)
    rms = xp.where(counts, xp.hypot(decay**0.5 * rms, (1.0 - decay) ** 0.5 * size), rms)
    weight = xp.where(counts, decay * weight + (1.0 - decay), weight)
    return rms, weight, xp.where(weight > 0, _mean(xp, rms, weight), 1.0)


def excess(xp: Any, size: Array, rms: Array, weight: Array, limit: Any) -> Array:
    """Return by what a gradient of some size is divided under ``limit``, before that size is taken into the mean.

    It is 1 at first, and for what is not finite.
    """
    most = xp.where(weight > 0, limit * _mean(xp, rms, weight), xp.inf)
    return xp.where(xp.isfinite(size) & (size > most), size / most, 1.0)


def _mean(xp: Any, rms: Array, weight: Array) -> Array:
    return rms / xp.sqrt(xp.where(weight > 0, weight, 1.0))

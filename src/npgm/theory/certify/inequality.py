"""The descent inequality between points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npgm._common import validate
from npgm._common.array import Floats
from npgm.references import Reference
from npgm.theory.flat import on_vectors

Function = Callable[[Floats], tuple[Any, Floats]]


def descent(function: Function, reference: Reference | str, points: Any, smoothness: float) -> Floats:
    """Return the slack of the descent inequality (4) between each of the points and the next one, both ways.

    f(y) <= f(x) + (1/L) [φ(L (y - x) + ∇φ*(∇f(x))) - φ(∇φ*(∇f(x)))]: right side minus left side, +∞ where the
    argument leaves the domain of φ. Negative beyond rounding, it refutes L.

    Args:
        function: f and ∇f at a vector of shape (n,).
        reference: φ.
        points: of shape (k + 1, n), such as the iterates of a run.
        smoothness: L.

    Returns:
        An array of shape (k, 2): from x^j to x^{j+1}, and back. NaN where φ(∇φ*(∇f)) overflows.

    Raises:
        ValueError: if f or its gradient is not finite at one of the points.
    """
    L = validate.positive("smoothness", smoothness)
    points = np.asarray(points, dtype=np.float64)
    if points.ndim != 2 or points.shape[0] < 2:
        raise ValueError(f"points must have shape (k + 1, n) with k >= 1, not {points.shape}")
    phi = on_vectors(reference, points.shape[1])
    pairs = [function(x) for x in points]
    values = np.array([float(value) for value, _ in pairs])
    gradients = np.stack([np.asarray(grad, dtype=np.float64) for _, grad in pairs])
    finite = np.isfinite(values) & np.isfinite(gradients).all(axis=1)
    if not finite.all():
        raise ValueError(f"f and its gradient must be finite, but are not at point {int(np.argmin(finite))}")
    u, stationarity = phi.precondition(gradients, axis=-1), phi.stationarity(gradients, axis=-1)

    def slack(source: slice, target: slice) -> Floats:
        model = phi(L * (points[target] - points[source]) + u[source], axis=-1) - stationarity[source]
        difference: Floats = values[source] + model / L - values[target]
        return difference

    with np.errstate(over="ignore", invalid="ignore"):
        return np.stack([slack(slice(None, -1), slice(1, None)), slack(slice(1, None), slice(None, -1))], axis=1)

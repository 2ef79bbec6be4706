"""Functions whose proximal points are found entry after entry: by NumPy on the host, whatever the array library."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

from npgm._common import validate
from npgm._common.array import Array, Axis, Floats, Namespace, as_real_array, axes_last, from_host, promote, to_numpy
from npgm.proximal.base import Proximable, as_vectors, per_point
from npgm.proximal.values import Comparable, nonnegative


@dataclass(frozen=True)
class TotalVariation(Proximable):
    """g(z) = τ Σ|zᵢ₊₁ - zᵢ| + σ Σ|zᵢ|: total variation in one dimension, and with σ > 0 the fused lasso.

    The differences are taken along the last axis of a point; for a matrix, within each row.

    The Euclidean step is exact and takes O(n) time: the dynamic programme of Johnson (2013), then soft thresholding
    (Friedman, Hastie, Höfling and Tibshirani, 2007). It runs in Python on the host, one point after another, and does
    not compile under JAX.

    Args:
        weight: τ ≥ 0.
        l1: σ ≥ 0.
    """

    weight: float = 1.0
    l1: float = 0.0

    def __post_init__(self) -> None:
        validate.fields(self, weight=validate.nonnegative, l1=validate.nonnegative)

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        xp, z, restore = promote(z)
        points, count, _ = axes_last(xp, z, axis)
        jumps, axes = points[..., 1:] - points[..., :-1], tuple(range(-count, 0))
        return restore(self.weight * xp.sum(xp.abs(jumps), axis=axes) + self.l1 * xp.sum(xp.abs(points), axis=axes))

    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        points, count, back = axes_last(xp, y, axis)
        t = per_point(xp, t, y, axis, count)
        z = _on_host(lambda row, t: _fused(row, t * self.weight), points, t)
        return restore(back(z - xp.clip(z, -t * self.l1, t * self.l1)))


@dataclass(frozen=True, eq=False)
class SortedL1(Comparable, Proximable):
    """g(z) = Σ wᵢ|z|₍ᵢ₎, with |z|₍₁₎ ≥ |z|₍₂₎ ≥ ...: the penalty of SLOPE (Bogdan et al., 2015), or OWL.

    The Euclidean step is an isotonic regression by SciPy, on the host, one point after another; it does not compile
    under JAX.

    Args:
        weights: w, not increasing, ≥ 0, one for each entry of a point.
    """

    weights: Floats

    def __post_init__(self) -> None:
        validate.fields(self, weights=nonnegative)
        if np.ndim(self.weights) != 1:
            raise ValueError(f"weights must have one number for each entry, in one axis, not {self.weights!r}")
        if (np.diff(self.weights) > 0.0).any():
            raise ValueError(f"weights must not increase, as they are for sorted entries, but are {self.weights!r}")

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        xp, z, restore = promote(z)
        rows, _ = self._rows(xp, z, axis)
        falling = xp.sort(xp.abs(rows), axis=-1, descending=True)
        return restore(xp.sum(from_host(xp, self.weights, rows) * falling, axis=-1))

    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        rows, back = self._rows(xp, y, axis)
        return restore(back(_on_host(self._of_row, rows, per_point(xp, t, y, axis))))

    def _rows(self, xp: Namespace, y: Array, axis: Axis) -> tuple[Array, Callable[[Array], Array]]:
        rows, back = as_vectors(xp, y, axis)
        if rows.shape[-1] != self.weights.size:
            raise ValueError(f"weights has {self.weights.size} numbers, but a point {rows.shape[-1]} entries")
        return rows, back

    def _of_row(self, y: Floats, t: float) -> Floats:
        order = np.argsort(-np.abs(y))
        falling: Floats = isotonic_regression(np.abs(y[order]) - t * self.weights, increasing=False).x
        z = np.empty_like(y)
        z[order] = np.sign(y[order]) * np.maximum(falling, 0.0)
        return z


def _on_host(function: Callable[[Floats, float], Floats], rows: Array, t: float | Array) -> Array:
    """Return ``function`` of each row, with its own t; of a row that is not finite, NaN."""
    host = to_numpy(rows).astype(np.float64)
    flat = host.reshape(-1, host.shape[-1])
    ts = np.broadcast_to(to_numpy(t), (*host.shape[:-1], 1)).ravel()
    each = [
        function(row, float(t)) if np.isfinite(row).all() else np.full_like(row, math.nan)
        for row, t in zip(flat, ts, strict=True)
    ]
    xp, _ = as_real_array(rows)
    return from_host(xp, np.reshape(each, host.shape), rows)


def _fused(y: Floats, tau: float) -> Floats:
    """Return argmin τ Σ|zᵢ₊₁ - zᵢ| + ½‖z - y‖².

    The derivative of the least value of all terms up to entry i, as a function of zᵢ, rises piecewise linearly. What is
    handed on to the next entry is cut off at ±τ, at points between which zᵢ follows zᵢ₊₁.
    """
    mean = y.mean()
    centred = y - mean
    if tau >= np.abs(np.cumsum(centred)[:-1]).max(initial=0.0):
        return np.full_like(y, mean)
    *first, last = centred.tolist()
    knots: deque[tuple[float, float, float]] = deque()  # where a line az + b ends, and what is added to a and b there
    lows, highs = [], []
    outer = 0.0  # what is handed on left of all knots is -outer, and right of them outer
    for value in first:
        a, b = 1.0, -outer - value
        while knots and a * knots[0][0] + b <= -tau:
            _, steeper, higher = knots.popleft()
            a, b = a + steeper, b + higher
        c, d = 1.0, outer - value
        while knots and c * knots[-1][0] + d >= tau:
            _, steeper, higher = knots.pop()
            c, d = c - steeper, d - higher
        lows.append((-tau - b) / a)
        highs.append((tau - d) / c)
        knots.appendleft((lows[-1], a, b + tau))
        knots.append((highs[-1], -c, tau - d))
        outer = tau
    a, b = 1.0, -outer - last
    while knots and a * knots[0][0] + b <= 0.0:
        _, steeper, higher = knots.popleft()
        a, b = a + steeper, b + higher
    z = [-b / a]
    for low, high in zip(reversed(lows), reversed(highs), strict=True):
        z.append(max(low, min(z[-1], high)))
    result: Floats = np.array(z[::-1]) + mean
    return result

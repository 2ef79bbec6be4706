"""Remez's algorithm for odd polynomials of degree 5 that compose to the sign.

``python tests/support/remez.py`` prints the coefficients of `npgm.torch.spectral.minimax`.
"""

from __future__ import annotations

import numpy as np

from npgm._common.array import Floats
from npgm.torch.spectral.minimax import RATIOS, Quintic


def quintic(low: float, high: float) -> tuple[Quintic, float]:
    """Return the odd polynomial of degree 5 closest to 1 on [low, high], and its largest deviation.

    Remez's algorithm: the deviation alternates between four points, both ends and the two extrema between them.
    """
    inner = np.array([0.75 * low + 0.25 * high, 0.25 * low + 0.75 * high])
    signs = np.array([1.0, -1.0, 1.0, -1.0])
    error = 0.0
    for _ in range(200):
        x = np.array([low, *inner, high])
        *coefficients, deviation = np.linalg.solve(np.stack([x, x**3, x**5, signs], axis=1), np.ones(4))
        a, b, c = (float(value) for value in coefficients)
        if abs(abs(deviation) - error) <= 1e-15:
            break
        error = abs(float(deviation))
        squares = np.roots([5.0 * c, 3.0 * b, a])  # where the derivative vanishes
        inner = np.sort(np.sqrt(np.real(squares)))
    return (a, b, c), abs(float(deviation))


def composition(ratio: float, steps: int) -> tuple[list[Quintic], float]:
    """Return the polynomials that take [1/ratio, 1] close to 1 in so many steps, and the last largest deviation."""
    low, high, polynomials, deviation = 1.0 / ratio, 1.0, [], np.inf
    for _ in range(steps):
        polynomial, deviation = quintic(low, high)
        polynomials.append(polynomial)
        low, high = 1.0 - deviation, 1.0 + deviation
    return polynomials, deviation


def value(polynomials: list[Quintic], x: Floats) -> Floats:
    """Return the composition of the polynomials at x."""
    for a, b, c in polynomials:
        x = x * (a + x * x * (b + x * x * c))
    return x


if __name__ == "__main__":
    for steps, ratio in RATIOS.items():
        print(steps, *composition(ratio, steps)[0], sep="\n    ")

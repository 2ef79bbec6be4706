"""Odd polynomials of degree 5 that compose to the sign: Remez's algorithm, and the coefficients it gave.

An odd polynomial that is close to 1 on [l, 1] takes the matrix U diag(σ) Vᵀ with σ in there close to U Vᵀ. Of all
compositions of those of given degrees, the greedy one is best: each is the polynomial closest to 1 on the interval in
which those before it leave the singular values (Amsel, Persson, Musco and Gower, *The Polar Express*, 2025).
"""

from __future__ import annotations

import numpy as np

from npgm._array import Floats

Quintic = tuple[float, float, float]
"""The a, b, c of a x + b x³ + c x⁵."""


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


COEFFICIENTS: dict[int, list[Quintic]] = {
    4: [
        (7.321158542733656, -20.58087768653918, 15.031560569912362),
        (2.886640248795928, -2.1581170069446256, 0.472805800841848),
        (2.0330076439038787, -1.4161937834404326, 0.3919694184846775),
        (1.8761008101593035, -1.2512225791911031, 0.37512227894772127),
    ],
    5: [
        (8.093368512548258, -23.620430328824277, 17.44615174983625),
        (3.6365855542590415, -2.721926746608908, 0.5365462883273613),
        (2.661299985777098, -1.9771545218846227, 0.4526164069964004),
        (1.9561716388844532, -1.3375077459440714, 0.3838527013298795),
        (1.875165562736201, -1.2501839462931206, 0.3750183951054192),
    ],
    6: [
        (8.376619382885405, -24.738056165756824, 18.334929277658063),
        (4.032465678025137, -3.0037220154314213, 0.5686362840541193),
        (3.4743095935888073, -2.6037519593912246, 0.5231191711820216),
        (2.4543595381779726, -1.8037123712830265, 0.43348159104663114),
        (1.9115909454289468, -1.2900823687450291, 0.37903027809921985),
        (1.8750162151484824, -1.2500180167126231, 0.37500180167493713),
    ],
    7: [
        (8.470328803848073, -25.108074706661885, 18.62927559911802),
        (4.1828341832939415, -3.108701109889242, 0.5806066813500493),
        (3.961857278961599, -2.9540637463593784, 0.5629761179538965),
        (3.2865862170279523, -2.4647201345312766, 0.5073576938614541),
        (2.2737499944340356, -1.6446603679080671, 0.4161909274978863),
        (1.8887161973518298, -1.265157225338602, 0.3765189255574914),
        (1.8750008858745368, -1.2500009843220083, 0.37500009844780197),
    ],
}
"""What `composition` returns for the ratios of `RATIOS`, by the number of steps."""

RATIOS = {4: 32.0, 5: 100.0, 6: 316.0, 7: 1000.0}
"""The largest quotient of singular values for which so many steps suffice, for a deviation of 2e-5 or less."""

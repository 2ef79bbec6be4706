"""PANOC, a peer of `minimize` with ``prox``.

Algorithm 1 of Stella, Themelis, Sopasakis and Patrinos, A simple and efficient algorithm for nonlinear model predictive
control (2017). Where L is not known, γ is chosen as in PANOC+ of De Marchi and Themelis, Proximal gradient algorithms
under local Lipschitz gradient continuity (2022): with the rule of the former, the envelope may rise without bound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from npgm._common.array import Floats
from npgm.proximal import Proximable

Function = Callable[[Floats], tuple[float, Floats]]
ALPHA, BETA = 0.95, 0.5
"""γ = ALPHA/L, and σ is this share of its largest value, γ(1 - γL)/2."""
MEMORY = 10
HALVINGS = 10
"""After so many halvings of τ it is 0: the step is that of forward-backward splitting."""


class Point(NamedTuple):
    """A point with what PANOC needs there."""

    x: Floats
    f: float
    grad: Floats
    forward: Floats
    """T(x) = prox_γg(x - γ∇f(x))."""
    residual: Floats
    """R(x) = (x - T(x))/γ."""
    envelope: float
    """The forward-backward envelope, f(x) + ⟨∇f(x), T(x) - x⟩ + ‖T(x) - x‖²/(2γ) + g(T(x))."""
    gamma: float
    """γ."""


def panoc(fun: Function, start: Floats, g: Proximable, lipschitz: float | None = None) -> Iterator[Point]:
    """Yield the iterates, from the start on, without an end.

    Args:
        fun: f and ∇f.
        start: x⁰, of any shape.
        g: the other function.
        lipschitz: L; None to find it: it is doubled until f is below its quadratic model at T(x), for which f is
            evaluated there.
    """
    f, grad = fun(start)
    L = lipschitz if lipschitz is not None else _secant(fun, start, grad)
    here = _point(g, start, f, grad, ALPHA / L)
    while lipschitz is None and _above_model(fun, here, L):
        L *= 2.0
        here = _point(g, start, f, grad, ALPHA / L)
    pairs: deque[tuple[Floats, Floats]] = deque(maxlen=MEMORY)
    yield here
    while True:
        direction = -_product(pairs, here.residual)
        enough = here.envelope - BETA * here.gamma * (1.0 - ALPHA) / 2.0 * float(np.sum(here.residual**2))
        for tau in (*(0.5**i for i in range(HALVINGS + 1)), 0.0):
            x = here.x - (1.0 - tau) * here.gamma * here.residual + tau * direction
            there = _point(g, x, *fun(x), here.gamma)
            above = lipschitz is None and _above_model(fun, there, L)
            if above or there.envelope <= enough:
                break
        if above:  # γ is too long there: the step is taken anew with half of it
            L *= 2.0
            pairs.clear()
            here = _point(g, here.x, here.f, here.grad, ALPHA / L)
            continue
        s, y = there.x - here.x, there.residual - here.residual
        if float(np.sum(s * y)) > 1e-12 * float(np.sum(s * s)) * float(np.linalg.norm(here.residual)):
            pairs.append((s, y))
        here = there
        yield here


def _point(g: Proximable, x: Floats, f: float, grad: Floats, gamma: float) -> Point:
    forward = np.asarray(g.prox(x - gamma * grad, gamma))
    step = forward - x
    model = f + float(np.sum(grad * step)) + float(np.sum(step**2)) / (2.0 * gamma)
    return Point(x, f, grad, forward, -step / gamma, model + float(g(forward)), gamma)


def _secant(fun: Function, x: Floats, grad: Floats) -> float:
    """Return ‖Δ∇f‖/‖Δx‖ at a short step from x."""
    step = 1e-6 * np.maximum(np.abs(x), 1.0)
    return float(np.linalg.norm(fun(x + step)[1] - grad) / np.linalg.norm(step)) or 1.0


def _above_model(fun: Function, here: Point, L: float) -> bool:
    """Return whether f at T(x) is above f(x) + ⟨∇f(x), T(x) - x⟩ + (L/2)‖T(x) - x‖², but for rounding."""
    step = here.forward - here.x
    bound = here.f + float(np.sum(here.grad * step)) + 0.5 * L * float(np.sum(step**2))
    return not fun(here.forward)[0] <= bound + 1e-12 * abs(here.f)


def _product(pairs: deque[tuple[Floats, Floats]], residual: Floats) -> Floats:
    """Return the product of the L-BFGS matrix of some pairs (s, y), the last the latest, with the residual."""
    q, shares = residual.copy(), []
    for s, y in reversed(pairs):
        share = float(np.sum(s * q) / np.sum(s * y))
        q -= share * y
        shares.append(share)
    if pairs:
        s, y = pairs[-1]
        q *= float(np.sum(s * y) / np.sum(y * y))
    for (s, y), share in zip(pairs, reversed(shares), strict=True):
        q += (share - float(np.sum(y * q) / np.sum(s * y))) * s
    return q

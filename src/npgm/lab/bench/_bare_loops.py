"""Methods of `npgm.solvers` as bare loops in NumPy: the mathematics, a test of convergence, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npgm._common.array import Floats

Function = Callable[[Floats], tuple[float, Floats]]
Loop = Callable[[Function, Floats, int, float], None]

TOL = 1e-300
BETA = 0.9


def _converged(g: Floats) -> bool:
    return bool(np.sqrt(g @ g) <= TOL)


def gd(fun: Function, x: Floats, steps: int, lr: float) -> None:
    for _ in range(steps):
        _, g = fun(x)
        if _converged(g):
            return
        x = x - lr * g


def gdm(fun: Function, x: Floats, steps: int, lr: float) -> None:
    m = np.zeros_like(x)
    for _ in range(steps):
        _, g = fun(x)
        if _converged(g):
            return
        m = BETA * m + (1 - BETA) * g
        x = x - lr * m


def ihgdm(fun: Function, x: Floats, steps: int, lr: float) -> None:
    m = np.zeros_like(x)
    for _ in range(steps):
        _, g = fun(x)
        norm = np.sqrt(g @ g)
        if norm <= TOL:
            return
        m = BETA * m + (1 - BETA) * (np.arcsinh(norm) / norm) * g
        x = x - lr * m


def shgdm(fun: Function, x: Floats, steps: int, lr: float) -> None:
    m = np.zeros_like(x)
    for _ in range(steps):
        _, g = fun(x)
        if _converged(g):
            return
        m = BETA * m + (1 - BETA) * np.arcsinh(g)
        x = x - lr * m


def nesterov(fun: Function, x: Floats, steps: int, lr: float) -> None:
    y, t = x, 1.0
    for _ in range(steps):
        _, g = fun(x)
        if _converged(g):
            return
        y_next, t_next = x - lr * g, (1 + (1 + 4 * t * t) ** 0.5) / 2
        x = y_next + (t - 1) / t_next * (y_next - y)
        y, t = y_next, t_next


def clipped_gd(fun: Function, x: Floats, steps: int, lr: float) -> None:
    m = np.zeros_like(x)
    for _ in range(steps):
        _, g = fun(x)
        norm = float(np.sqrt(g @ g))
        if norm <= TOL:
            return
        m = BETA * m + (1 - BETA) * g
        x = x - 0.7 * min(lr, 1 / float(np.sqrt(m @ m))) * m - 0.3 * min(lr, 1 / norm) * g


def adgd(fun: Function, x: Floats, steps: int, lr: float) -> None:
    _, g = fun(x)
    theta = np.inf
    x_before, g_before, x = x, g, x - lr * g
    for _ in range(steps - 1):
        _, g = fun(x)
        if _converged(g):
            return
        dx, dg = x - x_before, g - g_before
        new = min(np.sqrt(1 + theta) * lr, np.sqrt(dx @ dx) / (2 * np.sqrt(dg @ dg)))
        x_before, g_before, theta, lr = x, g, new / lr, new
        x = x - lr * g


def adgd_accel(fun: Function, x: Floats, steps: int, lr: float) -> None:
    _, g = fun(x)
    mu, lr_growth, mu_growth = 1.0, np.inf, np.inf
    x_before, g_before, x = x, g, x - lr * g
    y = x
    for _ in range(steps - 1):
        _, g = fun(x)
        if _converged(g):
            return
        dx, dg = x - x_before, g - g_before
        ratio = np.sqrt(dx @ dx) / np.sqrt(dg @ dg)
        lr_next = min(np.sqrt(1 + lr_growth / 2) * lr, ratio / 2)
        mu_next = min(np.sqrt(1 + mu_growth / 2) * mu, 1 / (2 * ratio))
        lr_growth, mu_growth, lr, mu = lr_next / lr, mu_next / mu, lr_next, mu_next
        y_next, root = x - lr * g, np.sqrt(lr * mu)
        x_before, g_before, x = x, g, y_next + (1 - root) / (1 + root) * (y_next - y)
        y = y_next

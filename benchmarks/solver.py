"""Time of an iteration of `npgm.minimize` on NumPy, against the same method written as a bare loop, and against SciPy.

A bare loop has the mathematics and a test of convergence, and nothing else. In each round every contender runs in turn,
so that other load on the machine meets all of them; of each, a long run less a short one is timed, so that the way in
and out does not count. The times are those of the processor, on one thread. Prints medians over the rounds, with the
quartiles: "total" is the time of an iteration as a multiple of that of the bare loop, the objective included; "own" is
what is left of it without the objective, in microseconds, which depend on the machine. "auto" counts by
evaluation, once its quasi-Newton steps have begun, and so do SciPy's methods, on Rosenbrock's function.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.optimize
from threadpoolctl import threadpool_limits

import npgm

TOL = 1e-300
BETA = 0.9


def converged(g: np.ndarray) -> bool:
    return bool(np.sqrt(g @ g) <= TOL)


def gd(fun: Callable[..., Any], x: np.ndarray, steps: int, lr: float) -> None:
    for _ in range(steps):
        _, g = fun(x)
        if converged(g):
            return
        x = x - lr * g


def gdm(fun: Callable[..., Any], x: np.ndarray, steps: int, lr: float) -> None:
    m = np.zeros_like(x)
    for _ in range(steps):
        _, g = fun(x)
        if converged(g):
            return
        m = BETA * m + (1 - BETA) * g
        x = x - lr * m


def ihgdm(fun: Callable[..., Any], x: np.ndarray, steps: int, lr: float) -> None:
    m = np.zeros_like(x)
    for _ in range(steps):
        _, g = fun(x)
        norm = np.sqrt(g @ g)
        if norm <= TOL:
            return
        m = BETA * m + (1 - BETA) * (np.arcsinh(norm) / norm) * g
        x = x - lr * m


def shgdm(fun: Callable[..., Any], x: np.ndarray, steps: int, lr: float) -> None:
    m = np.zeros_like(x)
    for _ in range(steps):
        _, g = fun(x)
        if converged(g):
            return
        m = BETA * m + (1 - BETA) * np.arcsinh(g)
        x = x - lr * m


def nesterov(fun: Callable[..., Any], x: np.ndarray, steps: int, lr: float) -> None:
    y, t = x, 1.0
    for _ in range(steps):
        _, g = fun(x)
        if converged(g):
            return
        y_next, t_next = x - lr * g, (1 + (1 + 4 * t * t) ** 0.5) / 2
        x = y_next + (t - 1) / t_next * (y_next - y)
        y, t = y_next, t_next


def clipped_gd(fun: Callable[..., Any], x: np.ndarray, steps: int, lr: float) -> None:
    m = np.zeros_like(x)
    for _ in range(steps):
        _, g = fun(x)
        norm = np.sqrt(g @ g)
        if norm <= TOL:
            return
        m = BETA * m + (1 - BETA) * g
        x = x - 0.7 * min(lr, 1 / np.sqrt(m @ m)) * m - 0.3 * min(lr, 1 / norm) * g


def adgd(fun: Callable[..., Any], x: np.ndarray, steps: int, lr: float) -> None:
    _, g = fun(x)
    theta = np.inf
    x_before, g_before, x = x, g, x - lr * g
    for _ in range(steps - 1):
        _, g = fun(x)
        if converged(g):
            return
        dx, dg = x - x_before, g - g_before
        new = min(np.sqrt(1 + theta) * lr, np.sqrt(dx @ dx) / (2 * np.sqrt(dg @ dg)))
        x_before, g_before, theta, lr = x, g, new / lr, new
        x = x - lr * g


def adgd_accel(fun: Callable[..., Any], x: np.ndarray, steps: int, lr: float) -> None:
    _, g = fun(x)
    mu, lr_growth, mu_growth = 1.0, np.inf, np.inf
    x_before, g_before, x = x, g, x - lr * g
    y = x
    for _ in range(steps - 1):
        _, g = fun(x)
        if converged(g):
            return
        dx, dg = x - x_before, g - g_before
        ratio = np.sqrt(dx @ dx) / np.sqrt(dg @ dg)
        lr_next = min(np.sqrt(1 + lr_growth / 2) * lr, ratio / 2)
        mu_next = min(np.sqrt(1 + mu_growth / 2) * mu, 1 / (2 * ratio))
        lr_growth, mu_growth, lr, mu = lr_next / lr, mu_next / mu, lr_next, mu_next
        y_next, root = x - lr * g, np.sqrt(lr * mu)
        x_before, g_before, x = x, g, y_next + (1 - root) / (1 + root) * (y_next - y)
        y = y_next


IHGDM = {"momentum": BETA, "reference": npgm.reference("isotropic-cosh")}
SHGDM = {"momentum": BETA, "reference": npgm.reference("separable-cosh")}
METHODS: dict[str, tuple[Callable[..., None], str, dict[str, Any]]] = {
    "gd": (gd, "gd", {}),
    "gdm": (gdm, "gdm", {"momentum": BETA}),
    "npgm, isotropic-cosh": (ihgdm, "npgm", IHGDM),
    "npgm, separable-cosh": (shgdm, "npgm", SHGDM),
    "nesterov": (nesterov, "nesterov", {}),
    "clipped_gd": (clipped_gd, "clipped_gd", {"momentum": BETA, "nu": 0.7}),
    "adgd": (adgd, "adgd", {}),
    "adgd_accel": (adgd_accel, "adgd_accel", {}),
}
LR = 1e-9


def rosenbrock(x: np.ndarray) -> tuple[float, np.ndarray]:
    return scipy.optimize.rosen(x), scipy.optimize.rosen_der(x)


def seconds(call: Callable[[], object]) -> float:
    start = time.thread_time()
    call()
    return time.thread_time() - start


def pairs(n: int, steps: int, history: bool) -> Iterator[tuple[str, float, float, float]]:
    """Yield the seconds of an iteration of each method, of its bare loop and of the objective, in turn."""
    curvatures, x0 = np.geomspace(1e-3, 1e3, n), np.linspace(1.0, 2.0, n)

    def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
        g = curvatures * x
        return 0.5 * float(x @ g), g

    def many(count: int) -> None:
        for _ in range(count):
            fun(x0)

    def each(run: Callable[[int], object]) -> float:
        short = max(steps // 4, 2)
        return (seconds(lambda: run(short + steps)) - seconds(lambda: run(short))) / steps

    for name, (loop, method, options) in METHODS.items():
        options = {"lr": LR, "method": method, "tol": TOL, "history": history, **options}
        ours = each(lambda count, options=options: npgm.minimize(fun, x0, maxiter=count, **options))
        yield name, ours, each(lambda count, loop=loop: loop(fun, x0, count, LR)), each(many)


def scipys(n: int, steps: int) -> Iterator[tuple[str, float]]:
    """Yield the seconds that SciPy's methods take for an evaluation, without the evaluation itself."""
    x0 = np.linspace(-1.5, 1.5, n)
    for method in ("CG", "L-BFGS-B"):

        def run(maxiter: int, method: str = method) -> tuple[float, int]:
            start = time.thread_time()
            res = scipy.optimize.minimize(
                rosenbrock, x0, jac=True, method=method, options={"maxiter": maxiter}, tol=1e-12
            )
            return time.thread_time() - start, res.nfev

        (long, many), (short, few) = run(steps), run(1)
        each = seconds(lambda count=many - few: [rosenbrock(x0) for _ in range(count)])
        yield f"scipy {method}", (long - short - each) / (many - few)


def auto(n: int, steps: int) -> tuple[str, float]:
    """Return the seconds that "auto" takes for an evaluation, without it, once the quasi-Newton steps have begun."""
    curvatures, x0, before = np.geomspace(1.0, 1e4, n), np.linspace(1.0, 2.0, n), 200
    nfev = [0, 0]

    def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
        g = curvatures * x
        return 0.5 * float(x @ g), g

    def run(which: int) -> None:
        maxiter = before + which * steps
        nfev[which] = npgm.minimize(fun, x0, maxiter=maxiter, tol=TOL).nfev

    each = seconds(lambda: run(1)) - seconds(lambda: run(0))
    evaluations = nfev[1] - nfev[0]
    own = each - seconds(lambda: [fun(x0) for _ in range(evaluations)])
    return "auto", own / max(evaluations, 1)


def spread(values: list[float], digits: int) -> str:
    low, median, high = statistics.quantiles(values, n=4)
    return f"{median:9.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sizes", type=int, nargs="+", default=[2, 100, 10_000, 1_000_000])
    parser.add_argument("--history", action="store_true", help="record every iteration")
    options = parser.parse_args()
    threadpool_limits(1)
    print(
        f"{platform.machine()}, {platform.python_implementation()} {platform.python_version()}, NumPy {np.__version__}"
    )
    for n in options.sizes:
        steps = max(min(1000, 10_000_000 // n), 5)
        times: dict[str, list[tuple[float, float, float]]] = {}
        others: dict[str, list[float]] = {}
        for _ in range(options.rounds):
            for name, *each in pairs(n, steps, options.history):
                times.setdefault(name, []).append((each[0], each[1], each[2]))
            for name, value in (auto(n, steps), *scipys(n, max(min(50, steps), 3))):
                others.setdefault(name, []).append(value)
        print(f"\nn = {n}, {options.rounds} rounds")
        for name, rounds in times.items():
            total = spread([ours / loop for ours, loop, _ in rounds], 2)
            own = spread([1e6 * (ours - fun) for ours, _, fun in rounds], 1)
            bare = spread([1e6 * (loop - fun) for _, loop, fun in rounds], 1)
            print(f"  {name:22} total {total:28} own µs {own:30} of the loop {bare}", flush=True)
        for name, values in others.items():
            print(f"  {name:22} {'':34} own µs {spread([1e6 * value for value in values], 1)}", flush=True)


if __name__ == "__main__":
    main()

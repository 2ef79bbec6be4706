"""An iteration of `npgm.minimize` on NumPy, against the same method as a bare loop, and against SciPy.

A bare loop has the mathematics and a test of convergence, and nothing else. In each round every contender runs in turn,
so that other load on the machine meets all of them; of each, a long run less a short one is timed, so that the way in
and out does not count. The times are those of the processor, on one thread. Prints medians over the rounds, with the
quartiles: "total" is the time of an iteration as a multiple of that of the bare loop, the objective included; "own" is
what is left of it without the objective, in microseconds, which depend on the machine. "auto", and the default with
an ℓ1 penalty and with bounds, count by evaluation, once their quasi-Newton steps have begun, and so do SciPy's methods,
on Rosenbrock's function.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any

import numpy as np
import scipy.optimize
from threadpoolctl import threadpool_limits
from typer import Option

import npgm
from npgm._common.array import Floats
from npgm.lab.bench import _bare_loops
from npgm.lab.bench._bare_loops import BETA, TOL, Function, Loop
from npgm.lab.bench._shared import Rounds, spread

SIZES = [2, 100, 10_000, 1_000_000]


def run(
    rounds: Rounds = 15,
    sizes: Annotated[list[int], Option(help="Numbers of variables; repeatable.")] = SIZES,
    history: Annotated[bool, Option("--history", help="Record every iteration.")] = False,
) -> None:
    """Print a table for each size."""
    system = f"{platform.machine()}, {platform.python_implementation()} {platform.python_version()}"
    print(f"{system}, NumPy {np.__version__}")
    with threadpool_limits(1):
        for n in sizes:
            _show(n, rounds, history)


def _show(n: int, rounds: int, history: bool) -> None:
    steps = max(min(1000, 10_000_000 // n), 5)
    times: dict[str, list[tuple[float, float, float]]] = {}
    others: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, *each in _pairs(n, steps, history):
            times.setdefault(name, []).append((each[0], each[1], each[2]))
        for name, value in (*_defaults(n, steps), *_scipys(n, max(min(50, steps), 3))):
            others.setdefault(name, []).append(value)
    print(f"\nn = {n}, {rounds} rounds")
    for name, values in times.items():
        total = spread([ours / loop for ours, loop, _ in values])
        own = spread([1e6 * (ours - fun) for ours, _, fun in values], 1)
        bare = spread([1e6 * (loop - fun) for _, loop, fun in values], 1)
        print(f"  {name:22} total {total:28} own µs {own:30} of the loop {bare}", flush=True)
    for name, each_round in others.items():
        print(f"  {name:22} {'':34} own µs {spread([1e6 * value for value in each_round], 1)}", flush=True)


IHGDM = {"momentum": BETA, "reference": npgm.reference("isotropic-cosh")}
SHGDM = {"momentum": BETA, "reference": npgm.reference("separable-cosh")}
METHODS: dict[str, tuple[Loop, str, dict[str, Any]]] = {
    "gd": (_bare_loops.gd, "gd", {}),
    "gdm": (_bare_loops.gdm, "gdm", {"momentum": BETA}),
    "npgm, isotropic-cosh": (_bare_loops.ihgdm, "npgm", IHGDM),
    "npgm, separable-cosh": (_bare_loops.shgdm, "npgm", SHGDM),
    "nesterov": (_bare_loops.nesterov, "nesterov", {}),
    "clipped_gd": (_bare_loops.clipped_gd, "clipped_gd", {"momentum": BETA, "nu": 0.7}),
    "adgd": (_bare_loops.adgd, "adgd", {}),
    "adgd_accel": (_bare_loops.adgd_accel, "adgd_accel", {}),
}
LR = 1e-9
DEFAULTS: dict[str, dict[str, Any]] = {
    "auto": {},
    "with an ℓ1 penalty": {"prox": npgm.proximal.L1(0.1)},
    "with bounds": {"bounds": npgm.proximal.Box(-0.5, 0.5)},
}


def _rosenbrock(x: Floats) -> tuple[float, Floats]:
    return scipy.optimize.rosen(x), scipy.optimize.rosen_der(x)


def _seconds(call: Callable[[int], object], count: int) -> float:
    start = time.thread_time()
    call(count)
    return time.thread_time() - start


def _repeated(fun: Function, x: Floats, count: int) -> None:
    for _ in range(count):
        fun(x)


def _pairs(n: int, steps: int, history: bool) -> Iterator[tuple[str, float, float, float]]:
    """Yield the seconds of an iteration of each method, of its bare loop and of the objective, in turn."""
    curvatures, x0 = np.geomspace(1e-3, 1e3, n), np.linspace(1.0, 2.0, n)

    def fun(x: Floats) -> tuple[float, Floats]:
        g = curvatures * x
        return 0.5 * float(x @ g), g

    def each(run: Callable[[int], object]) -> float:
        short = max(steps // 4, 2)
        return (_seconds(run, short + steps) - _seconds(run, short)) / steps

    for name, (loop, method, options) in METHODS.items():
        given = {"lr": LR, "method": method, "tol": TOL, "history": history, **options}
        yield (
            name,
            each(_minimize(fun, x0, given)),
            each(partial(_looped, loop, fun, x0)),
            each(partial(_repeated, fun, x0)),
        )


def _minimize(fun: Function, x0: Floats, options: dict[str, Any]) -> Callable[[int], object]:
    return lambda maxiter: npgm.minimize(fun, x0, maxiter=maxiter, **options)


def _looped(loop: Loop, fun: Function, x0: Floats, steps: int) -> None:
    loop(fun, x0, steps, LR)


def _scipys(n: int, steps: int) -> Iterator[tuple[str, float]]:
    """Yield the seconds that SciPy's methods take for an evaluation, without the evaluation itself."""
    x0 = np.linspace(-1.5, 1.5, n)
    for method in ("CG", "L-BFGS-B"):

        def until(maxiter: int, method: str = method) -> tuple[float, int]:
            start = time.thread_time()
            res = scipy.optimize.minimize(
                _rosenbrock, x0, jac=True, method=method, options={"maxiter": maxiter}, tol=1e-12
            )
            return time.thread_time() - start, res.nfev

        (long, many), (short, few) = until(steps), until(1)
        each = _seconds(partial(_repeated, _rosenbrock, x0), many - few)
        yield f"scipy {method}", (long - short - each) / (many - few)


def _defaults(n: int, steps: int) -> Iterator[tuple[str, float]]:
    """Yield the seconds that the defaults take for an evaluation, without it, once quasi-Newton steps have begun."""
    curvatures, x0 = np.geomspace(1.0, 1e4, n), np.linspace(1.0, 2.0, n)
    slope = curvatures * np.linspace(-1.0, 1.0, n)

    def fun(x: Floats) -> tuple[float, Floats]:
        g = curvatures * x - slope
        return 0.5 * float(x @ (g - slope)), g

    for name, options in DEFAULTS.items():
        nfev = [0, 0]

        def run(which: int, options: dict[str, Any] = options, nfev: list[int] = nfev) -> None:
            maxiter = 20 + which * min(steps, 60)  # before they converge
            nfev[which] = npgm.minimize(fun, x0, maxiter=maxiter, tol=TOL, **options).nfev

        each = _seconds(run, 1) - _seconds(run, 0)
        evaluations = nfev[1] - nfev[0]
        own = each - _seconds(partial(_repeated, fun, x0), evaluations)
        yield name, own / max(evaluations, 1)

"""Evaluations that minimize takes with bounds, against L-BFGS-B, and with an ℓ1 penalty, against the heavy ball.

With bounds until the projected gradient, ‖x - P(x - ∇f(x))‖, is 1e-6 of the first, at any point that is evaluated;
with a penalty until a subgradient is at most 1e-6. A method that takes more than the limit has failed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import numpy as np
import scipy.optimize
from scipy.special import expit
from typer import Option

import npgm
from npgm._common.array import Floats
from npgm.lab.bench._shared import Seeds
from npgm.lab.experiments.contest.problems import suite
from npgm.problems import NonnegativeFactorization, SparseLogisticRegression
from npgm.proximal import L1, Box

Function = Callable[[Floats], tuple[Any, Floats]]
TOL = 1e-6


def run(
    seeds: Seeds = 5,
    limit: Annotated[int, Option(min=1, help="Evaluations after which a method has failed.")] = 10_000,
    movielens: Annotated[bool, Option("--movielens", help="Factorise MovieLens 100K at rank 10, too.")] = False,
) -> None:
    """Print a line for each kind of problem."""
    print(f"{'bounds':28} {'solved':>7} {'L-BFGS-B':>9}   evaluations over those of L-BFGS-B")
    ratios: list[float] = []
    for name, make in BOXES.items():
        ratios += _against_scipy(name, [make(seed) for seed in range(seeds)], TOL, limit)
    ratios += _against_scipy("held out of the contest", [*_contest()], TOL, limit)
    _show_ratios("all", ratios)
    if movielens:
        starts = [_factorization(_ratings(), 10, seed) for seed in range(seeds)]
        _against_scipy("MovieLens 100K, rank 10", starts, None, limit)
    print(f"\n{'ℓ1 penalty':28} evaluations: median [least, most]; the heavy ball")
    for name, each in PENALTIES.items():
        problems = [each(seed) for seed in range(seeds)]
        print(f"{name:28} {_evaluations(problems, limit)}; {_evaluations(problems, limit, lr='auto')}", flush=True)


def _quadratic(n: int, condition: float) -> Callable[[int], tuple[Function, Floats, Box]]:
    """½x'Hx - c'x, with bounds on half of the entries, within the free minimiser's."""

    def make(seed: int) -> tuple[Function, Floats, Box]:
        rng = np.random.default_rng(seed)
        Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
        H, free = (Q * np.geomspace(1.0, condition, n)) @ Q.T, rng.standard_normal(n)
        c = H @ free
        bound = np.where(rng.random(n) < 0.5, 0.8 * rng.random(n) * np.abs(free), np.inf)
        return (lambda x: (0.5 * x @ H @ x - c @ x, H @ x - c)), np.zeros(n), Box(-bound, bound)

    return make


def _rosenbrock(seed: int) -> tuple[Function, Floats, Box]:
    rng, n = np.random.default_rng(seed), (2, 5, 10, 50, 100)[seed % 5]
    lower, upper = rng.uniform(-2.0, -0.5, n), rng.uniform(0.3, 1.5, n)
    start = np.clip(rng.uniform(-1.5, 1.2, n), lower, upper)
    return (lambda x: (scipy.optimize.rosen(x), scipy.optimize.rosen_der(x))), start, Box(lower, upper)


def _logistic(seed: int) -> tuple[Function, Floats, Box]:
    """Nonnegative weights, but the intercept, of 200 samples of 50 features of unlike scales."""
    rng = np.random.default_rng(seed)
    A = np.hstack([rng.standard_normal((200, 50)) * 10.0 ** rng.uniform(-1.0, 1.0, 50), np.ones((200, 1))])
    b = np.where(rng.random(200) < expit(A @ (rng.standard_normal(51) / np.linalg.norm(A, axis=0) * 10.0)), 1.0, -1.0)

    def fun(x: Floats) -> tuple[float, Floats]:
        margins = b * (A @ x)
        return float(np.mean(np.logaddexp(0.0, -margins))) + 5e-4 * float(x @ x), -A.T @ (
            b * expit(-margins)
        ) / 200 + 1e-3 * x

    return fun, np.zeros(51), Box(np.array([*[0.0] * 50, -np.inf]))


def _factorization(A: Any, rank: int, seed: int, times: float = 1.0) -> tuple[Function, Floats, Box]:
    problem = NonnegativeFactorization(A, rank, seed)
    shape = problem.start.shape

    def fun(x: Floats) -> tuple[float, Floats]:
        f, grad = problem(x.reshape(shape))
        return float(f), grad.ravel()

    return fun, times * problem.start.ravel(), problem.prox


def _contest() -> Iterator[tuple[Function, Floats, Box]]:
    """The problems held out of the contest's tuning, with bounds on both sides of the start for most entries."""
    for seed, problem in enumerate(suite("held-out")):
        rng, start = np.random.default_rng(seed), np.asarray(problem.start)
        room = 1.0 + np.abs(start)
        below, above = (np.where(rng.random(start.size) < 0.7, rng.random(start.size) * room, np.inf) for _ in range(2))
        yield problem.fun, start, Box(start - below, start + above)


def _ratings() -> Any:
    from npgm.lab.data.movielens import MovieLens100K, rating_matrix

    return rating_matrix(MovieLens100K().load())


def _lasso(seed: int) -> tuple[Function, Floats, L1]:
    rng = np.random.default_rng(seed)
    A, b = rng.standard_normal((40, 12)), rng.standard_normal(40)
    return (lambda x: (0.5 * float((A @ x - b) @ (A @ x - b)), A.T @ (A @ x - b))), np.zeros(12), L1(6.0)


def _sparse_logistic(decades: float) -> Callable[[int], tuple[Function, Floats, L1]]:
    def make(seed: int) -> tuple[Function, Floats, L1]:
        problem = SparseLogisticRegression(seed=seed, decades=decades)
        return problem, problem.start, problem.prox

    return make


BOXES: dict[str, Callable[[int], tuple[Function, Floats, Box]]] = {
    "quadratic, condition 1e4": _quadratic(100, 1e4),
    "quadratic, condition 1e2": _quadratic(300, 1e2),
    "Rosenbrock": _rosenbrock,
    "nonnegative logistic": _logistic,
    "NMF, rank 5": lambda seed: _factorization(None, 5, seed),
    "NMF, rank 10, start times 3": lambda seed: _factorization(None, 10, seed, 3.0),
}
PENALTIES: dict[str, Callable[[int], tuple[Function, Floats, L1]]] = {
    "lasso, 40 by 12": _lasso,
    "logistic, one scale": _sparse_logistic(0.0),
    "logistic, over two decades": _sparse_logistic(2.0),
}


def _against_scipy(name: str, problems: list[Any], tol: float | None, limit: int) -> list[float]:
    """Print a line for problems of a kind, and return the ratios of those that both solved."""
    pairs = [tuple(_until(fun, x0, box, tol, limit, solve) for solve in (_ours, _scipys)) for fun, x0, box in problems]
    ratios = [ours / theirs for ours, theirs in pairs if ours and theirs]
    solved = [sum(1 for pair in pairs if pair[i]) for i in (0, 1)]
    _show_ratios(f"{name:28} {solved[0]:>7} {solved[1]:>9}", ratios)
    print(" " * 28, *(f"{ours or 'none'}/{theirs or 'none'}" for ours, theirs in pairs), flush=True)
    return ratios


def _show_ratios(name: str, ratios: list[float]) -> None:
    if ratios:
        mean = statistics.geometric_mean(ratios)
        print(f"{name:45}   median {statistics.median(ratios):.2f}, geometric mean {mean:.2f}", flush=True)


def _until(
    fun: Function, x0: Floats, box: Box, tol: float | None, limit: int, solve: Callable[..., None]
) -> int | None:
    """Return the evaluations until the projected gradient is small: at most 1e-3 without ``tol``; None if it is not."""
    count, first = 0, 0.0

    def counted(x: Floats) -> tuple[Any, Floats]:
        nonlocal count, first
        f, grad = fun(x)
        count += 1
        left = float(np.linalg.norm(x - box.prox(x - grad, 1.0)))
        first = first or left
        if left <= (1e-3 if tol is None else tol * first):
            raise StopIteration
        return f, grad

    try:
        solve(counted, x0, box, limit)
    except StopIteration:
        return count
    return None


def _ours(fun: Function, x0: Floats, box: Box, limit: int) -> None:
    npgm.minimize(fun, x0, bounds=box, tol=1e-300, maxiter=limit)


def _scipys(fun: Function, x0: Floats, box: Box, limit: int) -> None:
    options = {"maxiter": limit, "maxfun": limit, "ftol": 0.0, "gtol": 0.0}
    lower, upper = np.broadcast_arrays(box.lower, box.upper, x0)[:2]
    scipy.optimize.minimize(
        fun, x0, jac=True, method="L-BFGS-B", bounds=scipy.optimize.Bounds(lower, upper), options=options
    )


def _evaluations(problems: list[tuple[Function, Floats, L1]], limit: int, **options: Any) -> str:
    runs = [npgm.minimize(fun, x0, prox=g, tol=TOL, maxiter=limit, **options) for fun, x0, g in problems]
    counts = sorted(run.nfev if run.success else limit for run in runs)
    failed = sum(not run.success for run in runs)
    return f"{statistics.median(counts):.0f} [{counts[0]}, {counts[-1]}]" + (f", {failed} failed" if failed else "")

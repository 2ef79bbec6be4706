"""Three problems with a function beside f, for the methods that take any: evaluations and time to one accuracy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyproximal.optimization.primal import AndersonProximalGradient, ProximalGradient

import npgm
from npgm._common.array import Floats
from npgm.lab.bench._panoc import Function, panoc
from npgm.problems import NonnegativeFactorization
from npgm.proximal import NuclearNorm, Proximable, TotalVariation

TOL = 1e-6
"""A run ends where ‖x - prox_tg(x - t∇f(x))‖ is this share of its first value, t = 1/L, or 1 if L is not known."""


class EndError(Exception):
    """Ends a run from within its function."""


@dataclass(frozen=True)
class Problem:
    """f + g from a start, with the Lipschitz constant of ∇f, if there is one."""

    name: str
    fun: Function
    start: Floats
    g: Proximable
    lipschitz: float | None

    def stationarity(self, x: Floats, grad: Floats) -> float:
        """Return ‖x - prox_tg(x - t∇f(x))‖."""
        t = 1.0 / (self.lipschitz or 1.0)
        return float(np.linalg.norm(x - self.g.prox(x - t * grad, t)))


def problems() -> Iterator[Problem]:
    """Yield the problems."""
    rng = np.random.default_rng(0)
    M = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 40)) + 0.1 * rng.standard_normal((60, 40))
    seen = rng.random(M.shape) < 0.4

    def completion(X: Floats) -> tuple[float, Floats]:
        residual = np.where(seen, X - M, 0.0)
        return 0.5 * float(np.sum(residual**2)), residual

    yield Problem("nuclear norm, 60 x 40", completion, np.zeros(M.shape), NuclearNorm(2.0), 1.0)
    A = rng.standard_normal((100, 200))
    b = A @ np.repeat(rng.standard_normal(8), 25) + rng.standard_normal(100)

    def squares(x: Floats) -> tuple[float, Floats]:
        residual = A @ x - b
        return 0.5 * float(residual @ residual), A.T @ residual

    yield Problem(
        "total variation, 200", squares, np.zeros(200), TotalVariation(20.0), float(np.linalg.norm(A, 2)) ** 2
    )
    factorization = NonnegativeFactorization()

    def factors(X: Floats) -> tuple[float, Floats]:
        f, grad = factorization(X)
        return float(f), grad

    yield Problem("NMF, 40 x 30, rank 5", factors, factorization.start, factorization.prox, None)


def _ours(problem: Problem, fun: Function, limit: int) -> None:
    npgm.minimize(fun, problem.start, prox=problem.g, tol=0.0, maxiter=limit)


def _panoc(problem: Problem, fun: Function, limit: int) -> None:
    for _ in panoc(fun, problem.start, problem.g, problem.lipschitz):
        pass


class _Vector:
    """What pyproximal calls of f or of g: it has vectors, and asks for f and ∇f one after the other."""

    def __init__(self, problem: Problem, fun: Function) -> None:
        self.shape, self.g, self.fun = problem.start.shape, problem.g, fun
        self.x: Floats = np.full(problem.start.size, np.nan)

    def _at(self, x: Floats) -> tuple[float, Floats]:
        if not np.array_equal(x, self.x):
            self.x, self.found = x.copy(), self.fun(x.reshape(self.shape))
        return self.found

    def __call__(self, x: Floats) -> float:
        return self._at(x)[0]

    def grad(self, x: Floats) -> Floats:
        return self._at(x)[1].ravel()

    def prox(self, x: Floats, tau: float) -> Floats:
        return np.asarray(self.g.prox(x.reshape(self.shape), tau)).ravel()


class _Penalty(_Vector):
    def __call__(self, x: Floats) -> float:
        return float(self.g(x.reshape(self.shape)))


def _fista(problem: Problem, fun: Function, limit: int) -> None:
    step = {"backtracking": True, "tau": 1.0} if problem.lipschitz is None else {"tau": 1.0 / problem.lipschitz}
    f, g = _Vector(problem, fun), _Penalty(problem, fun)
    ProximalGradient(f, g, problem.start.ravel(), niter=limit, acceleration="fista", **step)


def _anderson(problem: Problem, fun: Function, limit: int) -> None:
    if problem.lipschitz is not None:  # it has no rule for the stepsize
        f, g = _Vector(problem, fun), _Penalty(problem, fun)
        AndersonProximalGradient(f, g, problem.start.ravel(), tau=1.0 / problem.lipschitz, niter=limit)


METHODS: dict[str, Callable[[Problem, Function, int], None]] = {
    "minimize": _ours, "PANOC": _panoc, "pyproximal, FISTA": _fista, "pyproximal, Anderson": _anderson,
}  # fmt: skip


def evaluations(problem: Problem, method: Callable[[Problem, Function, int], None], limit: int) -> int | None:
    """Return the evaluations of f and ∇f until a point that is evaluated meets the tolerance; None if none does."""
    count, first = 0, 0.0

    def fun(x: Floats) -> tuple[float, Floats]:
        nonlocal count, first
        count += 1
        f, grad = problem.fun(x)
        left = problem.stationarity(x, grad)
        first = first or left
        if left <= TOL * first or count >= limit:
            raise EndError(left <= TOL * first)
        return f, grad

    try:
        method(problem, fun, limit)
    except EndError as end:
        return count if end.args[0] else None
    return None


def seconds(problem: Problem, method: Callable[[Problem, Function, int], None], count: int) -> float:
    """Return the processor time of a run up to an evaluation."""
    left = count

    def fun(x: Floats) -> tuple[float, Floats]:
        nonlocal left
        left -= 1
        if left <= 0:
            raise EndError
        return problem.fun(x)

    start = time.process_time()
    with suppress(EndError):
        method(problem, fun, count)
    return time.process_time() - start


def show(rounds: int, limit: int) -> None:
    """Print a line for each problem: the evaluations and milliseconds of each method, – where it does not get there."""
    print(f"{'':38}", *(f"{name:>22}" for name in METHODS), " evaluations, milliseconds")
    with np.errstate(all="ignore"):
        for problem in problems():
            cells: list[Any] = []
            for method in METHODS.values():
                count = evaluations(problem, method, limit)
                least = min(seconds(problem, method, count) for _ in range(rounds)) if count else None
                cells.append("–" if least is None else f"{count}, {1e3 * least:.1f}")
            print(f"{problem.name:38}", *(f"{cell:>22}" for cell in cells), flush=True)

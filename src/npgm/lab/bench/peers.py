"""Minimize with a penalty, against scikit-learn's coordinate descent, pyproximal's methods and PANOC.

First the processor time with an ℓ1 penalty: the lasso and logistic regression without an intercept, on five tables that
scikit-learn brings along, with standardised columns. The weight of the penalty is a tenth and a hundredth of the least
one that makes all coefficients zero. Each method runs with ever tighter tolerances, or ever more iterations, until the
dual gap is 1e-6 of the value at zero; the time is that of the first run that gets there, the least of several. FISTA
knows the Lipschitz constant.

Then, for completion with a nuclear norm, least squares with total variation and nonnegative factorisation, evaluations
of f and ∇f until ‖x - prox(x - ∇f(x)/L)‖ is 1e-6 of the first at a point that is evaluated, and the processor time of a
run up to there. All methods have the same proximal maps. Of ∇f's constant L, which the factorisation has not, PANOC and
pyproximal's methods are told.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Annotated, Any, ClassVar

import numpy as np
import pyproximal
from pyproximal.optimization.primal import ProximalGradient
from scipy.special import entr, expit
from sklearn import datasets
from sklearn.linear_model import Lasso, LogisticRegression
from typer import Option

import npgm
from npgm._common.array import Floats
from npgm.lab.bench import _composites
from npgm.lab.bench._shared import Rounds

GAP = 1e-6
TABLES = ("diabetes", "wine", "breast_cancer", "digits", "iris")


class Penalised:
    """f(x) + weight ‖x‖₁, where f is the sum of a loss of the entries of A x, with the dual gap at a point."""

    lipschitz: ClassVar[float]
    """The Lipschitz constant of the loss's derivative."""

    def __init__(self, A: Floats, b: Floats, share: float) -> None:
        self.A, self.b = A, b
        self.zero = np.zeros(A.shape[1])
        self.weight = share * float(np.abs(self.fun(self.zero)[1]).max())
        self.least_gap = GAP * self.fun(self.zero)[0]

    def fun(self, x: Floats) -> tuple[float, Floats]:
        """Return f and its gradient."""
        raise NotImplementedError

    def dual(self, x: Floats, scale: Callable[[Floats], float]) -> float:
        """Return the dual value at -∇loss(A x) times what ``scale`` makes feasible of its product with A."""
        raise NotImplementedError

    def gap(self, x: Floats) -> float:
        """Return the value at x minus that of a feasible dual point."""
        primal = self.fun(x)[0] + self.weight * float(np.abs(x).sum())
        return primal - self.dual(x, lambda product: min(1.0, self.weight / float(np.abs(product).max())))


class Squares(Penalised):
    """½‖A x - b‖²."""

    lipschitz = 1.0

    def fun(self, x: Floats) -> tuple[float, Floats]:
        residual = self.A @ x - self.b
        return 0.5 * float(residual @ residual), residual @ self.A

    def dual(self, x: Floats, scale: Callable[[Floats], float]) -> float:
        residual = self.b - self.A @ x
        point = scale(residual @ self.A) * residual
        return float(point @ self.b) - 0.5 * float(point @ point)

    def scikit(self, tol: float) -> Floats:
        """Return the solution of scikit-learn's coordinate descent."""
        model = Lasso(alpha=self.weight / len(self.b), fit_intercept=False, tol=tol, max_iter=100_000)
        return np.asarray(model.fit(self.A, self.b).coef_)


class Logistic(Penalised):
    """Σ log(1 + exp(-b A x)), with labels b of ±1."""

    lipschitz = 0.25

    def fun(self, x: Floats) -> tuple[float, Floats]:
        margins = self.b * (self.A @ x)
        return float(np.logaddexp(0.0, -margins).sum()), -(self.b * expit(-margins)) @ self.A

    def dual(self, x: Floats, scale: Callable[[Floats], float]) -> float:
        share = expit(-self.b * (self.A @ x))
        share = scale((self.b * share) @ self.A) * share
        return float((entr(share) + entr(1.0 - share)).sum())

    def scikit(self, tol: float) -> Floats:
        """Return the solution of LIBLINEAR's coordinate descent."""
        model = LogisticRegression(
            C=1.0 / self.weight, l1_ratio=1.0, solver="liblinear", fit_intercept=False, tol=tol, max_iter=100_000
        )
        return np.asarray(model.fit(self.A, self.b).coef_[0])


def _ours(problem: Any, tol: float) -> Floats:
    g, tol = npgm.proximal.L1(problem.weight), tol * problem.weight
    run = npgm.minimize(problem.fun, problem.zero, prox=g, tol=tol, maxiter=100_000)
    return np.asarray(run.x)


def _scikit(problem: Any, tol: float) -> Floats:
    found: Floats = problem.scikit(tol)
    return found


class _Smooth:
    """What pyproximal calls of f."""

    def __init__(self, problem: Any) -> None:
        self.problem = problem

    def __call__(self, x: Floats) -> float:
        return float(self.problem.fun(x)[0])

    def grad(self, x: Floats) -> Floats:
        return np.asarray(self.problem.fun(x)[1])


def _fista(problem: Any, tol: float) -> Floats:
    step, g = 1.0 / (problem.lipschitz * np.linalg.norm(problem.A, 2) ** 2), pyproximal.L1(sigma=problem.weight)
    iterations = round(10.0 / tol**0.5)
    x = ProximalGradient(_Smooth(problem), g, problem.zero.copy(), tau=step, niter=iterations, acceleration="fista")
    return np.asarray(x)


METHODS = {"minimize": _ours, "scikit-learn": _scikit, "pyproximal": _fista}


def run(
    rounds: Rounds = 5,
    least: Annotated[float, Option(min=1e-16, max=1.0, help="The tightest tolerance that is tried.")] = 1e-12,
    limit: Annotated[int, Option(min=1, help="Evaluations after which a method has failed.")] = 10_000,
) -> None:
    """Print a line for each problem: the milliseconds of each method, and – where none of its runs got there."""
    print(f"{'':38}", *(f"{name:>13}" for name in METHODS), " milliseconds")
    for name, problem in _problems():
        times = (_seconds(problem, method, rounds, least) for method in METHODS.values())
        print(f"{name:38}", *(f"{'–' if t is None else format(1e3 * t, '.2f'):>13}" for t in times), flush=True)
    print()
    _composites.show(rounds, limit)


def _problems() -> Iterator[tuple[str, Penalised]]:
    for table in TABLES:
        X, y = getattr(datasets, f"load_{table}")(return_X_y=True)
        X = X[:, X.std(axis=0) > 0.0]
        A, b = (X - X.mean(axis=0)) / X.std(axis=0), np.asarray((y - y.mean()) / y.std())
        for share in (0.1, 0.01):
            rest = f"{table} {len(A)} x {A.shape[1]}, {share:g}"
            yield f"lasso, {rest}", Squares(A, b, share)
            yield f"logistic, {rest}", Logistic(A, np.where(b > 0.0, 1.0, -1.0), share)


def _seconds(problem: Penalised, method: Callable[[Any, float], Floats], rounds: int, least: float) -> float | None:
    """Return the time of the loosest run whose gap is small enough, the least of some; None if none is."""
    tol = 0.1
    while tol >= least:
        times = []
        for _ in range(rounds):
            start = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                x = method(problem, tol)
            times.append(time.process_time() - start)
            if problem.gap(x) > problem.least_gap:
                break
        else:
            return min(times)
        tol /= 10.0**0.5
    return None

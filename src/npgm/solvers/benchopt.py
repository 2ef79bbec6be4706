"""`npgm.minimize` as a solver of benchopt's benchmarks benchmark_logreg_l2, benchmark_lasso and benchmark_nmf.

A file ``solvers/npgm.py`` in the folder of the benchmark makes it one of its solvers:

    from npgm.solvers.benchopt import Lasso


    class Solver(Lasso):
        name = "npgm"

benchopt then evaluates every iterate that its schedule asks for, and ends the run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from npgm._common.array import Floats
from npgm.proximal import L1, Nonnegative, Proximable
from npgm.solvers.loop import minimize

try:
    from benchopt import BaseSolver
except ModuleNotFoundError as error:
    if error.name != "benchopt":
        raise
    raise ModuleNotFoundError("npgm.solvers.benchopt needs benchopt: pip install benchopt", name="benchopt") from error

__all__ = ["NMF", "Lasso", "LogregL2"]


class _Minimize(BaseSolver):  # type: ignore[misc]
    """A solver that minimises ``fun`` plus ``prox`` from ``start``, which ``set_objective`` sets."""

    name = "npgm"
    sampling_strategy = "callback"
    requirements = ("pip::npgm",)

    start: Floats
    prox: Proximable | None = None

    def fun(self, x: Floats) -> tuple[float, Floats]:
        """Return f(x) and ∇f(x)."""
        raise NotImplementedError

    def run(self, callback: Callable[[], bool]) -> None:
        """Minimise until benchopt's callback says no, or a gradient is exactly zero."""

        def follow(x: Floats) -> None:
            self.x = x
            if not callback():
                raise StopIteration

        self.x = self.start
        if callback():
            options: dict[str, Any] = {} if self.prox is None else {"prox": self.prox}
            minimize(self.fun, self.start, tol=0.0, maxiter=sys.maxsize, callback=follow, **options)


class _Linear(_Minimize):
    """A loss of X β, and of X β + c with an intercept c, which is the last entry of the point."""

    def set_objective(self, X: Any, y: Floats, lmbd: float, fit_intercept: bool = False) -> None:
        """Take the data: X is an array or a sparse matrix."""
        self.X, self.y, self.lmbd = X, y, lmbd
        penalised = np.ones(X.shape[1])
        self.weights = lmbd * (np.append(penalised, 0.0) if fit_intercept else penalised)
        self.start = np.zeros(self.weights.size)

    def predictions(self, x: Floats) -> Floats:
        """Return X β + c."""
        n = self.X.shape[1]
        return np.asarray(self.X @ x[:n] + x[n:].sum())

    def gradient(self, slopes: Floats) -> Floats:
        """Return the gradient in β and c of a loss with these derivatives in the predictions."""
        beta: Floats = np.asarray(self.X.T @ slopes)
        return np.append(beta, slopes.sum()) if self.start.size > beta.size else beta

    def get_result(self) -> dict[str, Floats]:
        """Return the coefficients."""
        return {"beta": self.x}


class LogregL2(_Linear):
    """Σ log(1 + exp(-yᵢ(X β + c)ᵢ)) + (λ/2)‖β‖² of benchmark_logreg_l2, with labels y of ±1."""

    def fun(self, x: Floats) -> tuple[float, Floats]:
        margins = self.y * self.predictions(x)
        slopes = -self.y * np.exp(-np.logaddexp(0.0, margins))
        loss = float(np.logaddexp(0.0, -margins).sum()) + 0.5 * float(self.weights @ x**2)
        return loss, self.gradient(slopes) + self.weights * x


class Lasso(_Linear):
    """½‖y - X β - c‖² + λ‖β‖₁ of benchmark_lasso."""

    def set_objective(self, X: Any, y: Floats, lmbd: float, fit_intercept: bool = False) -> None:
        super().set_objective(X, y, lmbd, fit_intercept)
        self.prox = L1(self.weights)

    def fun(self, x: Floats) -> tuple[float, Floats]:
        residual = self.predictions(x) - self.y
        return 0.5 * float(residual @ residual), self.gradient(residual)


class NMF(_Minimize):
    """½‖X - W H‖² for W, H ≥ 0 of benchmark_nmf, in the Frobenius norm."""

    prox = Nonnegative()

    def set_objective(self, X: Floats, rank: int, factors_init: Any = None) -> None:
        """Take the matrix, and the factors to start from, which are uniform random numbers if there are none."""
        self.X = X
        self.shapes = (X.shape[0], rank), (rank, X.shape[1])
        if factors_init is None:
            rng = np.random.default_rng(0)
            factors_init = [rng.random(shape) for shape in self.shapes]
        self.start = np.concatenate([np.ravel(factor) for factor in factors_init])

    def factors(self, x: Floats) -> tuple[Floats, Floats]:
        """Return W and H of a point."""
        left, right = self.shapes
        W, H = np.split(x, [left[0] * left[1]])
        return W.reshape(left), H.reshape(right)

    def fun(self, x: Floats) -> tuple[float, Floats]:
        W, H = self.factors(x)
        residual = W @ H - self.X
        return 0.5 * float(np.sum(residual**2)), np.concatenate([(residual @ H.T).ravel(), (W.T @ residual).ravel()])

    def get_result(self) -> dict[str, Floats]:
        """Return the factors."""
        return dict(zip("WH", self.factors(self.x), strict=True))

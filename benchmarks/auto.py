"""Evaluations that `npgm.minimize(fun, x0)` takes, without a number to choose, against SciPy's methods.

The factorisation of MovieLens 100K (`npgm data fetch movielens-100k`) to ‖∇f‖ <= 1e-3, from the normal starts of
Section 4.2 of the paper times a factor. Prints the median, the least and the most over the starts; "-" is a run that
did not get there in ``--maxiter`` iterations.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import scipy.optimize
from threadpoolctl import threadpool_limits

import npgm
from npgm.lab.data.movielens import MovieLens100K, rating_matrix
from npgm.problems import MatrixFactorization

TOL = 1e-3


def ours(problem: MatrixFactorization, start: np.ndarray, maxiter: int) -> float:
    res = npgm.minimize(problem, start, tol=TOL, maxiter=maxiter)
    return res.nfev if res.success else np.inf


def scipys(method: str, problem: MatrixFactorization, start: np.ndarray, maxiter: int) -> float:
    evaluations, norms = 0, []

    def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal evaluations
        evaluations += 1
        f, grad = problem(x.reshape(start.shape))
        norms.append(float(np.linalg.norm(grad)))
        if norms[-1] <= TOL:
            raise StopIteration
        return f, np.ravel(grad)

    options: dict[str, Any] = {"maxiter": maxiter}
    if method == "L-BFGS-B":
        options |= {"maxfun": maxiter, "ftol": 0.0, "gtol": 0.0}
    try:
        scipy.optimize.minimize(fun, np.ravel(start), jac=True, method=method, options=options, tol=0.0)
    except StopIteration:
        return evaluations
    return np.inf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[10, 20, 30])
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--factors", type=float, nargs="+", default=[1.0, 0.1, 3.0])
    parser.add_argument("--maxiter", type=int, default=2000)
    parser.add_argument("--scipy", action="store_true", help="run L-BFGS-B and CG, too")
    options = parser.parse_args()
    ratings = rating_matrix(MovieLens100K().load())
    contenders = {"minimize": ours}
    if options.scipy:
        for method in ("L-BFGS-B", "CG"):
            contenders[method] = lambda *args, method=method: scipys(method, *args)
    with threadpool_limits(1):
        for rank in options.ranks:
            problem = MatrixFactorization(ratings, rank)
            for factor in options.factors:
                for name, run in contenders.items():
                    counts = [run(problem, factor * problem.start(s), options.maxiter) for s in range(options.starts)]
                    shown = [f"{v:.0f}" if v < np.inf else "-" for v in (np.median(counts), min(counts), max(counts))]
                    print(f"rank {rank}, starts × {factor:g}, {name:9} {shown[0]} [{shown[1]}, {shown[2]}]", flush=True)


if __name__ == "__main__":
    main()

"""An iteration of iHGDm on MovieLens 100K, in sparse form against the dense form in NumPy.

The two are interleaved; the dense form has all BLAS threads, the sparse one as many threads as cores, at most 2.
Prints ratios of times, dense over sparse: medians over the rounds, with quartiles.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Annotated

import numpy as np
from threadpoolctl import threadpool_limits
from typer import Option

import npgm
from npgm._common.array import Floats
from npgm.lab.bench._shared import Rounds, spread
from npgm.lab.data import load
from npgm.lab.data.movielens import rating_matrix
from npgm.problems import MatrixFactorization

STARTS = 10
RANKS = [10, 20, 30]


def run(
    rounds: Rounds = 9,
    iterations: Annotated[int, Option(min=1, help="Iterations that are timed at a time.")] = 30,
    ranks: Annotated[list[int], Option(help="Ranks of the factorisation; repeatable.")] = RANKS,
) -> None:
    """Print a table."""
    A = rating_matrix(load("movielens-100k"))
    threads = min(2, os.cpu_count() or 1)
    print(f"{rounds} rounds of {iterations} iterations, {threads} threads: time of the dense form / of the sparse one")
    print(f"rank  {f'batch of {STARTS}':>20}  {'one start':>20}")
    for rank in ranks:
        dense, sparse = MatrixFactorization(A.toarray(), rank), MatrixFactorization(A, rank, threads)
        one = sparse.start(0)
        batch = np.stack([sparse.start(seed) for seed in range(STARTS)])
        contenders = {"dense": (dense, one), "batch": (sparse, batch), "one": (sparse, one)}
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(rounds):
            for name, (problem, X) in contenders.items():
                with threadpool_limits(1) if name != "dense" else nullcontext():
                    times[name].append(_seconds_an_iteration(problem, X, iterations))
        ratios = {name: np.divide(times["dense"], times[name]) for name in ("batch", "one")}
        print(f"{rank:4d}  {spread(ratios['batch'], 1):>20}  {spread(ratios['one'], 1):>20}")


def _seconds_an_iteration(problem: MatrixFactorization, X: Floats, iterations: int) -> float:
    result = npgm.minimize(
        problem, X, lr=2.0, momentum=0.9, reference=npgm.reference("isotropic-cosh", scale=100.0),
        maxiter=iterations, tol=0.0, batch=X.ndim == 3, history=True,
    )  # fmt: skip
    return float(result.history["seconds"][-1]) / iterations / (len(X) if X.ndim == 3 else 1)

"""Time of one iHGDm iteration on MovieLens 100K: the sparse form, in a batch of starts, against the dense NumPy form.

The two are interleaved; the dense form has all BLAS threads, the sparse one as many threads as cores, at most 2.
Prints ratios only: medians over the rounds, with their range.
"""

from __future__ import annotations

import os
import statistics
from contextlib import nullcontext

import numpy as np
from threadpoolctl import threadpool_limits

import npgm
from npgm.lab.data import load
from npgm.lab.data.movielens import rating_matrix
from npgm.problems import MatrixFactorization

STARTS, ITERATIONS, ROUNDS = 10, 30, 9


def seconds_an_iteration(problem: MatrixFactorization, X: np.ndarray) -> float:
    result = npgm.minimize(
        problem, X, lr=2.0, momentum=0.9, reference=npgm.reference("isotropic-cosh", scale=100.0),
        maxiter=ITERATIONS, tol=0.0, batch=X.ndim == 3, history=True,
    )  # fmt: skip
    return float(result.history["seconds"][-1]) / ITERATIONS / (len(X) if X.ndim == 3 else 1)


def main() -> None:
    A = rating_matrix(load("movielens-100k"))
    dense_A = A.toarray()
    threads = min(2, os.cpu_count() or 1)
    print(f"{ROUNDS} rounds of {ITERATIONS} iterations, {threads} threads: dense / sparse, median and range")
    print(f"rank  {f'batch of {STARTS}':>20}  {'one start':>20}")
    for rank in (10, 20, 30):
        dense, sparse = MatrixFactorization(dense_A, rank), MatrixFactorization(A, rank, threads)
        one = sparse.start(0)
        batch = np.stack([sparse.start(seed) for seed in range(STARTS)])
        contenders = {"dense": (dense, one), "batch": (sparse, batch), "one": (sparse, one)}
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(ROUNDS):
            for name, (problem, X) in contenders.items():
                with threadpool_limits(1) if name != "dense" else nullcontext():
                    times[name].append(seconds_an_iteration(problem, X))
        cells = []
        for name in ("batch", "one"):
            ratios = [d / s for d, s in zip(times["dense"], times[name], strict=True)]
            cells.append(f"{statistics.median(ratios):5.1f} [{min(ratios):.1f}, {max(ratios):.1f}]")
        print(f"{rank:4d}  {cells[0]:>20}  {cells[1]:>20}")


if __name__ == "__main__":
    main()

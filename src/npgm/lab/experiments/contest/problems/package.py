"""The smooth problems of `npgm.problems`, in sizes that take little time, with their own starts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from npgm._common.array import Floats
from npgm.lab.experiments.contest.problems.base import ContestProblem
from npgm.problems import MatrixFactorization, PhaseRetrieval, registry


def problems() -> Iterator[ContestProblem]:
    """Yield the problems, always in the same order."""
    for key, cls in sorted(registry.items()):
        problem = cls()
        yield ContestProblem(key, problem, problem.start)
    rng = np.random.default_rng(21)
    factorization = MatrixFactorization(rng.poisson(1.0, (15, 12)).astype(float), 3)
    start = factorization.start(0)

    def flat(x: Floats) -> tuple[float, Floats]:
        f, grad = factorization(x.reshape(start.shape))
        return float(f), grad.ravel()

    yield ContestProblem("matrix-factorization", flat, start.ravel())
    yield ContestProblem("phase-retrieval", PhaseRetrieval.random(40, 20, 0), rng.normal(5.0, 0.5, 40))

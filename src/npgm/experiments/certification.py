"""A known problem run with a method, and held to the theorems."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import OptimizeResult

from npgm import _validate
from npgm._array import Floats
from npgm.problems.base import Constants, Problem
from npgm.references import Reference, reference
from npgm.solvers import minimize
from npgm.theory import certify

METHODS = {"npgm": 0.0, "gd": 0.0, "gdm": 0.9}
"""The methods that the theorems cover, with their default momentum: the last two are the first with φ = ½‖·‖²."""


@dataclass(frozen=True)
class Certified:
    """A run with its certificates.

    Args:
        lr: the stepsize of the run.
        constants: those of the problem relative to φ.
        result: what `npgm.minimize` returned.
        report: the bounds against the run.
        descent: the least slack of the descent inequality (4) between successive iterates, relative to 1 + |f|.
    """

    lr: float
    constants: Constants
    result: OptimizeResult
    report: certify.Report
    descent: float


def certify_problem(
    problem: Problem,
    phi: Reference,
    *,
    method: str = "npgm",
    lr: float | None = None,
    momentum: float | None = None,
    maxiter: int = 200,
) -> Certified:
    """Run a method on a problem from its start, and hold the run to every theorem that applies.

    Args:
        problem: one whose constants relative to φ are known.
        phi: φ; ½‖·‖² for the methods "gd" and "gdm".
        method: one of `METHODS`.
        lr: γ; by default the largest that a theorem allows, 1/L for β < 1/2 and (1-β)²/L else.
        momentum: β.
        maxiter: the number of iterations.

    Raises:
        ValueError: if the method has no theorem, or the constants are not known.
    """
    beta = METHODS[_validate.choice("method", method, METHODS)] if momentum is None else momentum
    beta = _validate.fraction("momentum", beta)
    if method != "npgm" and phi != reference("isotropic-quad"):
        raise ValueError(f"method {method!r} has the reference isotropic-quad, not {phi!r}")
    constants = problem.constants(phi, problem.start.size)
    if lr is None:
        L = constants.smoothness
        lr = 1.0 / L if beta < 0.5 else (1.0 - beta) ** 2 / max(L, constants.lipschitz or L)
    start = problem.start
    points: list[Floats] = [start]
    result = minimize(
        problem,
        start,
        lr=lr,
        momentum=beta,
        reference=phi,
        maxiter=_validate.count("maxiter", maxiter, least=1),
        tol=0.0,
        history=True,
        callback=lambda x: points.append(x),
    )
    minimiser = problem.minimiser
    report = certify.deterministic(
        result.history,
        smoothness=constants.smoothness,
        lipschitz=constants.lipschitz,
        pl=constants.pl,
        minimum=problem.minimum(start.size),
        exact=True,
        convex=problem.convex,
        distance=None if minimiser is None else float(np.linalg.norm(start - minimiser)),
    )
    slack = (
        certify.descent(problem, phi, np.stack(points), constants.smoothness) if len(points) > 1 else np.zeros((1, 2))
    )
    scale = 1.0 + np.abs(result.history["fun"][: slack.shape[0]])
    return Certified(lr, constants, result, report, float(np.min(slack / scale[:, None])))

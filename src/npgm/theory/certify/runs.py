"""Certificates of deterministic runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npgm._common import validate
from npgm._common.array import Floats
from npgm.solvers import History
from npgm.theory import bounds
from npgm.theory.bounds import Bound
from npgm.theory.certify import assume
from npgm.theory.certify.momentum import trials_before_the_map
from npgm.theory.certify.report import Report, Trials, report
from npgm.theory.certify.rounding import gap as gap_above
from npgm.theory.certify.rounding import resolution as resolve


def deterministic(
    history: History,
    *,
    smoothness: float,
    lipschitz: float | None = None,
    pl: float | None = None,
    minimum: float,
    exact: bool = False,
    resolution: float | None = None,
    gradient_lipschitz: float | None = None,
    convex: bool = False,
    distance: float | None = None,
) -> Report:
    """Check a run against every theorem of the paper, and against the derived ones.

    γ, β and φ are read from the history. Theorems A and A' are about momentum before the preconditioner, all others
    about Algorithm 1. Runs of other methods are refused.

    Args:
        history: that of ``npgm.minimize(..., history=True)``, of one run.
        smoothness: L of the descent inequality (4).
        lipschitz: the Lipschitz constant of ∇φ*(∇f), for Theorems 2.7 and B.
        pl: the PL constant μ, for Theorem 2.4.
        minimum: inf f, or a lower bound of it.
        exact: whether ``minimum`` is inf f itself. Otherwise bounds on f - inf f, such as Theorem 2.4's, are refused.
        resolution: the error of a value of f; by default what `npgm.theory.certify.resolution` makes of the run.
        gradient_lipschitz: the Lipschitz constant of ∇f itself, for Theorems A and A'.
        convex: whether f is convex.
        distance: the distance of the start from a minimiser, for the bound of an isotropic φ on a convex f.

    Raises:
        TypeError, ValueError: if ``history`` does not know its method, or is not that of one run; or if f falls below
            ``minimum``.
    """
    assume.check(history)
    validate.positive("smoothness", smoothness)
    for name, constant in (("lipschitz", lipschitz), ("pl", pl), ("gradient_lipschitz", gradient_lipschitz)):
        if constant is not None:
            validate.positive(name, constant)
    phi, lr = history.method.stationarity_reference, history.method.lr
    momentum = history.method.as_npgm.momentum if history.method.as_npgm else 0.0
    fun, norms, stationarity = (assume.series(history, name) for name in ("fun", "grad_norm", "stationarity"))
    rho = resolve(fun, minimum, eps=history.eps, given=resolution)
    gap = gap_above(fun, minimum)
    # every bound increases with D0, which is known up to ρ
    step: dict[str, Any] = {"smoothness": smoothness, "lr": lr, "gap": float(gap[0]) + rho}
    run = {**step, "iterations": fun.size - 1}
    heavy: dict[str, Any] = {**run, "momentum": momentum}

    def base() -> Bound:
        assume.without_momentum("The base bound", momentum)
        return bounds.base_method(phi, **run)

    trials: Trials = {"The base bound": base, "Theorem 2.2": lambda: bounds.theorem_2_2(phi, **heavy)}
    if pl is not None:
        trials["Theorem 2.4"] = lambda: bounds.theorem_2_4(phi, pl=pl, **heavy)
        trials["Theorem 2.4, refined"] = lambda: bounds.theorem_2_4(phi, pl=pl, refined=True, **heavy)
    if lipschitz is not None:
        also: dict[str, Any] = {**heavy, "lipschitz": lipschitz, "first": float(stationarity[0])}
        trials["Theorem 2.7"] = lambda: bounds.theorem_2_7(phi, **also)
        trials["Theorem B"] = lambda: bounds.momentum_after(phi, **also)
        trials["Theorem 2.7, tight"] = lambda: bounds.theorem_2_7(phi, tight=True, **also)
    if convex and momentum == 0.0:
        trials["The convex bound on φ*(∇f)"] = lambda: bounds.convex_conjugate(phi, convex=True, **run)
        if distance is not None:
            trials["The convex bound on f"] = lambda: bounds.convex_isotropic(
                phi, convex=True, distance=distance, gradient_norms=norms, **step
            )

    before: Trials = {}
    if gradient_lipschitz is not None:
        before = trials_before_the_map(history, gradient_lipschitz, gap=float(gap[0]) + rho, iterations=fun.size - 1)

    def lyapunov(bound: Bound) -> Floats:
        assume.known_minimum(bound.theorem, minimum, exact)
        if bound.weight == 0.0 or "momentum" not in history:
            return gap
        potential: Floats = bound.weight * lr * assume.series(history, "momentum") + gap
        return potential

    quantities: dict[str, Callable[[Bound], Floats]] = {
        "mean stationarity": lambda bound: np.cumsum(stationarity) / np.arange(1, stationarity.size + 1),
        "mean stationarity from 1": lambda bound: np.concatenate(
            [[np.nan], np.cumsum(stationarity[1:]) / np.arange(1, stationarity.size)]
        ),
        "gap": lyapunov,
        "conjugate": lambda bound: assume.series(history, "conjugate"),
        "mean conjugate": lambda bound: np.cumsum(assume.series(history, "conjugate")) / np.arange(1, fun.size + 1),
    }

    def observe(bound: Bound) -> tuple[Floats, Floats]:
        rounding = 64.0 * history.eps * np.abs(bound.values)
        return quantities[bound.quantity](bound), rounding + (rho if bound.quantity == "gap" else 0.0)

    def require(theorem: str) -> None:
        if theorem in before:
            assume.smooth(theorem, history)
            assume.before_the_map(theorem, history)
        else:
            assume.algorithm_1(theorem, history)
            assume.from_the_start(theorem, history, momentum)
        assume.all_taken(theorem, history)
        assume.comparable(theorem, history, float(gap[0]), rho)
        assume.some_steps(theorem, fun.size - 1)

    return report(trials | before, observe, require)

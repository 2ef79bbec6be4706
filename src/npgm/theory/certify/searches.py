"""Certificates of runs whose stepsizes were found by a rule: the bounds that need no L."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from npgm._common import validate
from npgm._common.array import Bools, Floats
from npgm.references import Isotropic
from npgm.solvers import History
from npgm.solvers.preconditioned import RELATIVE_SCALE
from npgm.solvers.stepsizes.backtracking import TAU
from npgm.theory import bounds
from npgm.theory.bounds import AssumptionError, Bound
from npgm.theory.certify import assume
from npgm.theory.certify.report import Report, Trials, report
from npgm.theory.certify.rounding import gap as gap_above
from npgm.theory.certify.rounding import resolution as resolve


def auto(
    history: History,
    *,
    minimum: float,
    window: int | None = None,
    decrease: float | None = None,
    resolution: float | None = None,
) -> Report:
    """Check a run against the bounds that need no L, however its stepsizes were found; k counts the steps taken.

    The variable forms of Theorems 2.2, for β < 1/2, and B, for β >= 1/2, apply to ``lr="backtracking"``, whose tests
    every step has passed. The bound of nonmonotone descent applies to ``lr="auto"``, ``method="auto"`` and every other
    run whose steps each decreased f by σ γ_k S_k from the largest of the last W values; the history shows whether they
    did. With ``prox`` and a rule for the stepsize, f is f + g, and S_k the "decrease" of the history, Δ_k/γ_k.

    Args:
        history: that of ``npgm.minimize(..., history=True)``, of one run: "fun", "stationarity", "lr", the γ of the
            step from each iterate, and "taken", whether it was; with ``prox`` also "decrease".
        minimum: inf f, or a lower bound of it.
        window: W; by default the least with which each step passes, up to the rule's, or 10 without a rule.
        decrease: σ; by default that of the rule, else 0.1.
        resolution: the error of a value of f; by default what `npgm.theory.certify.resolution` makes of the run.

    Raises:
        TypeError, ValueError: if ``history`` does not know its method, or is not that of one run; or if f falls below
            ``minimum``.
    """
    assume.check(history)
    rule: Any = history.method.lr
    windows: Iterable[int] = range(1, getattr(rule, "window", 10) + 1)
    if window is not None:
        windows = [validate.count("window", window, least=1)]
    sigma = getattr(rule, "decrease", 0.1) if decrease is None else validate.nonnegative("decrease", decrease)
    momentum = getattr(history.method, "momentum", 0.0)
    composite = "decrease" in history
    fun, stationarity = (
        assume.series(history, "fun"),
        assume.series(history, "decrease" if composite else "stationarity"),
    )
    stepsizes, taken = _steps(history, fun.size)
    rho = resolve(fun, minimum, eps=history.eps, given=resolution)
    gap = float(gap_above(fun, minimum)[0])
    D0 = gap + rho
    before, after = fun[:-1][taken], fun[1:][taken]
    gammas, S = stepsizes[taken], stationarity[:-1][taken]
    allowed = max(1e-12, 8.0 * history.eps) * np.abs(before) + rho  # by rounding, at each step

    def tested(name: str) -> dict[str, Any]:
        assume.smooth(name, history)
        if getattr(rule, "key", None) != "backtracking":
            raise AssumptionError(name, 'the descent test of lr="backtracking"', f"lr is {rule!r}")
        assume.from_the_start(name, history, momentum)
        phi = history.method.stationarity_reference
        if getattr(history.method, "scale", None) == "auto" and isinstance(phi, Isotropic):
            phi = phi.with_scale(RELATIVE_SCALE * (float(assume.series(history, "grad_norm")[0]) or 1.0))
        return {
            "reference": phi, "stepsizes": gammas, "momentum": momentum, "gap": D0, "slack": float(allowed.sum())
        }  # fmt: skip

    def variable() -> Bound:
        return bounds.theorem_2_2_variable(**tested("Theorem 2.2, variable stepsizes"))

    def any_momentum() -> Bound:
        name = "Theorem B, variable stepsizes"
        known = tested(name)
        if momentum < 0.5:
            raise AssumptionError(name, "the second test of backtracking, made for β >= 1/2", f"β = {momentum:g}")
        return bounds.momentum_after_variable(**known, tau=TAU, first=float(stationarity[0]))

    def nonmonotone() -> Bound:
        name = "Nonmonotone descent"
        if composite and not history.method.prox.minimises(history.method.stationarity_reference):  # type: ignore[attr-defined]
            raise AssumptionError(name, "proximal steps that are minimisers", f"the run is one of {history.method!r}")
        if sigma == 0.0:
            raise AssumptionError(name, "a decrease σ > 0 at each step", "that of the rule is 0")
        if not (np.isfinite(gammas) & (gammas > 0.0)).all():
            raise AssumptionError(name, "a stepsize γ at each step", f"the run is one of {history.method!r}")
        for W in windows:
            seen = min(W, before.size)
            padded = np.concatenate([np.full(seen - 1, -np.inf), before])
            highest = np.max(np.lib.stride_tricks.sliding_window_view(padded, seen), axis=1)
            failed = np.flatnonzero(after > highest - sigma * gammas * S + allowed)
            if not failed.size:
                return bounds.nonmonotone_descent(
                    sigma=sigma, window=W, gap=D0, steps=gammas.size, slack=float(allowed.sum())
                )
        assumption = f"that each step decreases f by {sigma:g} γS from the largest of the last {W} values"
        raise AssumptionError(name, assumption, f"step {failed[0]} does not")

    trials: Trials = {
        "Theorem 2.2, variable stepsizes": variable,
        "Theorem B, variable stepsizes": any_momentum,
        "Nonmonotone descent": nonmonotone,
    }

    def observe(bound: Bound) -> tuple[Floats, Floats]:
        weighted = gammas * S
        if bound.quantity == "weighted mean stationarity":
            observed = np.cumsum(weighted) / np.cumsum(gammas)
        else:
            observed = np.minimum.accumulate(weighted)
        return observed, 64.0 * history.eps * np.abs(bound.values)

    def require(theorem: str) -> None:
        if not composite:
            assume.smooth(theorem, history)
        assume.comparable(theorem, {"decrease": S} if composite else {**history}, gap, rho)
        assume.some_steps(theorem, gammas.size)

    return report(trials, observe, require)


def _steps(history: History, iterates: int) -> tuple[Floats, Bools]:
    """Return γ of the step from each iterate but the last, and whether it was taken."""
    if "lr" in history:
        stepsizes = assume.series(history, "lr")[: iterates - 1]
        return stepsizes, np.asarray(history["taken"], dtype=np.bool_)[: iterates - 1]
    method = history.method.as_npgm
    if method is None:
        raise ValueError("history has no 'lr', the stepsize at each iterate")
    return np.full(iterates - 1, method.lr), np.ones(iterates - 1, dtype=np.bool_)

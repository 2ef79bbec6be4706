"""Which method is faster, how much the start matters, and how long the runs take."""

from __future__ import annotations

import math

import polars as pl

from npgm._common import validate
from npgm.lab.experiments.claims.base import (
    Verdict,
    against_all,
    budget,
    combined,
    each_setting,
    every,
    median_last,
    median_reached,
    register,
    target,
)
from npgm.lab.experiments.spec import Claim, Experiment
from npgm.lab.experiments.summary import LOOSER_TARGETS, at

SIGNIFICANT = 1.5
"""The ratio of iterations from which one method is significantly faster than another."""
SIMILAR = 2.0
"""The ratio of iterations, or of last values, up to which methods are similar."""


@against_all
@each_setting("{clock}s to {target}, median over the {starts}")
def fastest(experiment: Experiment, claim: Claim, runs: pl.DataFrame) -> Verdict:
    """The method reaches the tolerance in fewer iterations than each other one, by a factor of `SIGNIFICANT`.

    Undecided where no method reaches it within the budget, or where a rival does not and the budget is too small to
    tell.
    """
    medians = _medians(experiment, runs)
    own = medians.pop(claim.method)
    rival = min(medians, key=lambda label: medians[label])
    if own == math.inf:
        return Verdict.of(_not_reached(experiment, runs, claim.method, rival), None if medians[rival] == own else False)
    exact = medians[rival] < math.inf
    factor = (medians[rival] if exact else budget(runs)) / own
    if exact:
        text = f"next {rival} {medians[rival]:g}, {factor:.3g} times as many"
    else:
        text = f"no other within {budget(runs)}, {factor:.3g} times as many"
    return Verdict.of(
        f"{claim.method} {own:g}, {text}", factor >= SIGNIFICANT if exact or factor >= SIGNIFICANT else None
    )


@against_all
@each_setting("{clock}s to {target}, median over the {starts}")
def fast(experiment: Experiment, claim: Claim, runs: pl.DataFrame) -> Verdict:
    """No other method reaches the tolerance in fewer iterations or epochs; undecided where none does."""
    medians = _medians(experiment, runs)
    holds = medians[claim.method] == min(medians.values()) if min(medians.values()) < math.inf else None
    return Verdict.of(", ".join(f"{label} {_steps(value)}" for label, value in medians.items()), holds)


@against_all
@each_setting("{clock}s to {target}, median over the {starts}")
def scale_matters(experiment: Experiment, claim: Claim, runs: pl.DataFrame) -> Verdict:
    """Of the methods that are compared, the slowest needs at least `SIMILAR` times the iterations of the fastest."""
    medians = _medians(experiment, runs)
    least = min(medians.values())
    holds = max(medians.values()) / least >= SIMILAR if least < math.inf else None
    return Verdict.of(", ".join(f"{label} {_steps(value)}" for label, value in medians.items()), holds)


@against_all
@each_setting("the most {clock}s over the fewest, and the most less the fewest, among the {starts}")
def steadiest(experiment: Experiment, claim: Claim, runs: pl.DataFrame) -> Verdict:
    """The iterations to the tolerance, and to larger ones, vary least over the starts, by ratio and by difference.

    A method of which a start does not converge within the budget is taken to vary more than others; undecided where no
    method has all its starts converge.
    """
    texts, verdicts = [], []
    for column, times in (*LOOSER_TARGETS.items(), ("reached", 1.0)):
        bands = {label: _band(at(runs, {}, label), column) for label in experiment.compared()}
        own = bands.pop(claim.method)
        for mine, others in zip(own, zip(*bands.values(), strict=True), strict=True):
            verdicts.append(Verdict.of("", None if mine == min(others) == math.inf else mine < min(others)).holds)
        shown = {claim.method: own, **bands}
        known = [f"{label} {ratio:.3g} and {width:g}" for label, (ratio, width) in shown.items() if ratio < math.inf]
        rest = [label for label, (ratio, _) in shown.items() if ratio == math.inf]
        known += [f"not all starts: {', '.join(rest)}"] if rest else []
        texts.append(f"to {target(experiment, times)} {', '.join(known)}")
    return Verdict("; ".join(texts), combined(verdicts))


@register
@each_setting("median {clock}s to {target}, and median last value")
def similar(experiment: Experiment, claim: Claim, runs: pl.DataFrame) -> Verdict:
    """The medians of the iterations to the tolerance, and of the last values, differ by less than `SIMILAR`.

    Undecided where neither method reaches the tolerance.
    """
    profiles = {label: _profile(experiment, at(runs, {}, label)) for label in (claim.method, str(claim.other))}
    return Verdict.of(_profiles(profiles), every(_alike(a, b) for a, b in zip(*profiles.values(), strict=True)))


@against_all
@each_setting("median {clock}s to {target}, and median last value")
def slower_at_first(experiment: Experiment, claim: Claim, runs: pl.DataFrame) -> Verdict:
    """The method needs the most iterations to the tolerance, and all last values differ by less than `SIMILAR`."""
    profiles = {label: _profile(experiment, at(runs, {}, label)) for label in experiment.compared()}
    reached, last = profiles[claim.method]
    others = [profile for label, profile in profiles.items() if label != claim.method]
    slowest = max(k for k, _ in others)
    slower = None if reached == slowest == math.inf else reached > slowest
    alike = every(_alike(last, value) for _, value in others)
    return Verdict(_profiles(profiles), combined(Verdict.of("", part).holds for part in (slower, alike)))


@against_all
def run_time(experiment: Experiment, claim: Claim, summary: pl.DataFrame, *, hours: float, of: str) -> Verdict:
    """The runs take less than so many hours in all; or, of each method; or, each run.

    Args:
        experiment: the experiment.
        claim: the claim, whose method is of no matter.
        summary: the summary of the runs.
        hours: the bound.
        of: ``"all"``, ``"method"`` or ``"run"``.
    """
    validate.choice("of", of, ("all", "method", "run"))
    runs = summary.with_columns(hours=pl.col("seconds") * pl.col("length") / 3600.0)
    by_method = [at(runs, {}, label)["hours"].to_numpy() for label in experiment.compared()]
    value, what = {
        "all": (sum(taken.sum() for taken in by_method), "all runs of the methods that are compared"),
        "method": (max(taken.sum() for taken in by_method), "the slowest method"),
        "run": (max(taken.max() for taken in by_method), "the slowest run"),
    }[of]
    return Verdict.of(f"{value:.2g} hours for {what}, on the machine of this report", bool(value < hours))


def _medians(experiment: Experiment, runs: pl.DataFrame) -> dict[str, float]:
    """Return the median of the iterations to the tolerance of each method that is compared."""
    return {label: median_reached(at(runs, {}, label)) for label in experiment.compared()}


def _steps(value: float) -> str:
    return f"{value:g}" if value < math.inf else "not within the budget"


def _not_reached(experiment: Experiment, runs: pl.DataFrame, *labels: str) -> str:
    lasts = (f"{label} {median_last(at(runs, {}, label), experiment.measure):.2g}" for label in labels)
    return f"{labels[0]} not within {budget(runs)}; last values {', '.join(lasts)}"


def _band(runs: pl.DataFrame, column: str) -> tuple[float, float]:
    """Return the ratio of the most to the fewest iterations to a tolerance, and their difference."""
    reached = runs[column].cast(pl.Float64)
    if reached.null_count():
        return math.inf, math.inf
    most, fewest = float(reached.max()), float(reached.min())  # type: ignore[arg-type]
    return most / fewest, most - fewest


def _profile(experiment: Experiment, runs: pl.DataFrame) -> tuple[float, float]:
    """Return the medians of the iterations to the tolerance and of the last values."""
    return median_reached(runs), median_last(runs, experiment.measure)


def _alike(a: float, b: float) -> bool | None:
    """Return whether two values differ by less than `SIMILAR`, None where both are infinite."""
    return None if a == b == math.inf else 1.0 / SIMILAR < a / b < SIMILAR


def _profiles(profiles: dict[str, tuple[float, float]]) -> str:
    return ", ".join(f"{label} {_steps(k)}, {last:.2g}" for label, (k, last) in profiles.items())

"""Checks that hold a sentence of the paper against measured runs.

A check is a function of the experiment, the claim and the summary of the runs, entered in the registry under the name
that a specification uses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from npgm import _validate
from npgm.experiments.spec import Claim, Experiment, Setting
from npgm.experiments.summary import at, setting_name

VERDICTS = ("holds", "holds in part", "does not hold", "undecided", "not run")


@dataclass(frozen=True)
class Verdict:
    """What was measured for a claim, and whether it holds: one of `VERDICTS`."""

    measured: str
    holds: str


Check = Callable[[Experiment, Claim, pl.DataFrame], Verdict]
registry: dict[str, Check] = {}
_against_all: set[str] = set()


def register(check: Check) -> Check:
    """Enter a check in the registry under its function's name; use it as a decorator."""
    registry[check.__name__] = check
    return check


def against_all(check: Check) -> Check:
    """Enter, likewise, a check that holds its method against all others that are compared."""
    _against_all.add(check.__name__)
    return register(check)


def decide(experiment: Experiment, claim: Claim, summary: pl.DataFrame) -> Verdict:
    """Return the verdict on a claim."""
    check = registry[_validate.choice("check", claim.check, registry)]
    needed = {claim.method, *filter(None, [claim.other])}
    if claim.check in _against_all:
        needed.update(experiment.compared())
    missing = [
        _under(setting, f"no run of {', '.join(sorted(absent))} is done")
        for setting in experiment.grid()
        if (absent := needed - set(at(summary, setting)["method"]))
    ]
    if missing:
        return Verdict("; ".join(missing), "not run")
    return check(experiment, claim, summary)


@against_all
def fastest(experiment: Experiment, claim: Claim, summary: pl.DataFrame) -> Verdict:
    """The method reaches the tolerance in the fewest iterations or epochs, in the median over the starts.

    Where no method reaches it within the budget, the medians of the last values are compared.
    """
    texts, verdicts = [], []
    for setting in experiment.grid():
        runs = {label: at(summary, setting, label) for label in experiment.compared()}
        medians = {label: _median_reached(rows) for label, rows in runs.items()}
        form = f"{{:g}} {experiment.clock}s"
        if min(medians.values()) == math.inf:
            medians = {label: _last(rows, experiment.measure) for label, rows in runs.items()}
            form = "last value {:.2g}"
        own = medians.pop(claim.method)
        rival = min(medians, key=lambda label: medians[label])
        verdicts.append(own < medians[rival])
        first, second = (
            form.format(value) if value < math.inf else "not within the budget" for value in (own, medians[rival])
        )
        texts.append(_under(setting, f"{claim.method} {first}, next {rival} {second}"))
    return _verdict(f"median over the {experiment.starts_are}, to {_target(experiment)}", texts, verdicts)


@against_all
def steadiest(experiment: Experiment, claim: Claim, summary: pl.DataFrame) -> Verdict:
    """The iterations to the tolerance vary least over the starts, by the ratio of the most to the fewest.

    Undecided where no method has all its starts converge within the budget.
    """
    texts: list[str] = []
    verdicts: list[bool | None] = []
    for setting in experiment.grid():
        spreads = {label: _spread(at(summary, setting, label)) for label in experiment.compared()}
        own = spreads[claim.method]
        others = min(value for label, value in spreads.items() if label != claim.method)
        verdicts.append(None if own == others == math.inf else own < others)
        known = [f"{label} {value:.2f}" for label, value in spreads.items() if value < math.inf]
        rest = [label for label, value in spreads.items() if value == math.inf]
        known += [f"not all converged: {', '.join(rest)}"] if rest else []
        texts.append(_under(setting, f"{', '.join(known)}"))
    return _verdict("most iterations to it over fewest, among the starts", texts, verdicts)


@register
def stays_finite(experiment: Experiment, claim: Claim, summary: pl.DataFrame) -> Verdict:
    """No run of the method diverges."""
    runs = summary.filter(method=claim.method)
    diverged, reached = int(runs["diverged"].sum()), int(runs["reached"].is_not_null().sum())
    largest = max(runs[experiment.measure])
    text = (
        f"{diverged} of {len(runs)} runs diverged; {reached} reached {_target(experiment)}, "
        f"and the largest last value is {largest:.2g}"
    )
    return Verdict(text, "holds" if diverged == 0 else "does not hold")


@register
def only_at_its_stepsize(experiment: Experiment, claim: Claim, summary: pl.DataFrame) -> Verdict:
    """The method's runs stay finite, and those of the other one, with the stepsize changed, do not converge."""
    own, other = summary.filter(method=claim.method), summary.filter(method=claim.other)
    text = "; ".join(
        f"{label}: {int(runs['diverged'].sum())} of {len(runs)} runs diverged, "
        f"{int(runs['reached'].is_not_null().sum())} converged"
        for label, runs in ((claim.method, own), (claim.other, other))
    )
    holds = not own["diverged"].any() and other["reached"].is_null().all()
    return Verdict(text, "holds" if holds else "does not hold")


@register
def similar(experiment: Experiment, claim: Claim, summary: pl.DataFrame) -> Verdict:
    """The medians of the iterations to the tolerance, and of the last values, differ by less than a factor of 2."""
    texts, verdicts = [], []
    for setting in experiment.grid():
        pairs = [_profile(experiment, at(summary, setting, label)) for label in (claim.method, claim.other)]
        verdicts.append(all(0.5 < a / b < 2.0 for a, b in zip(*pairs, strict=True)))
        texts.append(_under(setting, f"{_profiles((claim.method, str(claim.other)), pairs)}"))
    return _verdict(f"median iterations to {_target(experiment)}, and last value", texts, verdicts)


@against_all
def slower_at_first(experiment: Experiment, claim: Claim, summary: pl.DataFrame) -> Verdict:
    """The method needs the most iterations to the tolerance, and its last value is at most twice the others'."""
    texts, verdicts = [], []
    for setting in experiment.grid():
        labels = [claim.method, *(label for label in experiment.compared() if label != claim.method)]
        own, *others = profiles = [_profile(experiment, at(summary, setting, label)) for label in labels]
        slower, close = own[0] > max(p[0] for p in others), own[1] <= 2.0 * max(p[1] for p in others)
        verdicts.append(slower and close)
        texts.append(_under(setting, f"{_profiles(labels, profiles)}"))
    return _verdict(f"median iterations to {_target(experiment)}, and last value", texts, verdicts)


@against_all
def best(experiment: Experiment, claim: Claim, summary: pl.DataFrame) -> Verdict:
    """The method ends with the least training loss and the highest test accuracy, in the mean over the seeds."""
    texts, verdicts = [], []
    for setting in experiment.grid():
        means = {label: _means(at(summary, setting, label)) for label in experiment.compared()}
        loss, accuracy = means[claim.method]
        others = [pair for label, pair in means.items() if label != claim.method]
        verdicts += [loss < min(pair[0] for pair in others), accuracy > max(pair[1] for pair in others)]
        values = ", ".join(f"{label} {loss:.3g} and {accuracy:.2%}" for label, (loss, accuracy) in means.items())
        texts.append(_under(setting, f"{values}"))
    return _verdict("last training loss and test accuracy, mean over the seeds", texts, verdicts)


CLOSE = 0.01
"""The difference of test accuracies, one percentage point, below which methods perform similarly."""


@register
def similar_accuracy(experiment: Experiment, claim: Claim, summary: pl.DataFrame) -> Verdict:
    """The mean of the last test accuracy is above the other method's, or less than a percentage point below it."""
    texts, verdicts = [], []
    for setting in experiment.grid():
        (_, own), (_, other) = (_means(at(summary, setting, label)) for label in (claim.method, claim.other))
        verdicts.append(own > other - CLOSE)
        texts.append(_under(setting, f"{claim.method} {own:.2%}, {claim.other} {other:.2%}"))
    return _verdict("last test accuracy, mean over the seeds, less than a percentage point below", texts, verdicts)


def _means(runs: pl.DataFrame) -> tuple[float, float]:
    """Return the means of the last training loss and test accuracy; infinite and as measured where a seed diverged."""
    return float(np.mean(runs["train_loss"].fill_nan(math.inf).to_numpy())), float(
        np.mean(runs["test_accuracy"].to_numpy())
    )


def _under(setting: Setting, text: str) -> str:
    return f"{setting_name(setting)}: {text}" if setting else text


def _target(experiment: Experiment) -> str:
    return f"{experiment.symbols[experiment.measure]} ≤ {experiment.converged_below:g}"


def _profile(experiment: Experiment, runs: pl.DataFrame) -> tuple[float, float]:
    """Return the medians of the iterations to the tolerance and of the last values."""
    return _median_reached(runs), _last(runs, experiment.measure)


def _profiles(labels: Sequence[str], profiles: Sequence[tuple[float, float]]) -> str:
    return ", ".join(f"{label} {k:g}, {last:.2g}" for label, (k, last) in zip(labels, profiles, strict=True))


def _median_reached(runs: pl.DataFrame) -> float:
    """Return the median of the iterations to the tolerance, where a run that did not reach it counts as infinite."""
    return float(runs["reached"].cast(pl.Float64).fill_null(math.inf).median())  # type: ignore[arg-type]


def _last(runs: pl.DataFrame, quantity: str) -> float:
    """Return the median of the last values, where NaN counts as infinite."""
    return float(np.median(runs[quantity].fill_nan(math.inf)))


def _spread(runs: pl.DataFrame) -> float:
    reached = runs["reached"].cast(pl.Float64)
    return math.inf if reached.null_count() else max(reached) / min(reached)


def _verdict(measure: str, texts: list[str], verdicts: Sequence[bool | None]) -> Verdict:
    """Combine the verdicts of the settings, None where one is undecided."""
    if None in verdicts:
        decided = [verdict for verdict in verdicts if verdict is not None]
        holds = "holds in part" if any(decided) else "does not hold" if decided else "undecided"
    else:
        holds = "holds" if all(verdicts) else "holds in part" if any(verdicts) else "does not hold"
    return Verdict(f"{measure}; " + "; ".join(texts), holds)

"""How good the trained networks are at the end: by the loss on what neither training nor tuning saw."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from npgm.lab.experiments.claims.base import Verdict, each_setting, every, register
from npgm.lab.experiments.spec import Claim, Experiment, Setting
from npgm.lab.experiments.summary import at, half_width

QUANTITY = "test_loss"


@register
@each_setting("last test loss, mean over the {starts}; the difference is that of the same seeds")
def lower_loss(experiment: Experiment, claim: Claim, runs: pl.DataFrame, *, by: float) -> Verdict:
    """The method's last test loss is below the other's by more than ``by``; for a negative one, not so far above it.

    Undecided where the 95% confidence interval of the difference, seed by seed, has values of both kinds.
    """
    return _compared(
        claim.method, at(runs, {}, claim.method), str(claim.other), at(runs, {}, claim.other), -math.inf, -by
    )


@register
@each_setting("last test loss, mean over the {starts}; the difference is that of the same seeds")
def level_loss(experiment: Experiment, claim: Claim, runs: pl.DataFrame, *, within: float) -> Verdict:
    """The last test losses of the methods differ by less than ``within``; undecided as in `lower_loss`."""
    own, other = at(runs, {}, claim.method), at(runs, {}, claim.other)
    return _compared(claim.method, own, str(claim.other), other, -within, within)


@register
@each_setting("last {measure}, mean over the {starts}; the ratio is that of the means, with the same seeds")
def loss_ratio(experiment: Experiment, claim: Claim, runs: pl.DataFrame, *, at_most: float) -> Verdict:
    """The last measure of the method is at most so many times the other's, in the mean over the seeds.

    Undecided where the 95% confidence interval of the difference to so many times the other's, seed by seed, has zero.
    """
    labels = (claim.method, str(claim.other))
    own, other = (at(runs, {}, label) for label in labels)
    values, others, text, early = _paired(labels[0], own, labels[1], other, experiment.measure, bounded_below=False)
    if early is not None:
        return early
    mean, half = _interval(values - at_most * others)
    certain = len(values) == 1 or abs(mean) > half
    return Verdict.of(f"{text}, ratio {values.mean() / others.mean():.3f}", mean <= 0.0 if certain else None)


@register
def unharmed(
    experiment: Experiment, claim: Claim, summary: pl.DataFrame, *, setting: Setting, by: list[Setting], within: float
) -> Verdict:
    """What settings change costs the method less than ``within`` of its last test loss.

    Args:
        experiment: the experiment.
        claim: the claim.
        summary: the summary of the runs.
        setting: without the harm.
        by: those with it.
        within: the bound.
    """
    before = at(summary, setting, claim.method)
    verdicts, texts = [], []
    for harmful in by:
        name = ", ".join(map(str, harmful.values()))
        verdict = _compared(name, at(summary, harmful, claim.method), "without", before, -math.inf, within)
        verdicts.append({"holds": True, "does not hold": False}.get(verdict.holds))
        texts.append(verdict.measured)
    return Verdict.of(f"last test loss of {claim.method}; " + "; ".join(texts), every(verdicts))


def _compared(label: str, own: pl.DataFrame, rival: str, other: pl.DataFrame, low: float, high: float) -> Verdict:
    """Return whether the difference of the last losses lies between two bounds."""
    bounded_below = low != -math.inf
    values, others, text, early = _paired(label, own, rival, other, QUANTITY, bounded_below=bounded_below)
    if early is not None:
        return early
    mean, half = _interval(values - others)
    inside, outside = low < mean - half and mean + half < high, mean + half < low or mean - half > high
    return Verdict.of(f"{text}, difference {mean:.3f} ± {half:.3f}", True if inside else False if outside else None)


def _paired(
    label: str, own: pl.DataFrame, rival: str, other: pl.DataFrame, quantity: str, *, bounded_below: bool
) -> tuple[np.ndarray, np.ndarray, str, Verdict | None]:
    """Return the last values of two methods with the same seeds, in words too, and a verdict where there is no more.

    A method of which a training failed is beyond every bound from above, and if only the other one failed, within it.
    """
    pairs = own.join(other, on="seed", suffix="_other")
    values, others = (_last(pairs, quantity, suffix) for suffix in ("", "_other"))
    text = f"{label} {_text(values)}, {rival} {_text(others)}"
    early = None
    if not len(pairs):
        early = Verdict.of(f"{text}; they have no seed in common", None)
    elif not (np.isfinite(values).all() and np.isfinite(others).all()):
        failed, also = not np.isfinite(values).all(), not np.isfinite(others).all()
        early = Verdict.of(text, None if failed and also else False if failed else not bounded_below)
    return values, others, text, early


def _interval(differences: np.ndarray) -> tuple[float, float]:
    """Return the mean, and half the width of its 95% confidence interval, 0 for a single value."""
    number = len(differences)
    half = float(half_width(differences.std(ddof=1), number)) if number > 1 else 0.0
    return float(differences.mean()), half


def _last(pairs: pl.DataFrame, quantity: str, suffix: str) -> np.ndarray:
    values = pairs[f"{quantity}{suffix}"].to_numpy()
    return np.where(pairs[f"diverged{suffix}"].to_numpy(), math.inf, values)


def _text(values: np.ndarray) -> str:
    failed = int((~np.isfinite(values)).sum())
    return f"{failed} of {len(values)} not finite" if failed else f"{values.mean():.3f}" if len(values) else "not run"

"""How a method does on a suite of problems, each of which is a seed."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from npgm._common.array import Bools, Floats
from npgm.lab.experiments.claims.base import Verdict, against_all, each_setting, register
from npgm.lab.experiments.spec import Claim, Experiment
from npgm.lab.experiments.summary import at


def counts(runs: pl.DataFrame, label: str) -> Floats:
    """Return the evaluations of a method on each problem, by seed, infinite where it does not reach the tolerance."""
    reached = at(runs, {}, label).sort("seed")["reached"]
    return np.asarray(reached.cast(pl.Float64).fill_null(math.inf).to_numpy())


def best_counts(experiment: Experiment, runs: pl.DataFrame) -> Floats:
    """Return the fewest evaluations on each problem of the methods that are compared."""
    return np.asarray(np.min([counts(runs, label) for label in experiment.compared()], axis=0))


def is_near(own: Floats, best: Floats, factor: float, more: float) -> Bools:
    """Return on which problems a method takes at most ``factor`` times the evaluations of the best, and ``more``.

    Where the method does not reach the tolerance, it is not near.
    """
    return np.isfinite(own) & (own <= factor * best + more)


@register
@each_setting("{starts} on which {target} is not reached")
def no_failure(experiment: Experiment, claim: Claim, runs: pl.DataFrame) -> Verdict:
    """The method reaches the tolerance on every problem."""
    reached = counts(runs, claim.method)
    failed = int(np.isinf(reached).sum())
    return Verdict.of(f"{failed} of {len(reached)}", failed == 0)


@against_all
@each_setting("{starts} on which {clock}s are as few")
def near_the_best(
    experiment: Experiment, claim: Claim, runs: pl.DataFrame, *, factor: float, more: float, share: float
) -> Verdict:
    """On this share of the problems the method is near the best of those that are compared, as `is_near` says."""
    own = counts(runs, claim.method)
    near = int(is_near(own, best_counts(experiment, runs), factor, more).sum())
    return Verdict.of(f"{near} of {len(own)}", near >= share * len(own))


@register
@each_setting("median, over the {starts}, of the ratio of {clock}s")
def median_ratio(experiment: Experiment, claim: Claim, runs: pl.DataFrame, *, most: float) -> Verdict:
    """The median of the ratio to another method's evaluations is at most ``most``; it is 1 where both fail."""
    own, other = counts(runs, claim.method), counts(runs, str(claim.other))
    with np.errstate(invalid="ignore"):
        ratio = np.median(np.where(np.isinf(own) & np.isinf(other), 1.0, own / other))
    return Verdict.of(f"{ratio:.3g}", bool(ratio <= most))


@register
@each_setting("{starts} on which {target} is reached")
def as_many(experiment: Experiment, claim: Claim, runs: pl.DataFrame) -> Verdict:
    """The method reaches the tolerance on as many problems as another one, or more."""
    own, other = (int(np.isfinite(counts(runs, label)).sum()) for label in (claim.method, str(claim.other)))
    return Verdict.of(f"{own} against {other}", own >= other)

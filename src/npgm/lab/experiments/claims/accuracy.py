"""How good the trained networks are: the last training loss and test accuracy."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from npgm.lab.experiments.claims.base import Verdict, against_all, combined, each_setting, every, register
from npgm.lab.experiments.spec import Claim, Experiment
from npgm.lab.experiments.summary import at, half_width

BETTER = 1.5
"""The ratio of training losses from which one is smaller in more than name."""


@against_all
@each_setting("last training loss and test accuracy, mean over the {starts}")
def best(experiment: Experiment, claim: Claim, runs: pl.DataFrame) -> Verdict:
    """The method ends with the least training loss, by a factor of `BETTER`, and with the highest test accuracy.

    An accuracy is higher where the 95% confidence interval of the difference is above 0. Undecided what is neither
    better nor worse; a seed that diverged makes its method the worse one.
    """
    ends = {label: _End(at(runs, {}, label)) for label in experiment.compared()}
    text = ", ".join(f"{label} {end}" for label, end in ends.items())
    own = ends.pop(claim.method)
    respects = [
        every(own.smaller_loss(other) for other in ends.values()),
        every(own.more_accurate(other) for other in ends.values()),
    ]
    return Verdict(text, combined(Verdict.of("", respect).holds for respect in respects))


@register
@each_setting("last test accuracy, mean over the {starts}")
def similar_accuracy(experiment: Experiment, claim: Claim, runs: pl.DataFrame, within: float = 0.01) -> Verdict:
    """The mean of the last test accuracy differs from the other method's by at most ``within``, above or below.

    Undecided where its 95% confidence interval has differences of both kinds.
    """
    own, other = (_End(at(runs, {}, label)) for label in (claim.method, claim.other))
    difference, half = own.difference(other)
    certain = abs(abs(difference) - within) > half
    by = f"difference {100 * difference:.2f} ± {100 * half:.2f}; similar means at most {100 * within:g} points"
    text = f"{claim.method} {own.accuracy:.2%}, {claim.other} {other.accuracy:.2%}, {by}"
    return Verdict.of(text, abs(difference) < within if certain else None)


class _End:
    """The last values of a method: means over the seeds, an accuracy with half its confidence interval."""

    def __init__(self, runs: pl.DataFrame) -> None:
        accuracy = runs["test_accuracy"].to_numpy()
        self.diverged = bool(runs["diverged"].any())
        self.loss = math.inf if self.diverged else float(np.mean(runs["train_loss"].to_numpy()))
        self.accuracy = float(np.mean(accuracy))
        self.half = float(half_width(accuracy.std(ddof=1), len(accuracy))) if len(accuracy) > 1 else 0.0

    def __str__(self) -> str:
        return f"{self.loss:.3g} and {self.accuracy:.2%} ± {self.half:.2%}"

    def difference(self, other: _End) -> tuple[float, float]:
        """Return by how much the accuracy is higher, with half the width of its confidence interval."""
        return self.accuracy - other.accuracy, math.hypot(self.half, other.half)

    def smaller_loss(self, other: _End) -> bool | None:
        """Return whether the training loss is the smaller one, None where that is in name only."""
        if self.diverged or other.diverged:
            return None if self.diverged and other.diverged else other.diverged
        return True if BETTER * self.loss <= other.loss else False if BETTER * other.loss <= self.loss else None

    def more_accurate(self, other: _End) -> bool | None:
        """Return whether the accuracy is the higher one, None where seeds could have made the difference."""
        if self.diverged or other.diverged:
            return None if self.diverged and other.diverged else other.diverged
        difference, half = self.difference(other)
        return difference > 0.0 if abs(difference) > half else None

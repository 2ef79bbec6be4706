"""Whether methods converge, and whether they diverge."""

from __future__ import annotations

import numpy as np
import polars as pl

from npgm.lab.experiments.claims.base import Verdict, budget, each_setting, every, median_last, register, target
from npgm.lab.experiments.spec import Claim, Experiment
from npgm.lab.experiments.summary import at


@register
@each_setting("")
def converges(experiment: Experiment, claim: Claim, runs: pl.DataFrame) -> Verdict:
    """All runs of the method reach the tolerance; undecided where some do not, but none diverges."""
    own = at(runs, {}, claim.method)
    reached, diverged = int(own["reached"].count()), int(own["diverged"].sum())
    text = f"{reached} of {len(own)} runs reached {target(experiment)} within {budget(own)} {experiment.clock}s"
    if reached < len(own):
        text += f"; {diverged} diverged, and the largest last value is {np.max(own[experiment.measure].to_numpy()):.2g}"
    return Verdict.of(text, True if reached == len(own) else False if diverged else None)


@register
@each_setting("")
def converges_alone(experiment: Experiment, claim: Claim, runs: pl.DataFrame) -> Verdict:
    """All runs of the method reach the tolerance, and none of the other's; undecided where either has some."""
    texts = []
    verdicts: list[bool | None] = []
    for label, wanted in ((claim.method, 1.0), (str(claim.other), 0.0)):
        own = at(runs, {}, label)
        part = float(own["reached"].is_not_null().mean())  # type: ignore[arg-type]
        texts.append(
            f"{label}: {part * len(own):.0f} of {len(own)} runs reached {target(experiment)} within {budget(own)}, "
            f"median last value {median_last(own, experiment.measure):.2g}"
        )
        verdicts.append(True if part == wanted else False if part == 1.0 - wanted else None)
    return Verdict.of("; ".join(texts), every(verdicts))


@register
@each_setting("")
def only_at_its_stepsize(experiment: Experiment, claim: Claim, runs: pl.DataFrame) -> Verdict:
    """All runs of the method converge, and those of the other one, with the stepsize changed, diverge.

    Undecided where a run does neither.
    """
    texts = []
    verdicts: list[bool | None] = []
    for label, good, bad in ((claim.method, "reached", "diverged"), (str(claim.other), "diverged", "reached")):
        own = at(runs, {}, label).with_columns(reached=pl.col("reached").is_not_null())
        texts.append(
            f"{label}: {int(own['diverged'].sum())} of {len(own)} runs diverged, {int(own['reached'].sum())} converged"
        )
        verdicts.append(False if own[bad].any() else True if own[good].all() else None)
    return Verdict.of("; ".join(texts), every(verdicts))

"""What a check is, the registry of checks, and how one claim is decided."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from npgm._common import validate
from npgm.lab.experiments.spec import Claim, Experiment, Setting
from npgm.lab.experiments.summary import at, setting_name

VERDICTS = {
    "holds": "It holds at",
    "holds in part": "It holds in part at",
    "does not hold": "It does not hold at",
    "undecided": "It is undecided at",
    "not run": "It was not run at",
}
"""The verdicts, each with the beginning of its sentence, which ends in the preset."""
FEWEST = 2
"""Starts or seeds of each method below which nothing is decided."""


@dataclass(frozen=True)
class Verdict:
    """What was measured for a claim, and whether it holds: one of `VERDICTS`."""

    measured: str
    holds: str

    @classmethod
    def of(cls, measured: str, holds: bool | None) -> Verdict:
        """Return the verdict of a truth value, of which None is undecided."""
        return cls(measured, "undecided" if holds is None else "holds" if holds else "does not hold")


Check = Callable[..., Verdict]
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


def each_setting(measure: str) -> Callable[[Check], Check]:
    """Make a check of one that is given the runs of one setting: it holds in part where the settings differ.

    Args:
        measure: what the check measures, in words, where ``{target}`` stands for the tolerance of the experiment,
            ``{starts}`` for its starts or seeds, ``{measure}`` for its measure, and ``{clock}`` for an iteration or
            epoch.
    """

    def decorate(check: Check) -> Check:
        @functools.wraps(check)
        def over_settings(experiment: Experiment, claim: Claim, summary: pl.DataFrame, **options: object) -> Verdict:
            verdicts = [check(experiment, claim, at(summary, setting), **options) for setting in experiment.grid()]
            texts = (
                _under(experiment, setting, verdict.measured)
                for setting, verdict in zip(experiment.grid(), verdicts, strict=True)
            )
            what = measure.format(
                target=target(experiment), starts=experiment.starts_are, clock=experiment.clock,
                measure=experiment.symbol(experiment.measure),
            )  # fmt: skip
            return Verdict("; ".join(filter(None, (what, *texts))), combined(verdict.holds for verdict in verdicts))

        return over_settings

    return decorate


def verify(claim: Claim) -> None:
    """Raise a ValueError or TypeError that names what is wrong, unless the claim's check can be called."""
    check = registry[validate.choice("check", claim.check, registry)]
    try:
        inspect.signature(check).bind(None, claim, None, **claim.options)
    except TypeError as error:
        raise TypeError(f"the check {claim.check!r}: {error}") from None


def decide(experiment: Experiment, claim: Claim, summary: pl.DataFrame, inconclusive: str = "") -> Verdict:
    """Return the verdict on a claim: undecided if the runs are ``inconclusive``, which says why, or too few."""
    check = registry[validate.choice("check", claim.check, registry)]
    needed = {claim.method, *filter(None, [claim.other])}
    if claim.check in _against_all:
        needed.update(experiment.compared())
    missing = [
        _under(experiment, setting, f"no run of {', '.join(sorted(absent))} is done")
        for setting in experiment.grid()
        if (absent := needed - set(at(summary, setting)["method"]))
    ]
    if missing:
        return Verdict("; ".join(missing), "not run")
    verdict = check(experiment, claim, summary, **claim.options)
    fewest = min(at(summary, setting, label).height for setting in experiment.grid() for label in needed)
    if not inconclusive and fewest < FEWEST:
        inconclusive = f"one of the {experiment.starts_are} only"
    if inconclusive:
        return Verdict(f"{inconclusive}, which decides nothing: {verdict.measured}", "undecided")
    return verdict


def combined(verdicts: Iterable[str]) -> str:
    """Return one verdict for several settings, or several respects."""
    different = set(verdicts)
    if len(different) == 1:
        return different.pop()
    if different & {"holds", "holds in part"}:
        return "holds in part"
    return "does not hold" if "does not hold" in different else "undecided"


def every(parts: Iterable[bool | None]) -> bool | None:
    """Return whether all parts are true, None where that depends on those that are undecided."""
    different = set(parts)
    return False if False in different else None if None in different else True


def target(experiment: Experiment, times: float = 1.0) -> str:
    """Return the experiment's tolerance in words, or a multiple of it."""
    return f"{experiment.symbol(experiment.measure)} ≤ {times * experiment.converged_below:g}"


def median_reached(runs: pl.DataFrame, column: str = "reached") -> float:
    """Return the median of the iterations to the tolerance, where a run that did not reach it counts as infinite."""
    return float(runs[column].cast(pl.Float64).fill_null(math.inf).median())  # type: ignore[arg-type]


def median_last(runs: pl.DataFrame, quantity: str) -> float:
    """Return the median of the last values, where NaN counts as infinite."""
    return float(np.median(runs[quantity].fill_nan(math.inf)))


def budget(runs: pl.DataFrame) -> int:
    """Return the iterations or epochs of the longest run."""
    return int(runs["length"].to_numpy().max())


def _under(experiment: Experiment, setting: Setting, text: str) -> str:
    several = {name: value for name, value in setting.items() if len(experiment.settings[name]) > 1}
    return f"{setting_name(several)}: {text}" if several else text

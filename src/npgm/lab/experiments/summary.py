"""One row a run: what an experiment's tables and claims are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from scipy.special import stdtrit

from npgm.lab.experiments.spec import Experiment, Quantity, Setting

LOOSER_TARGETS = {"reached_100": 100.0, "reached_10": 10.0}
"""Columns of a summary as ``reached``, for these multiples of ``converged_below``."""
_AVERAGES = {"median": "median and range", "mean": "mean and 95% confidence interval"}


def summarise(experiment: Experiment, frame: pl.DataFrame) -> pl.DataFrame:
    """Return one row for each setting, method and seed.

    Columns: the setting's, method, seed, ``reached`` (the first iteration or epoch with the measure <= converged_below,
    null if there was none), the columns of `LOOSER_TARGETS`, ``diverged``, the last value of each quantity that was
    measured, the measure at each of the experiment's marks, as ``at_…``, the ``length`` in iterations or epochs, and
    the ``seconds`` of one.
    """
    by = [*experiment.settings, "method", "seed"]
    return frame.group_by(by, maintain_order=True).agg(
        *(
            pl.col("k").filter(pl.col(experiment.measure) <= times * experiment.converged_below).min().alias(name)
            for name, times in {"reached": 1.0, **LOOSER_TARGETS}.items()
        ),
        (pl.col("status").last() == "DIVERGED").alias("diverged"),
        pl.col(*(name for name in experiment.known if name in frame.columns)).drop_nulls().last(),
        *(
            pl.col(experiment.measure).filter(pl.col("k") == mark).first().alias(f"at_{mark}")
            for mark in experiment.marks
        ),
        pl.col("k").last().alias("length"),
        pl.col("seconds").last() / pl.col("k").last(),
    )


def curve(experiment: Experiment, runs: pl.DataFrame, quantity: str) -> pl.DataFrame:
    """Return ``middle``, ``low`` and ``high`` of a quantity over the starts, for each k, with the ``seconds``.

    They are the median and the range, or the mean and its 95% confidence interval, for which the values are taken as
    normal; that of a single start is the value itself. They are cut off where they mean nothing any more: an accuracy
    at 0 and 1, f - min f at its rounding. A run that converged before others ended goes on with its last value.
    """
    value = pl.col(quantity)
    is_median = experiment.average == "median"
    by_k = (_level(runs) if is_median else runs).group_by("k", maintain_order=True)
    if is_median:
        points = by_k.agg(pl.col("seconds").median(), middle=value.median(), low=value.min(), high=value.max())
        return _clipped(points, experiment.known[quantity])
    points = by_k.agg(pl.col("seconds").median(), middle=value.mean(), deviation=value.std(), number=value.len())
    half = half_width(points["deviation"].fill_null(0.0).to_numpy(), points["number"].to_numpy())
    return _clipped(
        points.with_columns(low=pl.col("middle") - half, high=pl.col("middle") + half), experiment.known[quantity]
    )


def _level(runs: pl.DataFrame) -> pl.DataFrame:
    """Continue the runs that converged, by their last row, to the end of the longest."""
    ends = runs.group_by("seed", maintain_order=True).last().filter(status="CONVERGED").drop("k")
    goes_on = runs.select("k").unique().join(ends, how="cross")
    return pl.concat([runs, goes_on.join(runs, on=["seed", "k"], how="anti")], how="diagonal")


def _clipped(points: pl.DataFrame, known: Quantity) -> pl.DataFrame:
    return points.with_columns(pl.col("middle", "low", "high").clip(known.lowest, known.highest)).sort("k")


def averaged(experiment: Experiment) -> str:
    """Return in words what `curve` shows, such as ``median and range over the starts``."""
    return f"{_AVERAGES[experiment.average]} over the {experiment.starts_are}"


def half_width(deviation: Any, number: Any) -> Any:
    """Return half the width of the 95% confidence interval of a mean, 0 for a single value."""
    return stdtrit(np.maximum(number - 1, 1), 0.975) * deviation / np.sqrt(number)


def at(frame: pl.DataFrame, setting: Setting, method: str | None = None) -> pl.DataFrame:
    """Return the rows of a setting, and of a method if one is named."""
    conditions = dict(setting) if method is None else {**setting, "method": method}
    return frame.filter(**conditions)


def setting_name(setting: Setting) -> str:
    """Return a setting as text, such as ``rank = 10``; empty where an experiment has one only."""
    return ", ".join(f"{name} = {value}" for name, value in setting.items())


def over_starts(experiment: Experiment, quantity: str, values: pl.Series) -> str:
    """Return a quantity over the starts as text, in the experiment's kind of average."""
    known = experiment.known[quantity]
    values = values.clip(known.lowest, known.highest)
    if experiment.average == "median":
        return median_and_range(values, known.form)
    if divergent := (~values.is_finite()).sum():
        return f"not finite for {divergent} of {len(values)}"
    mean, deviation = values.to_numpy().mean(), values.std() or 0.0
    text = known.form.format(mean)
    return f"{text} ± {known.form.format(half_width(deviation, len(values)))}" if len(values) > 1 else text


def median_and_range(values: pl.Series, form: str) -> str:
    """Return the median of numbers with their range, each in a form, as text."""
    if values.is_empty():
        return "–"
    middle, low, high = (form.format(v) for v in (values.median(), values.min(), values.max()))
    return f"{middle} [{low}, {high}]" if len(values) > 1 else middle

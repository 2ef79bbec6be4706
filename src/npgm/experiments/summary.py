"""One row a run: what an experiment's tables and claims are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from scipy import stats

from npgm.experiments.spec import Experiment, Setting


def summarise(experiment: Experiment, frame: pl.DataFrame) -> pl.DataFrame:
    """Return one row for each setting, method and seed.

    Columns: the setting's, method, seed, ``reached`` (the first iteration or epoch with the measure <= converged_below,
    null if there was none), ``diverged``, the last value of each quantity, the last ``sharpness`` that was measured, if
    that was asked for, and the ``seconds`` of an iteration or epoch.
    """
    by = [*experiment.settings, "method", "seed"]
    return frame.group_by(by, maintain_order=True).agg(
        pl.col("k").filter(pl.col(experiment.measure) <= experiment.converged_below).min().alias("reached"),
        (pl.col("status").last() == "DIVERGED").alias("diverged"),
        pl.col(*experiment.symbols).last(),
        *([pl.col("sharpness").drop_nulls().last()] if "sharpness" in frame.columns else []),
        pl.col("seconds").last() / pl.col("k").last(),
    )


def curve(experiment: Experiment, runs: pl.DataFrame, quantity: str) -> pl.DataFrame:
    """Return ``middle``, ``low`` and ``high`` of a quantity over the starts, for each k, with the ``seconds``.

    They are the median and the range, or the mean and its 95% confidence interval, for which the values are taken as
    normal; that of a single start is the value itself.
    """
    value = pl.col(quantity)
    by_k = runs.group_by("k", maintain_order=True)
    if experiment.average == "median":
        points = by_k.agg(pl.col("seconds").median(), middle=value.median(), low=value.min(), high=value.max())
        return points.sort("k")
    points = by_k.agg(pl.col("seconds").median(), middle=value.mean(), deviation=value.std(), number=value.len())
    half = half_width(points["deviation"].fill_null(0.0).to_numpy(), points["number"].to_numpy())
    return points.with_columns(low=pl.col("middle") - half, high=pl.col("middle") + half).sort("k")


def half_width(deviation: Any, number: Any) -> Any:
    """Return half the width of the 95% confidence interval of a mean, 0 for a single value."""
    return stats.t.ppf(0.975, np.maximum(number - 1, 1)) * deviation / np.sqrt(number)


def at(frame: pl.DataFrame, setting: Setting, method: str | None = None) -> pl.DataFrame:
    """Return the rows of a setting, and of a method if one is named."""
    conditions = dict(setting) if method is None else {**setting, "method": method}
    return frame.filter(**conditions)


def setting_name(setting: Setting) -> str:
    """Return a setting as text, such as ``rank = 10``; empty where an experiment has one only."""
    return ", ".join(f"{name} = {value}" for name, value in setting.items())

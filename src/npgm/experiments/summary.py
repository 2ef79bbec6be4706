"""One row a run: what an experiment's tables and claims are made of."""

from __future__ import annotations

import polars as pl

from npgm.experiments.spec import Experiment, Setting


def summarise(experiment: Experiment, frame: pl.DataFrame) -> pl.DataFrame:
    """Return one row for each setting, method and seed.

    Columns: the setting's, method, seed, ``reached`` (the first iteration with the measure <= converged_below, null if
    there was none), ``diverged``, the last iterate's ``grad_norm`` and ``gap``, the last ``sharpness`` that was
    measured, and the ``milliseconds`` of an iteration.
    """
    by = [*experiment.settings, "method", "seed"]
    return frame.group_by(by, maintain_order=True).agg(
        pl.col("k").filter(pl.col(experiment.measure) <= experiment.converged_below).min().alias("reached"),
        (pl.col("status").last() == "DIVERGED").alias("diverged"),
        pl.col("grad_norm").last(),
        pl.col("gap").last(),
        pl.col("sharpness").drop_nulls().last(),
        (1e3 * pl.col("seconds").last() / pl.col("k").last()).alias("milliseconds"),
    )


def at(frame: pl.DataFrame, setting: Setting, method: str | None = None) -> pl.DataFrame:
    """Return the rows of a setting, and of a method if one is named."""
    conditions = dict(setting) if method is None else {**setting, "method": method}
    return frame.filter(**conditions)


def setting_name(setting: Setting) -> str:
    """Return a setting as text, such as ``rank = 10``."""
    return ", ".join(f"{name} = {value}" for name, value in setting.items())

"""One row a run: what an experiment's tables and claims are made of."""

from __future__ import annotations

import polars as pl

from npgm.experiments import instances
from npgm.experiments.spec import Experiment, Setting
from npgm.experiments.store import Store


def histories(experiment: Experiment, preset: str, store: Store) -> pl.DataFrame:
    """Return all histories of a preset that are in the store, with ``gap`` = f - min f in a further column."""
    frame = store.read(experiment.runs(preset))
    build = instances.registry[experiment.problem]
    optima = pl.DataFrame([{**s, "optimum": build(**s, threads=1).optimum} for s in experiment.grid()])
    joined = frame.join(optima, on=list(experiment.settings), maintain_order="left")
    return joined.with_columns((pl.col("fun") - pl.col("optimum")).alias("gap")).drop("optimum")


def summarise(experiment: Experiment, frame: pl.DataFrame) -> pl.DataFrame:
    """Return one row for each setting, method and seed.

    Columns: the setting's, method, seed, ``reached`` (the first iteration with ‖∇f‖ <= converged_below, null if there
    was none), ``diverged``, and the last iterate's ``grad_norm``, ``gap`` and ``sharpness`` (the last measured one),
    and the ``milliseconds`` of an iteration.
    """
    by = [*experiment.settings, "method", "seed"]
    return frame.group_by(by, maintain_order=True).agg(
        pl.col("k").filter(pl.col("grad_norm") <= experiment.converged_below).min().alias("reached"),
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

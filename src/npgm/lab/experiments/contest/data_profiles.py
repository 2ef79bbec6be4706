"""How many problems of a contest each method solves by the value of f, in the data profiles of Moré and Wild (2009)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl

from npgm._common.array import Floats
from npgm.lab.experiments.contest.problems import suite
from npgm.lab.experiments.kind_report import Picture, Section
from npgm.lab.experiments.page import table
from npgm.lab.experiments.spec import Experiment
from npgm.lab.plot import Line, Panel, Plot, numbers

TAUS = (1e-3, 1e-5, 1e-7)
"""A problem is solved where f <= f_L + τ (f(x⁰) - f_L), f_L the least value that any of the methods saw."""
_WORDS = (
    "A problem is solved where f ≤ f_L + τ (f(x⁰) − f_L), f_L the least value that any of the methods has seen: the "
    "test of Moré and Wild (2009). The table has the number of problems solved and, in brackets, the median of the "
    "evaluations that they took. A run ends at the tolerance of the gradient; what lies beyond it is not seen."
)
_CAPTION = "data profiles: the share of problems solved by f within so many evaluations, over n + 1"


def evaluations(runs: pl.DataFrame, tau: float) -> dict[str, Floats]:
    """Return the evaluations of each method until f passes the test, by problem, infinite where it never does.

    Args:
        runs: rows with method, seed, k and fun, of one suite and of methods with all problems.
        tau: τ.
    """
    problems = runs["seed"].unique().sort()
    runs = runs.filter(pl.col("fun").is_finite())
    ends = runs.group_by("seed").agg(pl.col("fun").sort_by("k").first().alias("first"), pl.min("fun").alias("least"))
    passed = runs.join(ends, on="seed").filter(
        pl.col("fun") <= pl.col("least") + tau * (pl.col("first") - pl.col("least"))
    )
    counts = passed.group_by("method", "seed").agg(pl.min("k"))
    found: dict[str, Floats] = {}
    for label in runs["method"].unique(maintain_order=True):
        own = dict(counts.filter(method=label).select("seed", "k").iter_rows())
        found[label] = np.array([own.get(seed, math.inf) for seed in problems], dtype=np.float64)
    return found


def section(experiment: Experiment, frame: pl.DataFrame) -> Section:
    """Return the section of a report with a table and the profiles."""
    rows: list[tuple[Any, ...]] = []
    columns: list[list[Panel]] = []
    labels = [method.label for method in experiment.methods]
    for setting in experiment.grid():
        name = setting["suite"]
        runs = _complete(frame.filter(suite=name))
        if runs.is_empty():
            continue
        sizes = np.array([suite(name)[seed].start.size for seed in runs["seed"].unique().sort()])
        panels = []
        for tau in TAUS:
            found = evaluations(runs, tau)
            rows.append((name, f"{tau:g}", *(_cell(found[label]) if label in found else "" for label in labels)))
            panels.append(Panel(
                lines=[_line(label, found[label] / (sizes + 1.0)) for label in labels if label in found],
                title=f"{name}, τ = {tau:g}", xlabel="evaluations / (n + 1)", xscale="log2", ylim=(-0.02, 1.02),
                ylabel="" if columns else "share of problems solved",
            ))  # fmt: skip
        columns.append(panels)
    plot = Plot(rows=[list(row) for row in zip(*columns, strict=True)])
    picture = Picture("data-profiles", _CAPTION, plot) if columns else None
    return Section("By the value of f", (table(("suite", "τ", *labels), rows), _WORDS), picture)


def _complete(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the runs of the methods of which all problems are done."""
    number = runs["seed"].n_unique()
    done = runs.group_by("method").agg(pl.col("seed").n_unique()).filter(seed=number)["method"]
    return runs.filter(pl.col("method").is_in(done.implode()))


def _cell(found: Floats) -> str:
    solved = found[np.isfinite(found)]
    return f"{len(solved)} ({np.median(solved):.0f})" if len(solved) else "0"


def _line(label: str, costs: Floats) -> Line:
    x = np.sort(costs[np.isfinite(costs)])
    share = np.arange(1.0, len(x) + 1.0) / len(costs)
    return Line(label=label, x=numbers(x), y=numbers(share), look="steps")

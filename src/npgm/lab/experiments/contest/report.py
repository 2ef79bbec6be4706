"""What a report of a contest has beside the tables of every report: profiles, and the evaluations on each problem."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from npgm._common.array import Floats
from npgm.lab.experiments.claims.contest import counts, is_near
from npgm.lab.experiments.contest.experiment import ContestExperiment
from npgm.lab.experiments.contest.problems import suite
from npgm.lab.experiments.page import table
from npgm.lab.experiments.summary import at
from npgm.lab.style import FAINT, INK, STYLES, Style, blank, drawing, save

CAPTION = "performance profiles: the share of problems that are solved within a ratio of the best one's cost"
"""What `profiles` shows, in words."""
FACTOR, MORE = 1.5, 20
"""A method loses a problem where it takes more than so many times the evaluations of the best, and so many more."""
WIDEST = 64.0
"""The largest ratio that a profile shows."""


@drawing()
def profiles(experiment: ContestExperiment, summary: pl.DataFrame, path: Path) -> None:
    """Draw, for each suite, the share of problems that a method solves within a ratio of the best one's cost.

    These are the performance profiles of Dolan and Moré (2002), in evaluations and in seconds. The best is that of the
    methods that are compared; the others are thin.
    """
    grid = experiment.grid()
    figure = blank(4.4 * len(grid), 6.4)
    axes = figure.subplots(2, len(grid), squeeze=False, sharey=True)
    checks = [method.label for method in experiment.methods if method.role == "check"]
    labels = [*experiment.compared(), *checks]
    for column, setting in zip(axes.T, grid, strict=True):
        runs = at(summary, setting)
        number = runs["seed"].n_unique()
        column[0].set_title(f"{setting['suite']}, {number} problems")
        for ax, (unit, costs) in zip(column, _costs(experiment, runs).items(), strict=True):
            best = np.min([costs[label] for label in experiment.compared() if label in costs], axis=0)
            thin = (Style(INK, dashes) for dashes in ("-", ":"))
            for style, label in zip([*STYLES[: len(experiment.compared())], *thin], labels, strict=False):
                if label in costs:
                    x, y = _profile(costs[label], best)
                    (line,) = ax.plot(x, y, color=style.color, linestyle=style.dashes, label=label)
                    line.set(drawstyle="steps-post", linewidth=0.8 if label in checks else 1.6)
            ax.set(xlabel=f"{unit}, times the best", xscale="log", xlim=(0.5, WIDEST), ylim=(-0.02, 1.02))
            ax.set_xscale("log", base=2)
            ax.xaxis.set_major_formatter("{x:g}")
            ax.grid(color=FAINT, linewidth=0.6)
    for ax in axes[:, 0]:
        ax.set_ylabel("share of problems solved")
    save(figure, path)


def sections(experiment: ContestExperiment, summary: pl.DataFrame, frame: pl.DataFrame) -> Iterator[str]:
    """Yield where the first method loses, the evaluations on each problem, and what tuning took."""
    yield "## Where it loses\n\n" + _losses(experiment, summary)
    yield (
        f"The problems on which {experiment.methods[0].label} takes more than {FACTOR:g} times the evaluations of the "
        f"best method that is compared, and {MORE} more, or fails."
    )
    for setting in experiment.grid():
        if not at(summary, setting).is_empty():
            name = setting["suite"]
            yield f"## Evaluations: {name}\n\n" + _by_problem(experiment, name, at(summary, setting))
    yield (
        "Evaluations of f and ∇f until the tolerance is reached; – where it is not. Those of a tuned method are of its "
        "best stepsize on the problem alone."
    )
    yield "## Tuning\n\n" + _tuning(experiment, frame)
    yield (
        "## Problems with a function beside f\n\nTheir measure is a subgradient of f + g, and none of these methods "
        "finds one: they have experiments of their own, `npgm reproduce composite`."
    )


def _costs(experiment: ContestExperiment, runs: pl.DataFrame) -> dict[str, dict[str, Floats]]:
    """Return the evaluations and the seconds of the methods of which all problems are done."""
    number = runs["seed"].n_unique()
    complete = [m.label for m in experiment.methods if at(runs, {}, m.label).height == number]
    evaluations = {label: counts(runs, label) for label in complete}
    each = {label: at(runs, {}, label).sort("seed")["seconds"].to_numpy() for label in complete}
    return {"evaluations": evaluations, "seconds": {label: evaluations[label] * each[label] for label in complete}}


def _profile(cost: Floats, best: Floats) -> tuple[Floats, Floats]:
    with np.errstate(invalid="ignore"):
        ratios = np.sort(np.where(np.isfinite(cost), cost / best, np.inf))
    shown = ratios[ratios <= WIDEST]
    share = np.arange(1.0, len(shown) + 1.0) / len(ratios)
    last = share[-1] if len(share) else 0.0
    return np.concatenate([[0.5], shown, [WIDEST]]), np.concatenate([[0.0], share, [last]])


def _losses(experiment: ContestExperiment, summary: pl.DataFrame) -> str:
    rows = []
    own_label = experiment.methods[0].label
    for setting in experiment.grid():
        runs = at(summary, setting)
        costs = _costs(experiment, runs)["evaluations"] if not runs.is_empty() else {}
        if own_label not in costs:
            continue
        compared = [label for label in experiment.compared() if label in costs]
        best = np.min([costs[label] for label in compared], axis=0)
        for i in np.flatnonzero(~is_near(costs[own_label], best, FACTOR, MORE)):
            winner = compared[int(np.argmin([costs[label][i] for label in compared]))] if best[i] < np.inf else "none"
            others = (label for label in costs if label not in compared)
            rows.append((
                setting["suite"], suite(setting["suite"])[i].name, _count(costs[own_label][i]),
                f"{winner} {_count(best[i])}", ", ".join(f"{label} {_count(costs[label][i])}" for label in others),
            ))  # fmt: skip
    return table(("suite", "problem", own_label, "best of those compared", "beside them"), rows)


def _by_problem(experiment: ContestExperiment, name: str, runs: pl.DataFrame) -> str:
    labels = [method.label for method in experiment.methods]
    reached = {(row["method"], row["seed"]): row["reached"] for row in runs.iter_rows(named=True)}
    rows = []
    for seed in sorted(runs["seed"].unique()):
        problem = suite(name)[seed]
        rows.append((problem.name, problem.start.size, *(_count(reached.get((label, seed))) for label in labels)))
    return table(("problem", "n", *labels), rows)


def _tuning(experiment: ContestExperiment, frame: pl.DataFrame) -> str:
    last = frame.group_by(["suite", "seed", "method"], maintain_order=True).last()
    rows = []
    for label in experiment.compared():
        own = last.filter(pl.col("lr").is_not_null(), method=label)
        if not own.is_empty():
            spent = own["tuning"].to_numpy()
            total = f"{spent.sum()}", f"{own['k'].sum()}"
            rows.append((label, _span(own["lr"]), _span(own["scale"]), f"{np.median(spent):.0f}", *total))
    head = ("method", "γ", "λ/‖∇f(x⁰)‖", "median evaluations of the tuning", "in all", "of the runs")
    return table(head, rows)


def _span(values: pl.Series) -> str:
    present = values.drop_nulls().to_numpy()
    return f"{present.min():.2g} to {present.max():.2g}" if len(present) else ""


def _count(value: float | None) -> str:
    return "–" if value is None or not np.isfinite(value) else f"{value:.0f}"

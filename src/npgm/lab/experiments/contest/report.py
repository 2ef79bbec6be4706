"""What a report of a contest has beside the tables of every report: profiles, and the evaluations on each problem."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from npgm._common.array import Floats
from npgm.lab.experiments.claims.contest import counts, is_near
from npgm.lab.experiments.contest import data_profiles
from npgm.lab.experiments.contest.experiment import ContestExperiment
from npgm.lab.experiments.contest.problems import suite
from npgm.lab.experiments.kind_report import KindReport, Picture, Section
from npgm.lab.experiments.page import table
from npgm.lab.experiments.summary import at
from npgm.lab.plot import Line, Panel, Plot, numbers

CAPTION = "performance profiles: the share of problems that are solved within a ratio of the best one's cost"
"""What `profiles` shows, in words."""
FACTOR, MORE = 1.5, 20
"""A method loses a problem where it takes more than so many times the evaluations of the best, and so many more."""
WIDEST = 64.0
"""The largest ratio that a profile shows."""


class ContestReport(KindReport):
    """The report of a contest."""

    def first_picture(self) -> Picture:
        """Return the performance profiles."""
        return Picture("profiles", CAPTION, profiles(self.experiment, self.results.summary))

    def sections(self) -> Iterator[Section]:
        """Yield how the first method does against each other one and where it loses, all evaluations, and tuning."""
        experiment, summary = self.experiment, self.results.summary
        lost = (
            f"The problems on which {experiment.methods[0].label} takes more than {FACTOR:g} times the evaluations of "
            f"the best method that is compared, and {MORE} more, or fails."
        )
        yield Section("Against each other method", (_ratios(experiment, summary), _RATIOS))
        yield Section("Where it loses", (_losses(experiment, summary), lost))
        done = [setting["suite"] for setting in experiment.grid() if not at(summary, setting).is_empty()]
        for name in done:
            words = (_COUNTED,) if name == done[-1] else ()
            yield Section(f"Evaluations: {name}", (_by_problem(experiment, name, at(summary, {"suite": name})), *words))
        yield data_profiles.section(experiment, self.results.frame)
        yield Section("Tuning", (_tuning(experiment, self.results.frame),))
        yield Section("Problems with a function beside f", (_COMPOSITE,))


_RATIOS = "The evaluations of the first method over those of the other, on the problems that both solve."
_COUNTED = (
    "Evaluations of f and ∇f until the tolerance is reached; – where it is not. Those of a tuned method are of its "
    "best stepsize on the problem alone."
)
_COMPOSITE = (
    "Their measure is a subgradient of f + g, and none of these methods finds one: they have experiments of their own, "
    "`npgm reproduce composite`."
)


def profiles(experiment: ContestExperiment, summary: pl.DataFrame) -> Plot:
    """Return, for each suite, the share of problems that a method solves within a ratio of the best one's cost.

    These are the performance profiles of Dolan and Moré (2002), in evaluations and in seconds. The best is that of the
    methods that are compared; the others are thin.
    """
    columns = [_profiles(experiment, at(summary, setting), setting["suite"]) for setting in experiment.grid()]
    rows = [
        [replace(panel, ylabel="share of problems solved" if panel is row[0] else "") for panel in row]
        for row in zip(*columns, strict=True)
    ]
    return Plot(rows=rows)


def _profiles(experiment: ContestExperiment, runs: pl.DataFrame, suite: str) -> list[Panel]:
    """Return the panels of a suite: of the evaluations, and of the seconds."""
    panels: list[Panel] = []
    checks = [method.label for method in experiment.methods if method.role == "check"]
    for unit, costs in _costs(experiment, runs).items():
        best = np.min([costs[label] for label in experiment.compared() if label in costs], axis=0)
        lines = []
        for label in (*experiment.compared(), *checks):
            if label in costs:
                x, y = _profile(costs[label], best)
                look = "thin steps" if label in checks else "steps"
                lines.append(Line(label=label, x=numbers(x), y=numbers(y), look=look))
        panels.append(Panel(
            lines=lines, title=f"{suite}, {runs['seed'].n_unique()} problems" if not panels else "",
            xlabel=f"{unit}, times the best", xscale="log2", xlim=(0.5, WIDEST), ylim=(-0.02, 1.02),
        ))  # fmt: skip
    return panels


def _costs(experiment: ContestExperiment, runs: pl.DataFrame) -> dict[str, dict[str, Floats]]:
    """Return the evaluations and the seconds of the methods of which all problems are done."""
    number = runs["seed"].n_unique()
    complete = [m.label for m in experiment.methods if at(runs, {}, m.label).height == number]
    evaluations = {label: counts(runs, label) for label in complete}
    each = {label: at(runs, {}, label).sort("seed")["seconds"].to_numpy() for label in complete}
    return {"evaluations": evaluations, "seconds": {label: evaluations[label] * each[label] for label in complete}}


def _evaluations(experiment: ContestExperiment, summary: pl.DataFrame) -> Iterator[tuple[str, dict[str, Floats]]]:
    """Yield the suites of which the first method has done all problems, with the evaluations of all that have."""
    for setting in experiment.grid():
        runs = at(summary, setting)
        costs = {} if runs.is_empty() else _costs(experiment, runs)["evaluations"]
        if experiment.methods[0].label in costs:
            yield setting["suite"], costs


def _profile(cost: Floats, best: Floats) -> tuple[Floats, Floats]:
    with np.errstate(invalid="ignore"):
        ratios = np.sort(np.where(np.isfinite(cost), cost / best, np.inf))
    shown = ratios[ratios <= WIDEST]
    share = np.arange(1.0, len(shown) + 1.0) / len(ratios)
    last = share[-1] if len(share) else 0.0
    return np.concatenate([[0.5], shown, [WIDEST]]), np.concatenate([[0.0], share, [last]])


def _ratios(experiment: ContestExperiment, summary: pl.DataFrame) -> str:
    rows = []
    own_label = experiment.methods[0].label
    for name, costs in _evaluations(experiment, summary):
        own = costs.pop(own_label)
        for label, other in costs.items():
            both = np.isfinite(own) & np.isfinite(other)
            ratios = own[both] / other[both]
            spread = (f"{q:.2f}" for q in np.quantile(ratios, [0.5, 0.25, 0.75])) if ratios.size else 3 * "–"
            mean = f"{np.exp(np.log(ratios).mean()):.2f}" if ratios.size else "–"
            solved = (f"{np.isfinite(values).sum()}" for values in (own, other))
            rows.append((name, label, *solved, f"{ratios.size}", *spread, mean))
    head = ("suite", "other method", f"{own_label} solves", "the other solves", "both solve")
    return table((*head, "median", "lower quartile", "upper quartile", "geometric mean"), rows)


def _losses(experiment: ContestExperiment, summary: pl.DataFrame) -> str:
    rows = []
    own_label = experiment.methods[0].label
    for name, costs in _evaluations(experiment, summary):
        compared = [label for label in experiment.compared() if label in costs]
        best = np.min([costs[label] for label in compared], axis=0)
        for i in np.flatnonzero(~is_near(costs[own_label], best, FACTOR, MORE)):
            winner = compared[int(np.argmin([costs[label][i] for label in compared]))] if best[i] < np.inf else "none"
            others = (label for label in costs if label not in compared)
            rows.append((
                name, suite(name)[i].name, _count(costs[own_label][i]),
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

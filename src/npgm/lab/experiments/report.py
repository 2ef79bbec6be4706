"""The report of an experiment: figures, tables and the verdict on each claim, in Markdown and as an HTML page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeGuard

import numpy as np
import polars as pl

from npgm.lab.experiments import figures
from npgm.lab.experiments.contest import report as contest_report
from npgm.lab.experiments.contest.experiment import ContestExperiment
from npgm.lab.experiments.page import table, write
from npgm.lab.experiments.results import Results
from npgm.lab.experiments.solving.experiment import SolvingExperiment, solver
from npgm.lab.experiments.spec import Claim, Experiment
from npgm.lab.experiments.store import Store
from npgm.lab.experiments.summary import at, averaged, half_width, setting_name


def write_report(experiment: Experiment, preset: str, store: Store) -> list[Path]:
    """Write the report of a preset beside its runs and return the files, the Markdown file first.

    Raises:
        ValueError: if the preset is unknown.
    """
    results = Results(experiment, preset, store)
    folder = store.folder.parent / preset
    folder.mkdir(parents=True, exist_ok=True)
    pictures = []
    if not results.none:
        stem, _, draw = _picture(results)
        pictures.append(folder / f"{stem}.svg")
        draw(pictures[0])
        if _measures_sharpness(experiment):
            pictures.append(folder / "sharpness.svg")
            figures.sharpness(experiment, results.frame, pictures[1])
        if experiment.first_steps:
            pictures.append(folder / "curvature.svg")
            figures.curvature(experiment, results.frame, pictures[-1])
        if not results.basin.is_empty():
            pictures.append(folder / "basin.svg")
            figures.basin(experiment, results.basin, pictures[-1])
    text = "\n\n".join(_sections(results)) + "\n"
    return [*write(folder / "report.md", folder / "report.html", experiment.title, text), *pictures]


CLAIM = ("claim", "verdict", "of", "preset", "measured")
"""The columns of a table of claims."""


def claim_rows(results: Results, claim: Claim) -> Iterator[tuple[str, ...]]:
    """Yield a claim of the paper with the verdict and what was measured, as `CLAIM` has them, for each reading."""
    methods = claim.method if claim.other is None else f"{claim.method} against {claim.other}"
    for reading, verdict in results.verdicts(claim).items():
        of = ", ".join(filter(None, (methods, reading)))
        yield f"“{claim.sentence}”", verdict.holds, of, results.extent, verdict.measured


def _measures_sharpness(experiment: Experiment) -> TypeGuard[SolvingExperiment]:
    return isinstance(experiment, SolvingExperiment) and experiment.sharpness_points > 0


def _picture(results: Results) -> tuple[str, str, Callable[[Path], None]]:
    """Return the name of the first picture, what it shows in words, and the function that draws it."""
    experiment = results.experiment
    if isinstance(experiment, ContestExperiment):
        return "profiles", contest_report.CAPTION, partial(contest_report.profiles, experiment, results.summary)
    shown = " and ".join(experiment.symbols[quantity] for quantity in experiment.quantities)
    caption = f"{shown} against {experiment.clock}s and seconds; {averaged(experiment)}"
    return "convergence", caption, partial(figures.convergence, experiment, results.frame)


def _sections(results: Results) -> Iterable[str]:
    experiment, preset = results.experiment, results.preset
    yield f"# {experiment.title}"
    yield (
        f"{experiment.origin}, preset `{preset}`: {experiment.scope(experiment.preset(preset))}. "
        f"Reproduce with `{experiment.command('reproduce', preset)}`; this report alone is written anew, from the runs "
        f"that are kept, by `{experiment.command('report', preset)}`."
    )
    if results.none:
        yield f"**No run is done: {results.reason}.**"
        if results.obstacle:
            yield f"```text\n{results.obstacle}\n```"
    elif results.missing:
        yield f"**{results.missing} runs of this preset are not done; what follows is of the others.**"
    if not results.none:
        stem, caption, _ = _picture(results)
        yield f"![{caption}]({stem}.svg)"
    yield "## Claims"
    if experiment.claims:
        yield table(CLAIM, (row for claim in experiment.claims for row in claim_rows(results, claim)))
        if preset != "paper" and "paper" in experiment.presets:
            runs = f"The verdicts are on what the preset `{preset}` runs"
            yield f"{runs}; the full sizes are those of the preset `paper`."
    else:
        yield "The paper states no result of it in words." if experiment.source else "None is made."
    if not results.none:
        yield from _measured(experiment, results.summary)
    if not results.none and isinstance(experiment, ContestExperiment):
        yield from contest_report.sections(experiment, results.summary, results.frame)
    if not results.none and experiment.first_steps:
        yield "## Curvature\n\n" + _curvature(experiment, results.frame)
        yield "![‖∇²f‖ and L_a against ‖∇f‖](curvature.svg)"
    if not results.basin.is_empty():
        yield "## Range of stepsizes\n\n" + _basin(experiment, results.basin)
        yield (
            f"The last {experiment.symbols[experiment.measure]} of one seed, which is none of the others, at multiples "
            "of the stepsize of the table of methods. The range is the ratio of the largest to the smallest stepsize "
            f"between which it is at most {figures.NEAR:g} above the least."
        )
        yield f"![last {experiment.symbols[experiment.measure]} against the stepsize](basin.svg)"
    yield "## Methods\n\n" + _methods(experiment)
    if not results.none:
        environments = results.frame.get_column("environment", default=pl.Series(dtype=pl.String))
        for environment in environments.drop_nulls().unique(maintain_order=True):
            yield f"Computed with {environment}."


def _measured(experiment: Experiment, summary: pl.DataFrame) -> Iterable[str]:
    yield "## Results\n\n" + _results(experiment, summary)
    yield (
        f"Converged means {experiment.symbols[experiment.measure]} ≤ {experiment.converged_below:g} at some "
        f"{experiment.clock}. The numbers are {averaged(experiment)}. The time of an {experiment.clock} is that of its "
        f"batch of {experiment.starts_are} divided by their number, with other runs on the other cores."
    )
    if summary["diverged"].any():
        yield f"What diverged ends there: the curves go on as those of the other {experiment.starts_are}."
    if _measures_sharpness(experiment):
        yield "## Sharpness\n\n" + _sharpness(experiment, summary)
        yield (
            "Linearised at a minimiser, heavy ball is stable only up to the sharpness 2(1+β)/((1−β)γ), times λ for a "
            "reference function λφ. A preconditioner that saturates turns what would diverge into a cycle."
        )
        yield "![λ_max(∇²f) along the runs, and the stability limits](sharpness.svg)"


def _results(experiment: Experiment, summary: pl.DataFrame) -> str:
    rows = []
    for setting in experiment.grid():
        for method in experiment.methods:
            runs = at(summary, setting, method.label)
            if runs.is_empty():
                continue
            reached = runs["reached"].drop_nulls()
            at_marks = (_at(experiment, runs[f"at_{k}"].drop_nulls()) for k in experiment.marks)
            finals = (over_starts(experiment, q, runs[q]) for q in experiment.quantities)
            rows.append((
                *([setting_name(setting)] if setting else []), method.label, f"{len(reached)} of {len(runs)}",
                int(runs["diverged"].sum()), _range(reached, "{:.0f}"), *at_marks, *finals,
                _range(1e3 * runs["seconds"], "{:.2f}") if experiment.clock == "iteration"
                else _range(runs["seconds"], "{:.2g}"),
            ))  # fmt: skip
    last = [f"{experiment.symbols[experiment.measure]} at {k}" for k in experiment.marks]
    last += [f"final {experiment.symbols[quantity]}" for quantity in experiment.quantities]
    unit = "ms an iteration" if experiment.clock == "iteration" else f"seconds an {experiment.clock}"
    where = ["setting"] if experiment.settings else []
    return table([*where, "method", "converged", "diverged", f"{experiment.clock}s to it", *last, unit], rows)


def _curvature(experiment: Experiment, frame: pl.DataFrame) -> str:
    rows = []
    later = frame.filter(pl.col("k") > experiment.first_steps)
    for label in experiment.compared():
        for name, points in (("all", frame), (f"after {experiment.first_steps} steps", later)):
            logs = points.filter(pl.col("method") == label).select(pl.col(*experiment.quantities).log10())
            if len(logs) < 3:
                continue
            correlation = np.corrcoef(logs["gradient_norm"].to_numpy(), logs["hessian_norm"].to_numpy())[0, 1]
            spans = (f"{10.0 ** np.ptp(logs[quantity].to_numpy()):.3g}" for quantity in experiment.quantities)
            rows.append((label, name, len(logs), f"{correlation:.2f}", *spans))
    ratios = (f"largest {experiment.symbols[quantity]} over least" for quantity in experiment.quantities)
    return table(("method", "points", "number", "correlation of log ‖∇f‖ and log ‖∇²f‖", *ratios), rows)


def _basin(experiment: Experiment, basin: pl.DataFrame) -> str:
    rows = []
    for label in experiment.compared():
        runs = basin.filter(method=label).sort("times")
        if runs.is_empty():
            continue
        times, last = runs["times"].to_numpy(), runs["last"].to_numpy()
        if not np.isfinite(last).any():
            rows.append((label, f"{last.min():.4g}", "–", "none: every stepsize diverges"))
            continue
        near = times[last <= last.min() + figures.NEAR]
        width = f"{near.max() / near.min():.3g}"
        at_edge = near.min() == times[0] or near.max() == times[-1]
        rows.append(
            (label, f"{last.min():.4g}", f"{times[last.argmin()]:.3g}", f"at least {width}" if at_edge else width)
        )
    return table(("method", f"least {experiment.symbols[experiment.measure]}", "at times γ", "range"), rows)


def _sharpness(experiment: SolvingExperiment, summary: pl.DataFrame) -> str:
    rows = []
    for setting in experiment.grid():
        for method in experiment.methods:
            runs = at(summary, setting, method.label)
            limit = solver(method).sharpness_limit
            if limit is None or runs.is_empty():
                continue
            converged = runs.filter(pl.col("reached").is_not_null())["sharpness"]
            others = runs.filter(pl.col("reached").is_null())["sharpness"]
            rows.append(
                (
                    setting_name(setting),
                    method.label,
                    f"{limit:.0f}",
                    _range(converged, "{:.4g}"),
                    _range(others, "{:.4g}"),
                )
            )
    head = ("setting", "method", "stability limit", "last λ_max, converged runs", "last λ_max, other runs")
    return table(head, rows)


def _methods(experiment: Experiment) -> str:
    rows = []
    for method in experiment.methods:
        settings = ", ".join(f"{name} = {_text(value)}" for name, value in method.options.items())
        phi = method.reference
        function = "" if phi is None else phi["name"]
        if phi is not None and "scale" not in method.options:
            further = (f", {name} = {_text(phi[name])}" for name in phi if name not in ("name", "scale", "blocks"))
            function += "".join((*further, f", λ = {phi.get('scale', 1.0):g}"))
        rows.append((method.label, f"`{experiment.update(method)}`", settings, function, method.note))
    return table(("method", "step", "options", "reference function", "note"), rows)


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


_FORMS = {
    "train_loss": "{:.3g}",
    "late_loss": "{:.3g}",
    "validation_loss": "{:.4g}",
    "test_loss": "{:.4g}",
    "test_accuracy": "{:.2%}",
}


def over_starts(experiment: Experiment, quantity: str, values: pl.Series) -> str:
    """Return a quantity over the starts as text, in the experiment's kind of average."""
    form = _FORMS.get(quantity, "{:.2g}")
    if experiment.average == "median":
        return _range(values, form)
    if divergent := (~values.is_finite()).sum():
        return f"not finite for {divergent} of {len(values)}"
    mean, deviation = values.to_numpy().mean(), values.std() or 0.0
    text = form.format(mean)
    return f"{text} ± {form.format(half_width(deviation, len(values)))}" if len(values) > 1 else text


def _at(experiment: Experiment, values: pl.Series) -> str:
    return "–" if values.is_empty() else over_starts(experiment, experiment.measure, values)


def _range(values: pl.Series, form: str) -> str:
    if values.is_empty():
        return "–"
    middle, low, high = (form.format(v) for v in (values.median(), values.min(), values.max()))
    return f"{middle} [{low}, {high}]" if len(values) > 1 else middle

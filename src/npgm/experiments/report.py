"""The report of an experiment: figures, tables and the verdict on each claim, in Markdown and as an HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeGuard

import polars as pl

from npgm._files import replacing
from npgm.experiments import claims, figures
from npgm.experiments.page import page
from npgm.experiments.solving.experiment import SolvingExperiment, solver
from npgm.experiments.spec import Experiment
from npgm.experiments.store import Store
from npgm.experiments.summary import at, half_width, setting_name, summarise


def write_report(experiment: Experiment, preset: str, store: Store) -> list[Path]:
    """Write the report of a preset beside its runs and return the files, the Markdown file first.

    Raises:
        ValueError: if the preset is unknown.
        FileNotFoundError: if the store holds none of its runs.
    """
    frame = store.read(experiment.runs(preset))
    summary = summarise(experiment, frame)
    folder = store.folder.parent / preset
    folder.mkdir(parents=True, exist_ok=True)
    pictures = [folder / "convergence.png"]
    figures.convergence(experiment, frame, pictures[0])
    if _measures_sharpness(experiment):
        pictures.append(folder / "sharpness.png")
        figures.sharpness(experiment, frame, pictures[1])
    missing = len(store.missing(experiment.runs(preset)))
    environments = (
        frame.get_column("environment", default=pl.Series(dtype=pl.String)).drop_nulls().unique(maintain_order=True)
    )
    text = "\n\n".join(_sections(experiment, preset, summary, missing, environments)) + "\n"
    report, html = folder / "report.md", folder / "report.html"
    _write(report, text)
    _write(html, page(experiment.title, text, folder))
    return [report, html, *pictures]


def claims_table(experiment: Experiment, summary: pl.DataFrame) -> str:
    """Return the claims of the paper with what was measured and the verdict, as a Markdown table."""
    rows = []
    for claim in experiment.claims:
        verdict = claims.decide(experiment, claim, summary)
        rows.append((f"“{claim.sentence}”", verdict.measured, verdict.holds))
    return table(("the paper says", "measured", "verdict"), rows)


_AVERAGES = {"median": "median and range", "mean": "mean and 95% confidence interval"}


def _measures_sharpness(experiment: Experiment) -> TypeGuard[SolvingExperiment]:
    return isinstance(experiment, SolvingExperiment) and experiment.sharpness_points > 0


def _sections(
    experiment: Experiment, preset: str, summary: pl.DataFrame, missing: int, environments: Iterable[str]
) -> Iterable[str]:
    chosen = experiment.preset(preset)
    yield f"# {experiment.title}"
    yield (
        f"{experiment.source} of the paper, preset `{preset}`: {experiment.scope(chosen)}. "
        f"Reproduce with `npgm reproduce {experiment.key} --preset {preset}`."
    )
    if missing:
        yield f"**{missing} runs of this preset are not done; what follows is of the others.**"
    shown = " and ".join(experiment.symbols[quantity] for quantity in experiment.quantities)
    over = f"{_AVERAGES[experiment.average]} over the {experiment.starts_are}"
    yield f"![{shown} against {experiment.clock}s and seconds; {over}](convergence.png)"
    yield "## The paper's claims"
    yield claims_table(experiment, summary) if experiment.claims else "The paper states no result of it in words."
    if experiment.claims and preset != "paper":
        yield f"The verdicts are on what the preset `{preset}` runs; the paper's sizes are those of the preset `paper`."
    yield "## Results\n\n" + _results(experiment, summary)
    yield (
        f"Converged means {experiment.symbols[experiment.measure]} ≤ {experiment.converged_below:g} at some "
        f"{experiment.clock}. The numbers are {over}. The time of an {experiment.clock} is that of its batch of "
        f"{experiment.starts_are} divided by their number, with other runs on the other cores."
    )
    if _measures_sharpness(experiment):
        yield "## Sharpness\n\n" + _sharpness(experiment, summary)
        yield (
            "Linearised at a minimiser, heavy ball is stable only up to the sharpness 2(1+β)/((1−β)γ), times λ for a "
            "reference function λφ. A preconditioner that saturates turns what would diverge into a cycle."
        )
        yield "![λ_max(∇²f) along the runs, and the stability limits](sharpness.png)"
    yield "## Methods\n\n" + _methods(experiment)
    for environment in environments:
        yield f"Computed with {environment}."


def _results(experiment: Experiment, summary: pl.DataFrame) -> str:
    rows = []
    for setting in experiment.grid():
        for method in experiment.methods:
            runs = at(summary, setting, method.label)
            if runs.is_empty():
                continue
            reached = runs["reached"].drop_nulls()
            finals = (over_starts(experiment, q, runs[q]) for q in experiment.quantities)
            rows.append((
                *([setting_name(setting)] if setting else []), method.label, f"{len(reached)} of {len(runs)}",
                int(runs["diverged"].sum()), _range(reached, "{:.0f}"), *finals,
                _range(1e3 * runs["seconds"], "{:.2f}") if experiment.clock == "iteration"
                else _range(runs["seconds"], "{:.2g}"),
            ))  # fmt: skip
    last = (f"final {experiment.symbols[quantity]}" for quantity in experiment.quantities)
    unit = "ms an iteration" if experiment.clock == "iteration" else f"seconds an {experiment.clock}"
    where = ["setting"] if experiment.settings else []
    return table([*where, "method", "converged", "diverged", f"{experiment.clock}s to it", *last, unit], rows)


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
        function = "" if phi is None else f"{phi['name']}, λ = {phi.get('scale', 1.0):g}"
        rows.append((method.label, f"`{experiment.update(method)}`", settings, function, method.note))
    return table(("method", "step", "options", "reference function", "note"), rows)


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _write(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode())


_FORMS = {"train_loss": "{:.3g}", "test_loss": "{:.3g}", "test_accuracy": "{:.2%}"}


def over_starts(experiment: Experiment, quantity: str, values: pl.Series) -> str:
    """Return a quantity over the starts as text, in the experiment's kind of average."""
    form = _FORMS.get(quantity, "{:.2g}")
    if experiment.average == "median":
        return _range(values, form)
    mean, deviation = values.to_numpy().mean(), values.std() or 0.0
    text = form.format(mean)
    return f"{text} ± {form.format(half_width(deviation, len(values)))}" if len(values) > 1 else text


def _range(values: pl.Series, form: str) -> str:
    if values.is_empty():
        return "–"
    middle, low, high = (form.format(v) for v in (values.median(), values.min(), values.max()))
    return f"{middle} [{low}, {high}]" if len(values) > 1 else middle


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)

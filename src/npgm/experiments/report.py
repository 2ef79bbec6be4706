"""The report of an experiment: figures, tables and the verdict on each claim, in Markdown."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

import polars as pl

from npgm.experiments import claims, figures
from npgm.experiments.spec import QUANTITIES, Experiment
from npgm.experiments.store import Store
from npgm.experiments.summary import at, setting_name, summarise


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
    if experiment.sharpness_points:
        pictures.append(folder / "sharpness.png")
        figures.sharpness(experiment, frame, pictures[1])
    missing = len(store.missing(experiment.runs(preset)))
    text = "\n\n".join(_sections(experiment, preset, summary, missing)) + "\n"
    report = folder / "report.md"
    temporary = report.with_name(f".{report.name}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(report)
    return [report, *pictures]


def claims_table(experiment: Experiment, summary: pl.DataFrame) -> str:
    """Return the claims of the paper with what was measured and the verdict, as a Markdown table."""
    rows = []
    for claim in experiment.claims:
        verdict = claims.decide(experiment, claim, summary)
        rows.append((f"“{claim.sentence}”", verdict.measured, verdict.holds))
    return _table(("the paper says", "measured", "verdict"), rows)


def _sections(experiment: Experiment, preset: str, summary: pl.DataFrame, missing: int) -> Iterable[str]:
    chosen = experiment.preset(preset)
    yield f"# {experiment.title}"
    starts = ", ".join(f"{n} for {setting_name(s)}" for s, n in zip(experiment.grid(), chosen.starts, strict=True))
    yield (
        f"{experiment.source} of the paper, preset `{preset}`: {chosen.maxiter} iterations a run; starts: {starts}. "
        f"Reproduce with `npgm reproduce {experiment.key} --preset {preset}`."
    )
    if missing:
        yield f"**{missing} runs of this preset are not done; what follows is of the others.**"
    shown = " and ".join(QUANTITIES[quantity] for quantity in experiment.quantities)
    yield f"![{shown} against iterations and seconds; median and range over the starts](convergence.png)"
    yield "## The paper's claims\n\n" + claims_table(experiment, summary)
    yield "## Results\n\n" + _results(experiment, summary)
    yield (
        f"Converged means {QUANTITIES[experiment.measure]} ≤ {experiment.converged_below:g} at some iteration. Medians "
        "over the starts, in brackets the range. An iteration's time is that of its batch of starts divided by their "
        "number, with other runs on the other cores."
    )
    if experiment.sharpness_points:
        yield "## Sharpness\n\n" + _sharpness(experiment, summary)
        yield (
            "Linearised at a minimiser, heavy ball is stable only up to the sharpness 2(1+β)/((1−β)γ), times λ for a "
            "reference function λφ. A preconditioner that saturates turns what would diverge into a cycle."
        )
        yield "![λ_max(∇²f) along the runs, and the stability limits](sharpness.png)"
    yield "## Methods\n\n" + _methods(experiment)
    yield _environment()


def _results(experiment: Experiment, summary: pl.DataFrame) -> str:
    rows = []
    for setting in experiment.grid():
        for method in experiment.methods:
            runs = at(summary, setting, method.label)
            if runs.is_empty():
                continue
            reached = runs["reached"].drop_nulls()
            rows.append((
                setting_name(setting), method.label, f"{len(reached)} of {len(runs)}", int(runs["diverged"].sum()),
                _range(reached, "{:.0f}"), *(_range(runs[quantity], "{:.2g}") for quantity in experiment.quantities),
                _range(runs["milliseconds"], "{:.2f}"),
            ))  # fmt: skip
    last = (f"final {QUANTITIES[quantity]}" for quantity in experiment.quantities)
    head = ("setting", "method", "converged", "diverged", "iterations to it", *last, "ms an iteration")
    return _table(head, rows)


def _sharpness(experiment: Experiment, summary: pl.DataFrame) -> str:
    rows = []
    for setting in experiment.grid():
        for method in experiment.methods:
            runs = at(summary, setting, method.label)
            limit = method.solver().sharpness_limit
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
    return _table(head, rows)


def _methods(experiment: Experiment) -> str:
    rows = []
    for method in experiment.methods:
        settings = ", ".join(f"{name} = {value:.6g}" for name, value in method.options.items())
        phi = method.reference
        function = "" if phi is None else f"{phi['name']}, λ = {phi.get('scale', 1.0):g}"
        rows.append((method.label, f"`{method.solver().update}`", settings, function, method.note))
    return _table(("method", "step", "options", "reference function", "note"), rows)


def _environment() -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("npgm", "numpy", "scipy"))
    return (
        f"Computed with Python {platform.python_version()}, {packages} on {platform.system()} {platform.machine()} "
        f"with {os.cpu_count()} cores."
    )


def _range(values: pl.Series, form: str) -> str:
    if values.is_empty():
        return "–"
    middle, low, high = (form.format(v) for v in (values.median(), values.min(), values.max()))
    return f"{middle} [{low}, {high}]" if len(values) > 1 else middle


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)

"""The report of an experiment: figures, tables and the verdict on each claim, in Markdown and as an HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl

from npgm.lab import plot
from npgm.lab.experiments.claims import VERDICTS, Verdict
from npgm.lab.experiments.kind_report import KindReport, Picture, Section
from npgm.lab.experiments.kinds import report_class
from npgm.lab.experiments.page import table, write
from npgm.lab.experiments.results import Results
from npgm.lab.experiments.spec import Claim, Experiment
from npgm.lab.experiments.store import Store
from npgm.lab.experiments.summary import at, averaged, median_and_range, over_starts, setting_name

FIGURES = "figures.json"
"""The file beside a report that holds its figures as data; see `npgm.lab.plot`."""


def write_report(experiment: Experiment, preset: str, store: Store) -> list[Path]:
    """Write the report of a preset beside its runs and return the files, the Markdown file first.

    Raises:
        ValueError: if the preset is unknown.
    """
    results = Results(experiment, preset, store)
    folder = store.folder.parent / preset
    folder.mkdir(parents=True, exist_ok=True)
    kind: KindReport = report_class(experiment.kind)(results)
    sections = [] if results.none else list(kind.sections())
    pictures = [] if results.none else [kind.first_picture(), *(s.picture for s in sections if s.picture is not None)]
    drawn = []
    if pictures:
        plot.write({picture.name: picture.plot for picture in pictures}, folder / FIGURES)
        drawn = draw_figures(folder / FIGURES)
    text = "\n\n".join(_parts(kind, pictures[:1], sections)) + "\n"
    return [*write(folder / "report.md", folder / "report.html", experiment.title, text), *drawn]


def draw_figures(path: Path) -> list[Path]:
    """Draw the figures that a file holds as data, beside it, and return their files."""
    drawn = []
    for name, figure in plot.read(path).items():
        drawn.append(path.with_name(f"{name}.svg"))
        figure.draw(drawn[-1])
    return drawn


CLAIM = ("claim", "verdict", "of", "measured")
"""The columns of a table of claims."""


def claim_rows(results: Results, claim: Claim, place: str) -> Iterator[tuple[str, ...]]:
    """Yield a claim with its verdict and what was measured, as `CLAIM` has them, for each reading.

    Args:
        place: the preset, and where its report is, in Markdown.
    """
    for of, verdict in readings(results, claim):
        yield results.experiment.quoted(claim), f"{VERDICTS[verdict.holds]} {place}.", of, verdict.measured


def readings(results: Results, claim: Claim) -> Iterator[tuple[str, Verdict]]:
    """Yield for each reading of what the paper leaves open what a claim is of, in words, and its verdict."""
    methods = claim.method if claim.other is None else f"{claim.method} against {claim.other}"
    for reading, verdict in results.verdicts(claim).items():
        yield ", ".join(filter(None, (methods, reading))), verdict


def _parts(kind: KindReport, first: list[Picture], sections: list[Section]) -> Iterable[str]:
    results, experiment, preset = kind.results, kind.results.experiment, kind.results.preset
    yield f"# {experiment.title}"
    yield (
        f"{experiment.origin}, preset `{preset}`: {experiment.scope(experiment.preset(preset))}. "
        f"`{experiment.command('reproduce', preset)}` runs it; `{experiment.command('report', preset)}` writes this "
        "report again from the stored runs."
    )
    if results.none:
        yield f"**No run is done: {results.reason}.**"
        if results.obstacle:
            yield f"```text\n{results.obstacle}\n```"
    elif results.missing:
        yield f"**{results.missing} runs of this preset are not done; what follows is of the others.**"
    yield from (picture.markdown for picture in first)
    yield "## Claims"
    if experiment.claims:
        place = results.extent if results.none else f"[{results.extent}](#results)"
        yield table(CLAIM, (row for claim in experiment.claims for row in claim_rows(results, claim, place)))
        if preset != "paper" and "paper" in experiment.presets:
            yield f"These verdicts are about the preset `{preset}`; the preset `paper` has the full sizes."
    else:
        yield "The paper states no result of it in words." if experiment.source else "This experiment makes no claim."
    if not results.none:
        yield from _measured(kind)
    yield from (section.markdown for section in sections)
    yield "## Methods\n\n" + _methods(experiment)
    if not results.none:
        environments = results.frame.get_column("environment", default=pl.Series(dtype=pl.String))
        for environment in environments.drop_nulls().unique(maintain_order=True):
            yield f"Computed with {environment}."


def _measured(kind: KindReport) -> Iterable[str]:
    experiment, summary = kind.results.experiment, kind.results.summary
    yield "## Results\n\n" + _results(kind)
    yield (
        f"Converged means {experiment.symbol(experiment.measure)} ≤ {experiment.converged_below:g} at some "
        f"{experiment.clock}. The numbers are {averaged(experiment)}. The time of an {experiment.clock} is that of its "
        f"batch divided by the number of {experiment.starts_are}; other runs used the other cores meanwhile."
    )
    for quantity in experiment.quantities:
        known = experiment.known[quantity]
        if known.lowest is not None and (summary[quantity] < known.lowest).any():
            yield f"{known.symbol} below {known.lowest:g} is rounding, even if negative; {known.lowest:g} is shown."
    if summary["diverged"].any():
        yield (
            f"A run that diverged ends there: the curves continue with the other {experiment.starts_are}, and bands "
            "are cut at the top of the axes."
        )


def _results(kind: KindReport) -> str:
    rows = []
    experiment, (unit, factor, form) = kind.results.experiment, kind.unit
    for setting in experiment.grid():
        for method in experiment.methods:
            runs = at(kind.results.summary, setting, method.label)
            if runs.is_empty():
                continue
            reached = runs["reached"].drop_nulls()
            at_marks = (_at(experiment, runs[f"at_{k}"].drop_nulls()) for k in experiment.marks)
            finals = (over_starts(experiment, q, runs[q]) for q in experiment.quantities)
            rows.append((
                *([setting_name(setting)] if setting else []), method.label, f"{len(reached)} of {len(runs)}",
                int(runs["diverged"].sum()), median_and_range(reached, "{:.0f}"), *at_marks, *finals,
                median_and_range(factor * runs["seconds"], form),
            ))  # fmt: skip
    last = [f"{experiment.symbol(experiment.measure)} at {k}" for k in experiment.marks]
    last += [f"final {experiment.symbol(quantity)}" for quantity in experiment.quantities]
    where = ["setting"] if experiment.settings else []
    times = unit.format(clock=experiment.clock)
    return table([*where, "method", "converged", "diverged", f"{experiment.clock}s to it", *last, times], rows)


def _at(experiment: Experiment, values: pl.Series) -> str:
    return "–" if values.is_empty() else over_starts(experiment, experiment.measure, values)


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

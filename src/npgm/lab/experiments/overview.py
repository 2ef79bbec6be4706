"""One page on all experiments: which of the paper's claims hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from npgm.lab.experiments import catalogue
from npgm.lab.experiments.claims import VERDICTS
from npgm.lab.experiments.page import table, write
from npgm.lab.experiments.report import CLAIM, claim_rows, readings
from npgm.lab.experiments.results import Results, recorded
from npgm.lab.experiments.spec import Experiment
from npgm.lab.experiments.store import Store


def write_overview(output: Path) -> list[Path]:
    """Write the claims of all experiments with their verdicts, and return the files, the Markdown file first.

    A verdict is that of the largest preset at which the runs that it needs are done.

    Args:
        output: the folder of all results.
    """
    output.mkdir(parents=True, exist_ok=True)
    verdicts: Counter[str] = Counter()
    found = sorted((catalogue.load(name) for name in catalogue.names()), key=lambda experiment: not experiment.source)
    sections = [part for experiment in found for part in _section(experiment, output, verdicts)]
    counts = "; ".join(f"{verdict}: {verdicts[verdict]}" for verdict in VERDICTS if verdicts[verdict])
    title = "The paper's claims"
    text = "\n\n".join((f"# {title}", _INTRODUCTION.format(counts=counts), *sections)) + "\n"
    return write(output / "report.md", output / "index.html", title, text)


_INTRODUCTION = """\
This page has a verdict on each sentence of the paper about results, in quotation marks, and then on each claim of
npgm's own ({counts}).

Each verdict comes from the largest preset whose runs are done, and links to the report that has the numbers. `paper`
has the paper's sizes, `cpu` smaller ones, and `smoke` only shows that everything works. `npgm reproduce all --preset
paper` runs the experiments; `npgm report all` writes this page and the reports again from the stored runs."""


def _section(experiment: Experiment, output: Path, verdicts: Counter[str]) -> Iterator[str]:
    """Yield the text on an experiment, and count its verdicts."""
    presets = recorded(experiment, Store.of(experiment, output))
    yield f"## {experiment.title}"
    yield f"{experiment.origin}."
    rows: list[tuple[str, ...]] = []
    for claim in experiment.claims:
        run = (results for results in presets if any(v.holds != "not run" for v in results.verdicts(claim).values()))
        results = next(run, presets[0])
        rows += (row[:-1] for row in claim_rows(results, claim, _link(results, output)))
        verdicts.update(verdict.holds for _, verdict in readings(results, claim))
    if rows:
        yield table(CLAIM[:-1], rows)
    else:
        largest = presets[0]
        state = f"not run, since {largest.reason}" if largest.none else "run"
        words = "The paper states no result of it in words." if experiment.source else "This experiment makes no claim."
        yield f"{words} It was {state}: {_link(largest, output)}."


def _link(results: Results, output: Path) -> str:
    """Return which preset results are of, as a link to the report if that is there."""
    path = Path(results.experiment.key, results.preset, "report.md")
    return f"[{results.extent}]({path.as_posix()})" if (output / path).is_file() else results.extent

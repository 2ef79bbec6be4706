"""The command line: each command is a few lines over a function that anyone can call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from npgm import experiments, kernels, references
from npgm.data import DataError
from npgm.data import load as load_data

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
data = typer.Typer(no_args_is_help=True, help="The data sets.")
app.add_typer(data, name="data")

console = Console()

T = TypeVar("T")

ExperimentName = Annotated[str, typer.Argument(help=f"One of: {', '.join(experiments.names())}; or all.")]
Preset = Annotated[str, typer.Option(help="How much to run: smoke (seconds), cpu (minutes), or paper (its size).")]
Output = Annotated[Path, typer.Option(help="The folder of the results.")]


@app.command()
def reproduce(
    experiment: ExperimentName,
    preset: Preset = "cpu",
    jobs: Annotated[int, typer.Option(help="Processes; -1 for one a core.")] = -1,
    output: Output = Path("results"),
    methods: Annotated[
        list[str] | None, typer.Option(help="The label of a method, to run it only; repeatable.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Run the first so many seeds of each setting only.")] = None,
    device: Annotated[str, typer.Option(help="Where networks are trained: cpu, cuda, cuda:1, ...")] = "cpu",
) -> None:
    """Run an experiment of the paper, or what is missing of it, and write its report.

    Of all experiments, one whose data cannot be had does not keep the others from being run.
    """

    def work(name: str) -> list[Path]:
        spec = experiments.load(name)
        store = experiments.run(spec, preset, output, jobs=jobs, methods=methods, seeds=seeds, device=device)
        return experiments.write_report(spec, preset, store)

    without_data = []
    try:
        for name in _chosen(experiment):
            try:
                _show(_guarded(partial(work, name)))
            except DataError as error:
                _complain(f"{name}: {error}")
                without_data.append(name)
    except KeyboardInterrupt:
        console.print("\ninterrupted; the finished runs are kept, and the same command goes on from there")
        raise typer.Exit(130) from None
    if without_data:
        _complain(f"not run, for want of data: {', '.join(without_data)}")
        raise typer.Exit(2)


@app.command()
def report(experiment: ExperimentName, preset: Preset = "cpu", output: Output = Path("results")) -> None:
    """Write the report of an experiment from the runs that are there."""

    def work(name: str) -> list[Path]:
        spec = experiments.load(name)
        return experiments.write_report(spec, preset, experiments.Store(output / spec.key / "runs"))

    for name in _chosen(experiment):
        _show(_guarded(partial(work, name)))


@app.command("kernels")
def show_kernels() -> None:
    """List the kernels and the reference functions made of them."""
    table = Table("key", "h(x)", "preconditioner h*'(y)", "domain", "μ", "reference functions")
    for key, kernel in sorted(kernels.registry.items()):
        domain = "ℝ" if kernel.radius == float("inf") else f"|x| < {kernel.radius:g}"
        made = ", ".join(name for name in references.names() if name.partition("-")[2] == key)
        table.add_row(key, kernel.formula, kernel.preconditioner_formula, domain, f"{kernel.mu:g}", made)
    console.print(table)


@data.command()
def fetch(
    name: Annotated[str, typer.Argument(help="The data set.")],
    folder: Annotated[Path | None, typer.Option(help="A folder that holds the data set's files.")] = None,
) -> None:
    """Get a data set into the cache and verify it."""
    try:
        arrays = _guarded(lambda: load_data(name, folder))
    except DataError as error:
        _complain(error)
        raise typer.Exit(2) from None
    for key, array in arrays.items():
        console.print(f"{key}: {array.dtype} {array.shape}")


def _chosen(experiment: str) -> list[str]:
    return experiments.names() if experiment == "all" else [experiment]


def _guarded(work: Callable[[], T]) -> T:
    """Do the work; an error that a user can mend becomes a line and exit code 2."""
    try:
        return work()
    except (ValueError, TypeError, OSError) as error:
        _complain(error)
        raise typer.Exit(2) from None


def _complain(error: object) -> None:
    Console(stderr=True).print(f"npgm: {error}", style="red", markup=False, highlight=False)


def _show(paths: list[Path]) -> None:
    """Print a report and the paths of its files."""
    console.print(Markdown(paths[0].read_text(encoding="utf-8")))
    for path in paths:
        console.print(str(path), soft_wrap=True, highlight=False)

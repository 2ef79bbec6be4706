"""The command ``npgm bench``: the steps of optimizers, or another benchmark by its name."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from npgm.lab import bench as benchmarks
from npgm.lab.bench.steps.cases import DTYPES, PRESETS, SETS
from npgm.lab.terminal import complain, console, guarded, new_table

_EXTRAS = {"lightning": "lightning", "pyproximal": "pyproximal", "sklearn": "scikit-learn"}
"""Packages that are no part of the extra of the command line."""


class _ByName(TyperGroup):
    """The commands of the benchmarks beside the default, of which each is imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name in benchmarks.names() if name != "steps"]

    def get_command(self, ctx: Any, name: str) -> Any:
        if name not in self.list_commands(ctx):
            return None
        command = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
        try:
            module = benchmarks.load(name)
        except ModuleNotFoundError as error:
            command.command(name, help=benchmarks.summary(name))(partial(_refuse, error))
        else:
            command.command(name, help=module.__doc__)(module.run)
        return typer.main.get_command(command)


app = typer.Typer(cls=_ByName, context_settings={"help_option_names": ["-h", "--help"]})


def _refuse(error: ModuleNotFoundError) -> NoReturn:
    complain(
        f"the benchmark needs the package {error.name}; install {_EXTRAS.get(str(error.name), 'npgm[experiments]')}"
    )
    raise typer.Exit(2)


@app.callback(invoke_without_command=True)
def bench(
    context: typer.Context,
    listed: Annotated[bool, typer.Option("--list", help="List the benchmarks and exit.")] = False,
    preset: Annotated[str, typer.Option(help=f"How much to measure: {' or '.join(PRESETS)}.")] = "quick",
    layouts: Annotated[list[str] | None, typer.Option(help=f"{', '.join(SETS)}; repeatable.")] = None,
    dtypes: Annotated[list[str] | None, typer.Option(help=f"{', '.join(DTYPES)}; repeatable.")] = None,
    threads: Annotated[list[int] | None, typer.Option(help="By default 1 and 2; repeatable.")] = None,
    device: Annotated[list[str] | None, typer.Option(help="By default cpu, and cuda if present; repeatable.")] = None,
    rounds: Annotated[int | None, typer.Option(help="How often each step is timed.")] = None,
    size: Annotated[float, typer.Option(help="The standard deviation of the gradients' entries.")] = 1.0,
    growth: Annotated[bool, typer.Option(help="Also measure one tensor of growing size.")] = True,
    json: Annotated[Path, typer.Option(help="Where to write all rounds.")] = Path("results/bench/bench.json"),
    plot: Annotated[Path, typer.Option(help="Where to draw the aims and growth.")] = Path("results/bench/bench.svg"),
) -> None:
    """Time the optimizers' steps against torch's, gradient clipping and memory itself, as ratios.

    If interrupted, it prints and writes the measurements so far.
    """
    if listed:
        rows = new_table("name", "what it measures", wrapped=("what it measures",))
        for name in benchmarks.names():
            rows.add_row(name, benchmarks.summary(name))
        console.print(rows)
    if listed or context.invoked_subcommand is not None:
        return
    try:
        from npgm.lab.bench.steps import runner
    except ModuleNotFoundError as error:
        _refuse(error)

    given: dict[str, Any] = {"layouts": layouts, "dtypes": dtypes, "threads": threads, "devices": device}
    given |= {"rounds": rounds, "size": size, "growth": growth}
    results = guarded(lambda: runner.run(runner.plan(preset, **given), json, plot, console))
    if results.interrupted:
        raise typer.Exit(130)

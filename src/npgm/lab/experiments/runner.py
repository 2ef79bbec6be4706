"""Runs what is missing of an experiment, several runs at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from npgm.lab.data import DataError
from npgm.lab.experiments import engines, ranks
from npgm.lab.experiments.engines import Engine
from npgm.lab.experiments.spec import Experiment, Resources, Run
from npgm.lab.experiments.store import Store
from npgm.lab.files import make_writable


def run(
    experiment: Experiment,
    preset: str,
    output: Path,
    *,
    jobs: int = -1,
    methods: Sequence[str] | None = None,
    seeds: int | None = None,
    device: str = "cpu",
    engine: str = "local",
    scheduler: str | None = None,
    parallel: str | None = None,
) -> Store:
    """Compute the runs of a preset that are not in the store yet, with a progress bar.

    Runs are written when they are computed, by this process: by the first rank under torchrun. An interruption loses
    the solver runs under way, and of a training what came after its last checkpoint. Several processes may work on one
    output: they do some work twice, and no harm.

    Args:
        experiment: what to run.
        preset: the name of one of its presets.
        output: the folder of all results; the runs go to ``<output>/<experiment>/runs``.
        jobs: processes, which share the cores; -1 for one a core, or a single one on a device other than the CPU.
        methods: labels of methods, to run those only.
        seeds: to run the first so many seeds of each setting only.
        device: where networks are trained, as PyTorch names it.
        engine: ``"local"``, for processes of this machine, or ``"dask"``, for the workers of a cluster.
        scheduler: the address of the cluster's scheduler.
        parallel: how the ranks of torchrun train a network together: ``"ddp"``, each with a copy of it, which is the
            default, or ``"fsdp"``, each with a part of it.

    Returns:
        The store, with all runs that were asked for.

    Raises:
        ValueError, TypeError: if the preset or a further argument is not accepted.
        OSError: if ``output`` cannot be written, or the scheduler does not answer, before anything is computed.
        npgm.lab.data.DataError: if the data cannot be had, likewise.
    """
    runs = experiment.runs(preset, methods, seeds)
    runs += [run for run in experiment.stepsize_sweep(preset) if not methods or run.method.label in methods]
    store = Store.of(experiment, output)
    complete(
        experiment, runs, store, title=f"{experiment.key} ({preset})", jobs=jobs, device=device, engine=engine,
        scheduler=scheduler, parallel=parallel,
    )  # fmt: skip
    return store


def complete(
    experiment: Experiment,
    runs: Sequence[Run],
    store: Store,
    *,
    title: str,
    jobs: int = -1,
    device: str = "cpu",
    engine: str = "local",
    scheduler: str | None = None,
    parallel: str | None = None,
) -> None:
    """Compute those of some runs that are not in the store yet, as `run` does for those of a preset.

    Args:
        experiment: what the runs are of.
        runs: those of one method on one setting side by side, to be computed together.
        store: where they go.
        title: what they are, for the progress bar.
        jobs, device, engine, scheduler, parallel: where they are computed, as for `run`.
    """
    if ranks.launched():
        device = ranks.join(device)
    with engines.open_engine(
        engine, experiment, jobs=jobs, device=device, folder=store.folder, scheduler=scheduler, parallel=parallel
    ) as opened:
        if ranks.leads():
            make_writable(store.folder)
        # units are formed of all runs, so that an interruption does not change which runs are computed together
        every = _units(experiment, runs, sharded=parallel == "fsdp")
        units = ranks.agreed([unit for unit in every if store.missing(unit)])
        if units and (ranks.leads() or experiment.data_parallel):
            _compute_units(experiment, units, len(runs), store, opened, title)


def _compute_units(
    experiment: Experiment, units: list[list[Run]], number: int, store: Store, engine: Engine, title: str
) -> None:
    """Compute units, with a progress bar of all the runs, so many in number, of which the others are done."""
    try:
        costs = _costs(experiment, units, engine)
    except DataError as error:
        if ranks.leads():
            store.obstacle = str(error)  # for the report
        raise
    if ranks.leads():
        store.obstacle = None
    columns = (TextColumn("{task.description}"), TextColumn("{task.fields[done]} of {task.fields[runs]} runs"),
               BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())  # fmt: skip
    console = Console(quiet=not ranks.leads())
    with Progress(*columns, console=console, speed_estimate_period=float("inf")) as progress:
        total = sum(map(costs, units))
        expected = timedelta(seconds=round(total / min(engine.workers, len(units))))
        console.print(f"{title}: {sum(map(len, units))} runs, expected to take {expected}")
        done = number - sum(map(len, units))
        task = progress.add_task(title, total=total, done=done, runs=number)
        progress.advance(task, 0)  # the clock of the time left starts here, not with the first unit that is done
        for unit, histories, environment in engine.map(partial(_compute, experiment), units):
            if ranks.leads():
                for run, history in zip(unit, histories, strict=True):
                    if store.missing([run]):
                        store.write(run, history, environment)
                engine.everywhere(experiment.forget, unit)
            done += len(unit)
            progress.update(task, advance=costs(unit), done=done)


def _units(experiment: Experiment, runs: Sequence[Run], *, sharded: bool) -> Iterator[list[Run]]:
    """Yield the runs that are computed together: of one method on one setting, and one by one if they are sharded."""
    for _, group in itertools.groupby(runs, key=lambda r: (r.setting, r.method)):
        of_a_method = list(group)
        together = 1 if sharded else experiment.runs_at_once(of_a_method[0])
        yield from (of_a_method[i : i + together] for i in range(0, len(of_a_method), together))


def _costs(experiment: Experiment, units: list[list[Run]], engine: Engine) -> Callable[[list[Run]], float]:
    """Return a function that gives the expected seconds of a unit, measured on one method of each setting."""
    examples = {str(unit[0].setting): unit for unit in reversed(units)}
    seconds = {}
    for key, unit in examples.items():
        (estimate,) = engine.map(experiment.estimate, [unit])
        seconds[key] = estimate / len(unit)
    return lambda unit: seconds[str(unit[0].setting)] * len(unit)


def _compute(
    experiment: Experiment, unit: list[Run], resources: Resources
) -> tuple[list[Run], list[pl.DataFrame], str]:
    """Return the runs of a unit with their histories and where they were computed."""
    return unit, experiment.compute(unit, resources), experiment.environment(resources)

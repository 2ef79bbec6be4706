"""Runs what is missing of an experiment, several runs at a time, on several processes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

from joblib import Parallel, delayed
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from npgm import _validate
from npgm._files import make_writable
from npgm.data import DataError
from npgm.experiments.spec import Experiment, Resources, Run
from npgm.experiments.store import Store


def run(
    experiment: Experiment,
    preset: str,
    output: Path,
    *,
    jobs: int = -1,
    methods: Sequence[str] | None = None,
    seeds: int | None = None,
    device: str = "cpu",
) -> Store:
    """Compute the runs of a preset that are not in the store yet, with a progress bar.

    A run's file is written when it is finished. An interruption loses the solver runs under way, and of a training what
    came after its last checkpoint. Several processes may work on one output: they do some work twice, and no harm.

    Args:
        experiment: what to run.
        preset: the name of one of its presets.
        output: the folder of all results; the runs go to ``<output>/<experiment>/runs``.
        jobs: processes, which share the cores; -1 for one a core, or a single one on a device other than the CPU.
        methods: labels of methods, to run those only.
        seeds: to run the first so many seeds of each setting only.
        device: where networks are trained, as PyTorch names it.

    Returns:
        The store, with all runs that were asked for.

    Raises:
        ValueError, TypeError: if the preset or a further argument is not accepted.
        OSError: if ``output`` cannot be written, before anything is computed.
        npgm.data.DataError: if the data cannot be had, likewise.
    """
    runs = experiment.runs(preset, methods, seeds)
    store = Store(output / experiment.key / "runs")
    complete(experiment, runs, store, title=f"{experiment.key} ({preset})", jobs=jobs, device=device)
    return store


def complete(
    experiment: Experiment, runs: Sequence[Run], store: Store, *, title: str, jobs: int = -1, device: str = "cpu"
) -> None:
    """Compute those of some runs that are not in the store yet, as `run` does for those of a preset.

    Args:
        experiment: what the runs are of.
        runs: those of one method on one setting side by side, to be computed together.
        store: where they go.
        title: what they are, for the progress bar.
        jobs: processes, as for `run`.
        device: where networks are trained.
    """
    if jobs != -1:
        _validate.count("jobs", jobs, least=1)
    cores = os.cpu_count() or 1
    jobs = (cores if device == "cpu" else 1) if jobs == -1 else jobs
    make_writable(store.folder)
    # units are formed of all runs, so that an interruption does not change which runs are computed together
    units = [unit for unit in _units(experiment, runs) if store.missing(unit)]
    if not units:
        return
    resources = Resources(max(1, cores // jobs), device, store.folder)
    try:
        costs = _costs(experiment, units, resources)
    except DataError as error:
        store.obstacle = str(error)  # for the report
        raise
    store.obstacle = None
    columns = (TextColumn("{task.description}"), TextColumn("{task.fields[done]} of {task.fields[runs]} runs"),
               BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, speed_estimate_period=float("inf")) as progress:
        total = sum(map(costs, units))
        expected = timedelta(seconds=round(total / min(jobs, len(units))))
        progress.console.print(f"{title}: {sum(map(len, units))} runs, expected to take {expected}")
        done = len(runs) - sum(map(len, units))
        task = progress.add_task(title, total=total, done=done, runs=len(runs))
        progress.advance(task, 0)  # the clock of the time left starts here, not with the first unit that is done
        work = Parallel(n_jobs=jobs, return_as="generator_unordered")(
            delayed(_compute)(experiment, unit, store, resources) for unit in units
        )
        for finished in work:
            done += len(finished)
            progress.update(task, advance=costs(finished), done=done)


def _units(experiment: Experiment, runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Yield the runs that are computed together: of one method on one setting."""
    for _, group in itertools.groupby(runs, key=lambda r: (r.setting, r.method)):
        of_a_method = list(group)
        together = experiment.together(of_a_method[0])
        yield from (of_a_method[i : i + together] for i in range(0, len(of_a_method), together))


def _costs(experiment: Experiment, units: list[list[Run]], resources: Resources) -> Callable[[list[Run]], float]:
    """Return a function that gives the expected seconds of a unit, measured on one method of each setting."""
    examples = {str(unit[0].setting): unit for unit in reversed(units)}
    seconds = {key: experiment.estimate(unit, resources) / len(unit) for key, unit in examples.items()}
    return lambda unit: seconds[str(unit[0].setting)] * len(unit)


def _compute(experiment: Experiment, unit: list[Run], store: Store, resources: Resources) -> list[Run]:
    """Compute, keep and return the runs of a unit."""
    for run, history in experiment.compute(unit, resources):
        if store.missing([run]):
            store.write(run, history, experiment.environment(resources))
    return unit

"""Runs what is missing of an experiment, several starts at a time, on several processes."""

from __future__ import annotations

import itertools
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from joblib import Parallel, delayed
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from threadpoolctl import threadpool_limits

from npgm import _validate
from npgm._array import Floats
from npgm.experiments import instances
from npgm.experiments.spec import Experiment, Run
from npgm.experiments.store import Store
from npgm.solvers import Status, minimize
from npgm.theory import sharpness

BATCH = 5
"""Starts that share one batch: more are hardly faster, and an interruption would lose more."""


def run(experiment: Experiment, preset: str, output: Path, *, jobs: int = -1) -> Store:
    """Compute the runs of a preset that are not in the store yet, with a progress bar.

    A run's file is written when it is finished; an interruption loses only the batches under way.

    Args:
        experiment: what to run.
        preset: the name of one of its presets.
        output: the folder of all results; the runs go to ``<output>/<experiment>/runs``.
        jobs: processes, -1 for one a core.

    Returns:
        The store, complete.

    Raises:
        ValueError, TypeError: if the preset or ``jobs`` is not accepted.
        OSError: if ``output`` cannot be written, before anything is computed.
        npgm.data.DataError: if the data cannot be had, likewise.
    """
    if jobs != -1:
        _validate.count("jobs", jobs, least=1)
    cores = os.cpu_count() or 1
    jobs = cores if jobs == -1 else jobs
    runs = experiment.runs(preset)
    store = Store(output / experiment.key / "runs")
    store.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=store.folder):
        pass  # a folder that cannot be written is found out now, and not after the first run
    missing = store.missing(runs)
    if not missing:
        return store
    # the cost of a run, for the time left; this fetches the data once, and here
    examples = {str(run.setting): run for run in missing}
    sizes = {setting: run.instance(threads=1).starts([0]).size for setting, run in examples.items()}
    costs = {run.key: sizes[str(run.setting)] * run.maxiter for run in missing}
    columns = (TextColumn("{task.description}"), TextColumn("{task.fields[done]} of {task.fields[runs]} runs"),
               BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, speed_estimate_period=math.inf) as progress:
        done = len(runs) - len(missing)
        task = progress.add_task(f"{experiment.key} ({preset})", total=sum(costs.values()), done=done, runs=len(runs))
        progress.advance(task, 0)  # the clock of the time left starts here, not with the first batch that is done
        work = Parallel(n_jobs=jobs, return_as="generator_unordered")(
            delayed(_run_batch)(batch, store, max(1, cores // jobs)) for batch in _batches(missing)
        )
        for finished in work:
            done += len(finished)
            progress.update(task, advance=sum(costs[run.key] for run in finished), done=done)
    return store


def _batches(runs: list[Run]) -> Iterator[list[Run]]:
    for _, group in itertools.groupby(runs, key=lambda r: (r.setting, r.method.label)):
        together = list(group)
        yield from (together[i : i + BATCH] for i in range(0, len(together), BATCH))


def _run_batch(runs: list[Run], store: Store, threads: int) -> list[Run]:
    """Compute, keep and return runs that differ in their seed only."""
    first = runs[0]
    seeds = [run.seed for run in runs]
    instance = first.instance(threads)
    probes = _probes(first.maxiter, first.sharpness_points)
    points = {0: instance.starts(seeds)}
    k = 0

    def keep(x: Floats) -> None:
        nonlocal k
        k += 1
        if k in probes:
            points[k] = x

    with threadpool_limits(1):  # the matrices are small; BLAS threads would only wait for each other
        result = minimize(
            instance.objective(seeds), points[0], method=first.method.method, maxiter=first.maxiter, tol=0.0,
            batch=True, history=True, callback=keep, **first.method.arguments(),
        )  # fmt: skip
        for i, (run, optimum) in enumerate(zip(runs, instance.optima(seeds), strict=True)):
            sharp = _sharpness(instance, {k: points[k][i] for k in probes if k <= result.nit[i]})
            store.write(run, _frame(run, result, i, optimum, sharp))
    return runs


def _probes(maxiter: int, number: int) -> set[int]:
    """Return iterations at which to measure: 0, and a geometric sequence to ``maxiter``."""
    return {0, *np.geomspace(1, maxiter, max(number - 1, 0)).round().astype(int).tolist()} if number else set()


def _sharpness(instance: instances.Instance, points: dict[int, Floats]) -> dict[int, float]:
    values: dict[int, float] = {}
    start = None
    for k, x in sorted(points.items()):
        values[k], start = sharpness(instance.hvp, x, start=start)
    return values


def _frame(run: Run, result: Any, i: int, optimum: float, sharp: dict[int, float]) -> pl.DataFrame:
    length = int(result.nit[i]) + 1
    history = {name: values if values.ndim == 1 else values[:, i] for name, values in result.history.items()}
    return pl.DataFrame({
        "k": np.arange(length, dtype=np.int32),
        "seconds": history["seconds"][:length] / len(result.nit),
        **{name: history[name][:length] for name in ("fun", "grad_norm", "stationarity")},
        "gap": history["fun"][:length] - optimum,
        "sharpness": pl.Series([sharp.get(k) for k in range(length)], dtype=pl.Float64),
    }).with_columns(
        pl.lit(run.seed, pl.Int32).alias("seed"),
        pl.lit(Status(int(result.status[i])).name).alias("status"),
        *(pl.lit(value).alias(name) for name, value in run.setting.items()),
    )  # fmt: skip

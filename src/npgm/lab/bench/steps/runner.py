"""Plans the cases, says how long they will take, and measures one after the other."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache, partial
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from npgm._common import validate
from npgm.lab.bench.steps import figure, tables
from npgm.lab.bench.steps.cases import DTYPES, PRESETS, SETS, Case, Layout, growing
from npgm.lab.bench.steps.contenders import COMPILED, GROWTH, LOOP, MOST_COMPILED, SPECTRAL, contenders
from npgm.lab.bench.steps.measure import LOOP_ROUNDS, SHORTEST, WARM, measure, shortage
from npgm.lab.bench.steps.results import Result, Results
from npgm.lab.files import make_writable

_COMPILATION = 0.3
"""Seconds that the compiler takes for a tensor, roughly."""
_ENTRIES, _TENSORS = 2_000_000, 500
"""The sizes of the two cases from which the time of all others is estimated."""


@dataclass(frozen=True)
class Plan:
    """What is measured: the cases of the networks, and those of one tensor each, of growing size."""

    layouts: Sequence[Case]
    growth: Sequence[Case]


def plan(
    preset: str = "quick",
    *,
    layouts: Iterable[str] | None = None,
    dtypes: Iterable[str] | None = None,
    threads: Iterable[int] | None = None,
    devices: Iterable[str] | None = None,
    rounds: int | None = None,
    size: float = 1.0,
    growth: bool = True,
) -> Plan:
    """Return the cases of a preset, with what is asked for in place of what the preset says.

    Args:
        preset: a key of `npgm.lab.bench.steps.cases.PRESETS`.
        layouts: keys of `npgm.lab.bench.steps.cases.SETS`.
        dtypes: those of parameters, gradients and states; float32 and bfloat16 by default. Growth has the first.
        threads: numbers of threads on the CPU; 1 and, where there are as many cores, 2 by default. Growth has the
            first, and so has what runs on another device.
        devices: ``cpu`` and ``cuda``; by default those that are there.
        rounds: how often each step is timed.
        size: the standard deviation of the gradients' entries.
        growth: whether to measure one tensor of 1,000 to 10⁷ or 10⁸ entries besides.

    Raises:
        TypeError, ValueError: if an argument is not accepted.
    """
    chosen = PRESETS[validate.choice("preset", preset, PRESETS)]
    cores = os.cpu_count() or 1
    present = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    keys = [*dict.fromkeys(validate.choice("layout", key, SETS) for key in layouts or chosen.layouts)]
    dtypes = [*dict.fromkeys(validate.choice("dtype", dtype, DTYPES) for dtype in dtypes or ("float32", "bfloat16"))]
    numbers = [*dict.fromkeys(validate.count("threads", n, least=1) for n in threads or (1, 2)[:cores])]
    devices = [*dict.fromkeys(validate.choice("device", device, ("cpu", "cuda")) for device in devices or present)]
    if missing := set(devices) - set(present):
        raise ValueError(f"device {missing.pop()!r} was requested, but torch {torch.__version__} finds none")
    rounds = validate.count("rounds", chosen.rounds if rounds is None else rounds, least=1)
    size = validate.positive("size", size)
    others = tuple(name for name in contenders if name not in SPECTRAL and (chosen.compiled or name != COMPILED))
    where = [
        (dtype, device, n)
        for dtype, device in itertools.product(dtypes, devices)
        for n in (numbers if device == "cpu" else numbers[:1])
    ]
    sizes = [round(10 ** (k / 2)) for k in range(6, 17)] if growth else []
    return Plan(
        [
            Case(layout, *at, rounds, size, SPECTRAL if key == "matrices" else others)
            for key in keys
            for layout in SETS[key]
            for at in where
        ],
        [
            Case(growing(n), dtypes[0], device, numbers[0], rounds, size, GROWTH)
            for device in devices
            for n in sizes
            if n <= chosen.largest
        ],
    )


def run(todo: Plan, json: Path, plot: Path, console: Console | None = None) -> Results:
    """Measure all cases for which there is memory, print each one's ratios when it is done, and write the results.

    An interruption ends the run and not the program: what was measured until then is printed, written and returned.

    Args:
        todo: what to measure.
        json: where to write all rounds; see `Results.save`.
        plot: where to draw the aims and growth; see `npgm.lab.bench.steps.figure.draw`.
        console: where to print.

    Raises:
        ValueError: if the format of ``plot`` is not known, before anything is measured.
        OSError: if a file cannot be written, likewise.
    """
    console = console or Console()
    figure.check_path(plot)
    for path in (json, plot):
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a folder, but must be a file to write")
        make_writable(path.parent)
    done = _measured(todo, console)
    tables.show_end(done, console)
    done.save(json)
    written = [json, plot] if figure.draw(done, plot) else [json]
    for path in written:
        console.print(str(path), soft_wrap=True, highlight=False)
    return done


def _measured(todo: Plan, console: Console) -> Results:
    results: dict[Case, Result] = {}
    skipped: dict[str, str] = {}
    interrupted = False
    cases = [*todo.layouts, *todo.growth]
    try:
        with console.status("estimating how long this will take"):
            costs = {case: 0.0 if shortage(case) else _expected(case) for case in cases}
        expected = timedelta(seconds=round(sum(costs.values())))
        console.print(f"{len(cases)} cases of {cases[0].rounds} rounds, expected to take {expected}", highlight=False)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"),
                   TimeRemainingColumn())  # fmt: skip
        with Progress(*columns, console=console, transient=True, speed_estimate_period=float("inf")) as progress:
            task = progress.add_task("", total=sum(costs.values()))
            for case, cost in costs.items():
                progress.update(task, description=case.title)
                if (reason := shortage(case)) is not None:
                    skipped[case.title] = reason
                    console.print(f"{case.title}: skipped, since it {reason}", highlight=False)
                    continue
                results[case] = measure(case, partial(progress.advance, task, cost / (case.rounds + 1)))
                if case in todo.layouts:
                    tables.show_layout(results[case], console)
    except KeyboardInterrupt:
        interrupted = True
        console.print("interrupted; the measurements so far are kept")
    return Results(
        [results[case] for case in todo.layouts if case in results],
        [results[case] for case in todo.growth if case in results],
        skipped,
        interrupted,
    )


def _expected(case: Case) -> float:
    """Return about how many seconds a case will take, from the cost of an entry and of a tensor."""
    seconds = 0.0
    by_entry, by_tensor = _unit_costs(replace(case, layout=Layout("", ())))
    for name in case.contenders:
        tensors = len(case.layout.shapes)
        if name == COMPILED and tensors <= MOST_COMPILED:
            seconds += _COMPILATION * tensors  # beside which its steps are nothing
        # who is left out takes no time
        step = by_entry.get(name, 0.0) * case.layout.size + by_tensor.get(name, 0.0) * tensors
        rounds = min(case.rounds, LOOP_ROUNDS) if name == LOOP else case.rounds
        seconds += (1 + rounds) * (WARM * step + max(step, SHORTEST))
    return seconds


@cache
def _unit_costs(case: Case) -> tuple[dict[str, float], dict[str, float]]:
    """Return each contender's seconds for one entry and for one tensor, measured on a case without a layout."""
    case = replace(case, rounds=1, contenders=tuple(name for name in case.contenders if name != COMPILED))
    entries = measure(replace(case, layout=growing(_ENTRIES))).seconds
    tensors = measure(replace(case, layout=Layout("", ((1,),) * _TENSORS))).seconds
    return {name: s[0] / _ENTRIES for name, s in entries.items()}, {
        name: s[0] / _TENSORS for name, s in tensors.items()
    }

"""The native loops alone: in the caches, where arithmetic limits them, and beyond, where memory does.

In the caches they are timed in float32 with one thread, in CPU time; beyond them with all threads. A number is the
least of many repetitions. "sum" is torch's in-place sum, which moves as much as a step without momentum.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Annotated, Any

import torch
from typer import Option

from npgm import _native
from npgm.lab.bench import _loops


def run(
    seconds: Annotated[float, Option(help="How long each loop is repeated; a fifth of it in the caches.")] = 1.0,
    size: Annotated[int, Option(min=1, help="Entries of the tensor beyond the caches.")] = 11_000_000,
) -> None:
    """Print nanoseconds for an entry in the caches, and milliseconds for all of them beyond."""
    torch.manual_seed(0)
    small, times = 16384, 50  # the same memory many times over
    for name in _loops.instruction_sets():
        for deviation, momentum in itertools.product((0.01, 1.0, 4.0, 1e5), (False, True)):
            loops = _loops_of(small, times, deviation, momentum, 1)
            found = {
                k: _least(loop, time.thread_time, seconds / 5) / (times * small) * 1e9 for k, loop in loops.items()
            }
            _show(f"{name}, deviation {deviation:g}", momentum, found, "ns", 3)
    threads = torch.get_num_threads()
    for momentum in (False, True):
        loops = _loops_of(size, 1, 1.0, momentum, threads)
        found = {name: 1e3 * _least(loop, time.perf_counter, seconds) for name, loop in loops.items()}
        _show(f"{size} entries, {threads} threads", momentum, found, "ms", 2)


def _show(title: str, momentum: bool, found: dict[str, float], unit: str, digits: int) -> None:
    numbers = ", ".join(f"{name} {value:.{digits}f} {unit}" for name, value in found.items())
    print(f"{title}, {'with' if momentum else 'without'} momentum: {numbers}", flush=True)


def _least(call: Callable[[], object], clock: Callable[[], float], seconds: float) -> float:
    times: list[float] = []
    end = time.monotonic() + seconds
    while not times or time.monotonic() < end:
        start = clock()
        call()
        times.append(clock() - start)
    return min(times)


def _loops_of(size: int, times: int, deviation: float, momentum: bool, threads: int) -> dict[str, Callable[[], object]]:
    core = _native.core()
    arrays = [torch.randn(size), torch.randn(size).mul_(deviation), torch.zeros(size)]
    x, g, m = (times * [a.data_ptr()] for a in arrays)
    dtypes = {"dtype": "float32", "momentum_dtype": "float32" if momentum else ""}
    given = core.Tensors(x, g, m if momentum else [], times * [size], **dtypes)
    rules = {kernel: _loops.rule(kernel, momentum=0.9 if momentum else 0.0) for kernel in ("", "cosh")}

    def norm() -> Any:
        return core.measure(given, rules[""], threads=threads)

    def update(kernel: str) -> None:
        core.apply_step(given, rules[kernel], factors=() if kernel else (0.5,), lr=1e-9, threads=threads)

    def both() -> None:
        norm()
        update("")

    return {
        "norm": norm,
        "update": lambda: update(""),
        "norm and update": both,
        "Cosh": lambda: update("cosh"),
        "sum": lambda: [arrays[0].add_(arrays[1]) for _ in range(times)],
    }

"""Processes that begin at once: forked from one that has imported what takes long, torch above all.

polars is not among it, since it has threads from its import on, which a fork loses.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([
    "distributed", "joblib", "npgm.lab.networks", "npgm.theory", "npgm.torch", "PIL.Image", "pytest", "rich.markdown",
    "rich.progress", "torch._dynamo", "torch.distributed.fsdp", "torch.func", "typer.testing",
])  # fmt: skip


def start(call: Callable[[], object], output: Path | str = os.devnull) -> BaseProcess:
    """Start a process that makes a call, in the environment of this one, and prints into a file.

    Args:
        call: a function of an importable module, or a partial one, that can be pickled with its arguments.
    """
    process = CONTEXT.Process(target=_make, args=(call, str(output), dict(os.environ)))
    process.start()
    return process


def make(calls: list[Callable[[], object]]) -> list[int | None]:
    """Make calls in a process each, side by side, and return their exit statuses."""
    started = [start(call) for call in calls]
    for process in started:
        process.join()
    return [process.exitcode for process in started]


def _make(call: Callable[[], object], output: str, environment: dict[str, str]) -> None:
    with open(output, "wb") as file:  # noqa: PTH123  also a device
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    with whole_program():
        call()


@contextlib.contextmanager
def whole_program() -> Iterator[None]:
    """End the threads, and with them joblib's workers, as a program does: multiprocessing would wait for these first."""
    try:
        yield
    finally:
        threading._shutdown()

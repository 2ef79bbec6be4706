"""A process that is interrupted at a stated point of its work, however fast or slow the machine is."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import processes


def run(call: Callable[[], object], *, how: signal.Signals, when: Path, **holds: int) -> int | None:
    """Make a call in a process that sends itself a signal once the folder ``when`` holds so many files of each kind.

    Args:
        holds: the least number of files with each suffix, as in ``parquet=4``.

    Returns:
        the exit status of the process.
    """
    process = processes.start(partial(_make, call, how, when, holds))
    process.join()
    return process.exitcode


def _make(call: Callable[[], object], how: signal.Signals, when: Path, holds: dict[str, int]) -> None:
    soon(how, when, holds)
    call()


def soon(how: signal.Signals, folder: Path, holds: dict[str, int]) -> None:
    """Let this process die by the signal right after a file has taken its place that makes the folder hold all this."""
    replace = Path.replace

    def replace_and_die(self: Path, target: Path) -> Path:
        path = replace(self, target)
        if all(len(list(folder.glob(f"*.{suffix}"))) >= number for suffix, number in holds.items()):
            os.kill(os.getpid(), how)
        return path

    Path.replace = replace_and_die  # type: ignore[method-assign]

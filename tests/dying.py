"""A process that is interrupted at a stated point of its work, however fast or slow the machine is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path


def run(code: str, *arguments: object, how: signal.Signals, when: Path, **holds: int) -> int:
    """Run Python code in a process that sends itself a signal once the folder ``when`` holds so many files of each kind.

    Args:
        holds: the least number of files with each suffix, as in ``parquet=4``.

    Returns:
        the exit status of the process.
    """
    prefix = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import dying\n"
        f"dying.soon({int(how)}, {str(when)!r}, {holds!r})\n"
    )
    command = [sys.executable, "-c", prefix + code, *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode


def soon(how: int, folder: str, holds: dict[str, int]) -> None:
    """Let this process die by the signal right after a file has taken its place that makes the folder hold all this."""
    replace = Path.replace

    def replace_and_die(self: Path, target: Path) -> Path:
        path = replace(self, target)
        if all(len(list(Path(folder).glob(f"*.{suffix}"))) >= number for suffix, number in holds.items()):
            os.kill(os.getpid(), how)
        return path

    Path.replace = replace_and_die  # type: ignore[method-assign]

"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

ABANDONED = 600.0
"""Seconds after which a temporary file that has not changed has no writer any more: to write one takes seconds."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of ``path`` at the end of the block, unless it raises; several may at once.

    The temporary files that killed processes left in the same folder are removed.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with temporary.open("wb") as file:
            _remove_abandoned(temporary)
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_abandoned(own: Path) -> None:
    """Remove what has not changed for long by the clock of the file system, which many machines may share."""
    now = own.stat().st_mtime
    for path in own.parent.glob(".*.part"):
        with contextlib.suppress(OSError):  # another process was first, or it is another user's
            if now - path.stat().st_mtime > ABANDONED:
                path.unlink()


def make_writable(folder: Path) -> Path:
    """Make a folder if there is none, and return it.

    Raises:
        OSError: if nothing can be written into it, which is better known before hours of work than after.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return folder

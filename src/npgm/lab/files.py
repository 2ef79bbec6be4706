"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

if sys.platform == "win32":
    fcntl = None
else:
    import fcntl

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.npgm-part")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of ``path`` at the end of the block, unless it raises; several may at once.

    The temporary files that killed processes left in the same folder are removed, except on Windows: those that are
    not locked, as they are by their writers until they have their place.

    Raises:
        OSError: if it cannot be written, with the name of ``path``.
    """
    try:
        with _temporary(path) as (temporary, file):
            _remove_abandoned(path.parent)
            yield file
            file.flush()
            if fcntl is None:
                file.close()  # Windows moves no open file
            temporary.replace(path)
    except OSError as error:
        if error.filename is None or _TEMPORARY.fullmatch(Path(error.filename).name):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


@contextlib.contextmanager
def _temporary(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Make a file beside ``path`` that is locked as long as it is open, and removed in the end if it is still there."""
    while True:
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.npgm-part")
        try:
            with temporary.open("wb") as file:
                if fcntl is not None:
                    with contextlib.suppress(OSError):  # a file system without locks, on which nothing is removed
                        fcntl.flock(file, fcntl.LOCK_EX)
                if temporary.exists():  # else another process took it for abandoned before it was locked
                    yield temporary, file
                    return
        finally:
            temporary.unlink(missing_ok=True)


def _remove_abandoned(folder: Path) -> None:
    if fcntl is None:
        return
    for path in folder.iterdir():
        if _TEMPORARY.fullmatch(path.name):
            # locked; or gone, or another user's; or on a file system without locks
            with contextlib.suppress(OSError), path.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def make_writable(folder: Path) -> Path:
    """Make a folder if there is none, and return it.

    Raises:
        OSError: if nothing can be written into it, which is better known before hours of work than after.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return folder

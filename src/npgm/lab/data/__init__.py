"""Data sets, each from the first of its sources that has it: a local folder, its own site, a package registry.

What was loaded once is kept, decoded, in the user's cache folder, and needs no network again. Whatever the source,
the decoded arrays are checked against a SHA-256.
"""

from npgm.lab.data.cifar import CIFAR10, CIFAR100
from npgm.lab.data.dataset import DataError, Dataset, cache_dir, load, registry
from npgm.lab.data.mnist import MNIST
from npgm.lab.data.movielens import MovieLens100K
from npgm.lab.data.text import Shakespeare, Text, TinyShakespeare

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "DataError",
    "Dataset",
    "MovieLens100K",
    "Shakespeare",
    "Text",
    "TinyShakespeare",
    "cache_dir",
    "load",
    "registry",
]

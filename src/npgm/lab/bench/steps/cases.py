"""What is measured: shapes of parameters with a dtype, a device and a number of threads."""

from __future__ import annotations

import math
from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """The shapes of a network's parameters, under a title."""

    title: str
    shapes: tuple[Shape, ...]

    @property
    def size(self) -> int:
        """The number of parameters, each entry counted."""
        return sum(map(math.prod, self.shapes))


@dataclass(frozen=True)
class Case:
    """One measurement.

    Args:
        layout: the shapes of the parameters.
        dtype: theirs and that of gradients and states, as torch names it.
        device: where they are, ``cpu`` or ``cuda``.
        threads: of torch and of npgm.
        rounds: in each of which every contender is timed once.
        size: the standard deviation of the gradients' entries, which have mean zero.
        contenders: names in `npgm.lab.bench.steps.contenders`.
    """

    layout: Layout
    dtype: str
    device: str
    threads: int
    rounds: int
    size: float
    contenders: tuple[str, ...]

    @property
    def setting(self) -> str:
        """In what way it is measured, in words."""
        threads = f"{self.threads} thread{'s' * (self.threads > 1)}" if self.device == "cpu" else self.device
        return f"{self.dtype}, {threads}"

    @property
    def title(self) -> str:
        """The case in words."""
        return f"{self.layout.title}, {self.setting}"


@dataclass(frozen=True)
class Preset:
    """How much is measured where nothing else is asked for."""

    layouts: tuple[str, ...]
    rounds: int
    largest: int
    """The number of parameters up to which growth is measured, from 1,000."""
    compiled: bool
    """Whether a compiled step takes part, of which the compiler takes longer than all of the rest."""


def _resnet18() -> list[Shape]:
    """The parameters of ResNet-18 for ImageNet."""
    shapes: list[Shape] = [(64, 3, 7, 7), (64,), (64,)]
    channels = 64
    for width in (64, 128, 256, 512):
        for first in (True, False):
            before = channels if first else width
            shapes += [(width, before, 3, 3), (width,), (width,), (width, width, 3, 3), (width,), (width,)]
            if first and before != width:
                shapes += [(width, before, 1, 1), (width,), (width,)]
        channels = width
    return [*shapes, (1000, 512), (1000,)]


def _gpt2() -> list[Shape]:
    """The parameters of the smallest GPT-2, whose output shares the weights of its embedding."""
    layers, width, vocabulary, positions = 12, 768, 50257, 1024
    norm: list[Shape] = [(width,), (width,)]
    attention: list[Shape] = [(width, 3 * width), (3 * width,), (width, width), (width,)]
    mlp: list[Shape] = [(width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [(vocabulary, width), (positions, width), *(norm + attention + norm + mlp) * layers, *norm]


def growing(size: int) -> Layout:
    """Return one tensor of ``size`` entries."""
    return Layout(f"{size:,} parameters", ((size,),))


LAYOUTS = {
    "one-tensor": Layout("one tensor of 11 M", ((11_000_000,),)),
    "resnet18": Layout("ResNet-18", tuple(_resnet18())),
    "gpt2": Layout("GPT-2 of 124 M", tuple(_gpt2())),
    "many-tensors": Layout("10,000 tensors of 1,000", ((1000,),) * 10_000),
}

MATRICES = (
    Layout("a matrix of 512 x 512", ((512, 512),)),
    Layout("a matrix of 256 x 784", ((256, 784),)),
    Layout("a block of GPT-2", ((2304, 768), (768, 768), (3072, 768), (768, 3072))),
    Layout("ResNet-18, its matrices", tuple((s[0], math.prod(s[1:])) for s in _resnet18() if len(s) > 1)),
)
"""Matrices alone, as torch's Muon takes them: convolutions as (out, in · height · width)."""

SETS = {
    "matrices": MATRICES,
    "small": (
        Layout("one tensor of 100", ((100,),)),
        Layout("MLP of 1.4 k", ((64, 16), (64,), (4, 64), (4,))),
        Layout("10 tensors of 1,000", ((1000,),) * 10),
        Layout("MLP of 536 k", ((512, 784), (512,), (256, 512), (256,), (10, 256), (10,))),
        Layout("50 tensors of 64 k", ((64_000,),) * 50),
        Layout("one tensor of 1e5", ((100_000,),)),
        Layout("one tensor of 1e6", ((1_000_000,),)),
    ),
} | {key: (layout,) for key, layout in LAYOUTS.items()}
"""What can be asked for by a key: networks, and those small ones whose steps are short, in the caches."""

PRESETS = {
    "quick": Preset(("one-tensor", "resnet18", "many-tensors"), rounds=7, largest=10**7, compiled=False),
    "full": Preset(tuple(LAYOUTS), rounds=15, largest=10**8, compiled=True),
}

DTYPES = ("float32", "bfloat16", "float16", "float64")

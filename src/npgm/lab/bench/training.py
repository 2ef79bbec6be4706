"""A training step of iHGD on MNIST: several seeds as one batched model, against plain DataLoader loops.

All are interleaved, with the same network, optimizer and size of minibatches. The plain loops differ in how an image
is made a tensor, one at a time from a Dataset:

tensor: from the array, divided by 255.
PIL: as `torchvision.datasets.MNIST` with `ToTensor` and `Normalize` does it, whose operations are repeated here:
    through an image of Pillow, and standardised; in this process or in 2 workers, which have up to 4 minibatches ready
    when their turn comes.

Prints ratios only, medians over the rounds with quartiles; and which share of the rate of a large `torch.mm`, timed in
the same rounds, the products of the network attain in a step: 1 would leave nothing to gain.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset
from typer import Option

from npgm.lab.bench._shared import Rounds, spread
from npgm.lab.data import load
from npgm.lab.experiments.training.images import ImageTraining
from npgm.lab.experiments.training.trainer import Trainer
from npgm.lab.networks import MLP
from npgm.lab.threads import with_threads
from npgm.torch import IHGD

SEEDS, BATCH = 5, 256
MEAN, STD = (0.1307,), (0.3081,)  # of MNIST's pixels, as PyTorch's example has them
SIDE = 2048  # of the matrices whose product is the peak


class _Digits(Dataset[tuple[Tensor, int]]):
    """MNIST's training images, made numbers in [0, 1] one at a time."""

    def __init__(self) -> None:
        arrays = load("mnist")
        self.images, self.labels = arrays["train_images"], arrays["train_labels"]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return torch.from_numpy(self.images[i]).unsqueeze(0).float().div(255), int(self.labels[i])


class _PILDigits(_Digits):
    """The same, by the operations of torchvision's MNIST, ToTensor and Normalize."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures = torch.from_numpy(self.images)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        picture = Image.fromarray(self.pictures[i].numpy())
        image = torch.from_numpy(np.array(picture, np.uint8, copy=True))
        image = image.view(picture.size[1], picture.size[0], 1).permute((2, 0, 1)).contiguous()
        image = image.to(dtype=torch.get_default_dtype()).div(255).clone()
        mean, std = torch.as_tensor(MEAN, dtype=image.dtype), torch.as_tensor(STD, dtype=image.dtype)
        return image.sub_(mean.view(-1, 1, 1)).div_(std.view(-1, 1, 1)), int(self.labels[i])


def _plain_steps(digits: _Digits, workers: int = 0) -> Iterator[None]:
    network = MLP()
    optimizer = IHGD(network.parameters(), lr=1.0)
    loader = DataLoader(digits, BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    for images, labels in itertools.chain.from_iterable(itertools.repeat(loader)):
        optimizer.zero_grad()
        cross_entropy(network(images), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        yield


def _flops_of_a_step() -> int:
    """Those of the products: one forward, two backward, but for the gradient of the images, which is not needed."""
    weights = [p.numel() for p in MLP().parameters() if p.ndim == 2]
    return 2 * BATCH * (3 * sum(weights) - weights[0])


PLAIN: dict[str, tuple[type[_Digits], int]] = {
    "tensor": (_Digits, 0),
    "PIL": (_PILDigits, 0),
    "PIL, 2 workers": (_PILDigits, 2),
}
"""The images of each plain loop, and its worker processes."""


def run(
    rounds: Rounds = 9,
    steps: Annotated[int, Option(min=1, help="Steps that are timed at a time.")] = 20,
) -> None:
    """Print the ratios."""
    threads = min(2, os.cpu_count() or 1)
    with with_threads(threads):
        times = _times(rounds, steps)

    def show(above: str, below: str, name: str) -> None:
        print(f"  {name:28} {spread(np.divide(times[above], times[below]))}")

    print(f"{rounds} rounds of {steps} steps, {threads} threads")
    print(f"time of a plain step / of a seed's step among {SEEDS} as one model:")
    for name in PLAIN:
        show(name, "batched", name)
    print("share of the peak rate of products:")
    for name in (*PLAIN, "batched"):
        show("peak", name, name)


def _times(rounds: int, steps: int) -> dict[str, list[float]]:
    """Return the seconds of a seed's step in each round after the first, and of its products at the peak rate."""
    training = ImageTraining({"name": "mlp"}, "mnist", batch_size=BATCH, epochs=10_000)
    loops = {name: _plain_steps(digits(), workers) for name, (digits, workers) in PLAIN.items()}
    contenders: dict[str, Callable[[], object]] = {name: partial(next, loop) for name, loop in loops.items()}
    contenders["batched"] = Trainer(training, "npgm", {"lr": 1.0}, range(SEEDS)).step
    matrix, flops = torch.randn(SIDE, SIDE), _flops_of_a_step()
    times: dict[str, list[float]] = {name: [] for name in (*contenders, "peak")}
    for _ in range(1 + rounds):
        for name, step in contenders.items():
            seconds = _seconds(lambda step=step: [step() for _ in range(steps)]) / steps  # type: ignore[misc]
            times[name].append(seconds / (SEEDS if name == "batched" else 1))
        times["peak"].append(_seconds(lambda: torch.mm(matrix, matrix)) / (2 * SIDE**3) * flops)
    return {name: values[1:] for name, values in times.items()}


def _seconds(call: Callable[[], object]) -> float:
    clock = time.perf_counter()
    call()
    return time.perf_counter() - clock

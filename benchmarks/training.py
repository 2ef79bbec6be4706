"""Time of a training step of iHGD on MNIST: several seeds as one batched model against plain DataLoader loops.

All are interleaved, with the same network, optimizer and size of minibatches. The plain loops differ in how an image
is made a tensor, one at a time from a Dataset:

tensor: from the array, divided by 255.
PIL: as `torchvision.datasets.MNIST` with `ToTensor` and `Normalize` does it, whose operations are repeated here:
    through an image of Pillow, and standardised; in this process or in 2 workers, which have up to 4 minibatches ready
    when their turn comes.

Prints ratios only, medians over the rounds with their range; and which share of the rate of a large `torch.mm`, timed
in the same rounds, the products of the network attain in a step: 1 would leave nothing to gain.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from npgm.lab.data import load
from npgm.lab.experiments.training.images import ImageTraining
from npgm.lab.experiments.training.trainer import Trainer
from npgm.lab.networks import MLP
from npgm.torch import IHGD

SEEDS, BATCH, STEPS, ROUNDS = 5, 256, 20, 9
MEAN, STD = (0.1307,), (0.3081,)  # of MNIST's pixels, as PyTorch's example has them
SIDE = 2048  # of the matrices whose product is the peak


class Digits(Dataset[tuple[Tensor, int]]):
    """MNIST's training images, made numbers in [0, 1] one at a time."""

    def __init__(self) -> None:
        arrays = load("mnist")
        self.images, self.labels = arrays["train_images"], arrays["train_labels"]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return torch.from_numpy(self.images[i]).unsqueeze(0).float().div(255), int(self.labels[i])


class PILDigits(Digits):
    """The same, by the operations of torchvision's MNIST, ToTensor and Normalize."""

    def __init__(self) -> None:
        super().__init__()
        self.images, self.labels = torch.from_numpy(self.images), torch.from_numpy(self.labels)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        picture = Image.fromarray(self.images[i].numpy())
        image = torch.from_numpy(np.array(picture, np.uint8, copy=True))
        image = image.view(picture.size[1], picture.size[0], 1).permute((2, 0, 1)).contiguous()
        image = image.to(dtype=torch.get_default_dtype()).div(255).clone()
        mean, std = torch.as_tensor(MEAN, dtype=image.dtype), torch.as_tensor(STD, dtype=image.dtype)
        return image.sub_(mean.view(-1, 1, 1)).div_(std.view(-1, 1, 1)), int(self.labels[i])


def plain_steps(digits: Digits, workers: int = 0) -> Iterator[None]:
    network = MLP()
    optimizer = IHGD(network.parameters(), lr=1.0)
    loader = DataLoader(digits, BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    for images, labels in itertools.chain.from_iterable(itertools.repeat(loader)):
        optimizer.zero_grad()
        cross_entropy(network(images), labels).backward()
        optimizer.step()
        yield


def flops_of_a_step() -> int:
    """Those of the products: one forward, two backward, but for the gradient of the images, which is not needed."""
    weights = [p.numel() for p in MLP().parameters() if p.ndim == 2]
    return 2 * BATCH * (3 * sum(weights) - weights[0])


def seconds_a_step(step: Callable[[], object]) -> float:
    clock = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - clock) / STEPS


def main() -> None:
    threads = min(2, os.cpu_count() or 1)
    torch.set_num_threads(threads)
    steps = {
        "tensor": plain_steps(Digits()),
        "PIL": plain_steps(PILDigits()),
        "PIL, 2 workers": plain_steps(PILDigits(), workers=2),
    }
    training = ImageTraining({"name": "mlp"}, "mnist", batch_size=BATCH, epochs=10_000)
    contenders = {name: (lambda loop=loop: next(loop), 1) for name, loop in steps.items()}
    contenders["batched"] = (Trainer(training, "npgm", {"lr": 1.0}, range(SEEDS)).step, SEEDS)
    matrix = torch.randn(SIDE, SIDE)
    times: dict[str, list[float]] = {name: [] for name in (*contenders, "peak")}
    for _ in range(1 + ROUNDS):
        for name, (step, seeds) in contenders.items():
            times[name].append(seconds_a_step(step) / seeds)
        clock = time.perf_counter()
        torch.mm(matrix, matrix)
        times["peak"].append((time.perf_counter() - clock) / (2 * SIDE**3) * flops_of_a_step())

    def show(name: str, above: str, below: str) -> None:
        ratios = [a / b for a, b in zip(times[above][1:], times[below][1:], strict=True)]
        print(f"  {name:28} {statistics.median(ratios):6.2f} [{min(ratios):.2f}, {max(ratios):.2f}]")

    print(f"{ROUNDS} rounds of {STEPS} steps, {threads} threads")
    print(f"time of a plain step / of a seed's step among {SEEDS} as one model:")
    for name in steps:
        show(name, name, "batched")
    print("share of the peak rate of products:")
    for name in contenders:
        show(name, "peak", name)


if __name__ == "__main__":
    main()

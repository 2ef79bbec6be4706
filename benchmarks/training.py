"""Seeds' epochs per second of iHGD on MNIST: several seeds as one batched model against a plain DataLoader loop.

The two are interleaved, with the same network, optimizer and minibatches; the plain loop takes one image at a time from
a Dataset, as PyTorch's tutorials do. Prints ratios only: medians over the rounds, with their range.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from npgm.data import load
from npgm.experiments.training.trainer import Trainer, Training
from npgm.problems.networks import MLP
from npgm.torch import IHGD

SEEDS, STEPS, ROUNDS = 5, 20, 9


class Digits(Dataset[tuple[Tensor, int]]):
    """MNIST's training images, made numbers in [0, 1] one at a time."""

    def __init__(self) -> None:
        arrays = load("mnist")
        self.images, self.labels = arrays["train_images"], arrays["train_labels"]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return torch.from_numpy(self.images[i]).unsqueeze(0).float().div(255), int(self.labels[i])


def plain_steps() -> Iterator[None]:
    network = MLP()
    optimizer = IHGD(network.parameters(), lr=1.0)
    loader = DataLoader(Digits(), batch_size=256, shuffle=True)
    for images, labels in itertools.chain.from_iterable(itertools.repeat(loader)):
        optimizer.zero_grad()
        cross_entropy(network(images), labels).backward()
        optimizer.step()
        yield


def seconds_a_step(step: Callable[[], object]) -> float:
    clock = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - clock) / STEPS


def main() -> None:
    threads = min(2, os.cpu_count() or 1)
    torch.set_num_threads(threads)
    plain = plain_steps()
    trainer = Trainer(Training({"name": "mlp"}, "mnist", batch_size=256, epochs=100), "npgm", {"lr": 1.0}, range(SEEDS))
    contenders = {"plain": (lambda: next(plain), 1), "batched": (trainer.step, SEEDS)}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(1 + ROUNDS):
        for name, (step, seeds) in contenders.items():
            times[name].append(seconds_a_step(step) / seeds)
    ratios = [a / b for a, b in zip(times["plain"][1:], times["batched"][1:], strict=True)]
    print(f"{ROUNDS} rounds of {STEPS} steps, {threads} threads: time of a plain step / of a seed's step among {SEEDS}")
    print(f"{statistics.median(ratios):.1f} [{min(ratios):.1f}, {max(ratios):.1f}]")


if __name__ == "__main__":
    main()

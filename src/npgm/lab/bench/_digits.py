"""A small perceptron on MNIST, in a plain loop of PyTorch."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Annotated

import torch
from torch import nn
from torch.utils.data import TensorDataset
from typer import Option

from npgm.lab.data import load

BATCH = 128
IMAGES = 20_000

Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
Steps = Annotated[int, Option(min=1, help="Steps of a training.")]


def network() -> nn.Sequential:
    """Return the perceptron."""
    return nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))


def digits(part: str = "train") -> TensorDataset:
    """Return the first images of MNIST, in [0, 1], of those to train on or those to test with."""
    arrays = load("mnist")
    images = torch.from_numpy(arrays[f"{part}_images"][:IMAGES]).reshape(-1, 784).to(torch.float32) / 255
    return TensorDataset(images, torch.from_numpy(arrays[f"{part}_labels"][:IMAGES]).long())


def median_loss(data: TensorDataset, make: Make, seeds: int, steps: int) -> float:
    """Return the median over seeds of the loss on all images after so many steps, infinite where it is not finite."""
    return statistics.median(_trained(data, make, seed, steps) for seed in range(seeds))


def _trained(data: TensorDataset, make: Make, seed: int, steps: int) -> float:
    images, labels = data.tensors
    torch.manual_seed(seed)
    model = network()
    optimizer = make(list(model.parameters()))
    for _ in range(steps):
        batch = torch.randint(len(images), (BATCH,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        final = float(nn.functional.cross_entropy(model(images), labels))
    return final if math.isfinite(final) else math.inf

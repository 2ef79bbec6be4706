"""Test accuracy at the sparsity that prox=L1(τ) reaches in training, beside pruning by magnitude after it.

A network is trained by SHGD, with τ on its weights and none on its biases and normalisations. Pruning sets the same
number of the smallest weights of the network trained without τ to zero. Numbers are medians over the seeds.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import nn
from typer import Option

from npgm._common import validate
from npgm.lab.bench._digits import BATCH, IMAGES, Steps, network
from npgm.lab.bench._shared import Seeds
from npgm.lab.experiments.training.images import Images
from npgm.lab.networks import resnet_cifar
from npgm.lab.threads import with_threads
from npgm.proximal import L1
from npgm.torch import SHGD


@dataclass(frozen=True)
class _Task:
    """A data set, a network for it, the numbers of SHGD, and the τ to try."""

    preprocessing: str
    network: Callable[[], nn.Module]
    lr: float
    scale: float
    weights: tuple[float, ...]


TASKS = {
    "mnist": _Task("unit", lambda: nn.Sequential(nn.Flatten(), network()), 0.1, 0.01, (3e-5, 1e-4, 3e-4, 1e-3)),
    "cifar10": _Task("standardised", lambda: resnet_cifar(10, blocks=1, width=16), 0.7, 1.0, (3e-4, 1e-3, 3e-3, 1e-2)),
}


def run(
    data: Annotated[str, Option(help="mnist, for a perceptron, or cifar10, for a small residual network.")] = "mnist",
    seeds: Seeds = 3,
    steps: Steps = 2000,
) -> None:
    """Print a line for each τ."""
    task = TASKS[validate.choice("data", data, TASKS)]
    images = Images(data, task.preprocessing, IMAGES)
    with with_threads(1):
        dense = [_trained(task, images, seed, steps, None) for seed in range(seeds)]
        print(
            f"trained without τ: test accuracy {statistics.median(_accuracy(m, images) for m in dense):.4f}", flush=True
        )
        for weight in task.weights:
            sparse = [_trained(task, images, seed, steps, L1(weight)) for seed in range(seeds)]
            shares = [_share_of_zeros(model) for model in sparse]
            pruned = [_pruned(model, share) for model, share in zip(dense, shares, strict=True)]
            accuracies = (statistics.median(_accuracy(m, images) for m in models) for models in (sparse, pruned))
            print(
                f"τ = {weight:<7g} zeros {statistics.median(shares):7.2%}   "
                "test accuracy {:.4f}, by pruning {:.4f}".format(*accuracies),
                flush=True,
            )


def _trained(task: _Task, images: Images, seed: int, steps: int, prox: L1 | None) -> nn.Module:
    torch.manual_seed(seed)
    model, generator = task.network(), torch.Generator().manual_seed(seed)
    rest = [p for p in model.parameters() if p.ndim == 1]
    groups: list[dict[str, Any]] = [{"params": _weights(model), "prox": prox}, {"params": rest}]
    optimizer = SHGD(groups, task.lr, momentum=0.9, scale=task.scale)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    batches = images.number // BATCH
    for step in range(steps):
        if step % batches == 0:
            order = images.order([generator])
        first = step % batches * BATCH
        inputs, labels = images.batch(order, slice(first, first + BATCH))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs[0]), labels[0]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return model.eval()


def _weights(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.ndim > 1]


def _share_of_zeros(model: nn.Module) -> float:
    weights = _weights(model)
    return sum(int((w == 0).sum()) for w in weights) / sum(w.numel() for w in weights)


def _pruned(model: nn.Module, share: float) -> nn.Module:
    """Return a copy whose smallest weights, so many of all, are zero."""
    model = copy.deepcopy(model)
    sizes = torch.cat([w.detach().abs().flatten() for w in _weights(model)]).sort().values
    least = sizes[min(round(share * len(sizes)), len(sizes) - 1)]
    with torch.no_grad():
        for w in _weights(model):
            w.mul_(w.abs() >= least)
    return model


def _accuracy(model: nn.Module, images: Images) -> float:
    right, total = 0, images.held_out["test"]
    with torch.no_grad():
        for first in range(0, total, 1000):
            inputs, labels = images.held_out_batch("test", slice(first, first + 1000))
            right += int((model(inputs).argmax(1) == labels).sum())
    return right / total

"""Test accuracy at the sparsity that prox=L1(τ) reaches in training, beside pruning by magnitude after it.

A perceptron is trained on MNIST by SHGD, with τ on its weights and none on its biases. Pruning sets the same number of
the smallest weights of the network trained without τ to zero. Numbers are medians over the seeds.
"""

from __future__ import annotations

import statistics
from typing import Annotated, Any

import torch
from torch import nn
from torch.utils.data import TensorDataset
from typer import Option

from npgm.lab.bench._digits import BATCH, Steps, digits, network
from npgm.lab.bench._shared import Seeds
from npgm.lab.threads import with_threads
from npgm.proximal import L1
from npgm.torch import SHGD

WEIGHTS = (3e-5, 1e-4, 3e-4, 1e-3)


def run(
    seeds: Seeds = 3, steps: Steps = 2000, lr: Annotated[float, Option(min=0.0, help="Stepsize of SHGD.")] = 0.1
) -> None:
    """Print a line for each τ."""
    data, test = digits(), digits("test")
    with with_threads(1):
        dense = [_trained(data, seed, steps, lr, None) for seed in range(seeds)]
        print(
            f"trained without τ: test accuracy {statistics.median(_accuracy(m, test) for m in dense):.4f}", flush=True
        )
        for weight in WEIGHTS:
            sparse = [_trained(data, seed, steps, lr, L1(weight)) for seed in range(seeds)]
            shares = [_share_of_zeros(model) for model in sparse]
            pruned = [_pruned(model, share) for model, share in zip(dense, shares, strict=True)]
            accuracies = (statistics.median(_accuracy(m, test) for m in models) for models in (sparse, pruned))
            print(
                f"τ = {weight:<7g} zeros {statistics.median(shares):7.2%}   "
                "test accuracy {:.4f}, by pruning {:.4f}".format(*accuracies),
                flush=True,
            )


def _trained(data: TensorDataset, seed: int, steps: int, lr: float, prox: L1 | None) -> nn.Sequential:
    images, labels = data.tensors
    torch.manual_seed(seed)
    model = network()
    biases = [p for p in model.parameters() if p.ndim == 1]
    groups: list[dict[str, Any]] = [{"params": _weights(model), "prox": prox}, {"params": biases}]
    optimizer = SHGD(groups, lr, momentum=0.9, scale=0.01)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = optimizer.param_groups[1]["lr"] = lr * (1.0 - step / steps)
        batch = torch.randint(len(images), (BATCH,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model


def _weights(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.ndim == 2]


def _share_of_zeros(model: nn.Module) -> float:
    weights = _weights(model)
    return sum(int((w == 0).sum()) for w in weights) / sum(w.numel() for w in weights)


def _pruned(model: nn.Sequential, share: float) -> nn.Sequential:
    """Return a copy whose smallest weights, so many of all, are zero."""
    copy = network()
    copy.load_state_dict(model.state_dict())
    sizes = torch.cat([w.detach().abs().flatten() for w in _weights(copy)]).sort().values
    least = sizes[min(round(share * len(sizes)), len(sizes) - 1)]
    with torch.no_grad():
        for w in _weights(copy):
            w.mul_(w.abs() >= least)
    return copy


def _accuracy(model: nn.Module, test: TensorDataset) -> float:
    images, labels = test.tensors
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).float().mean())

"""Losses with decoupled weight decay c, where each step multiplies the parameters by 1 - lr c.

A perceptron is trained on MNIST; the losses are medians over the seeds.
"""

from __future__ import annotations

from torch.optim import AdamW

from npgm.lab.bench._digits import Make, Steps, digits, median_loss
from npgm.lab.bench._shared import Seeds
from npgm.lab.threads import with_threads
from npgm.torch import IHGD


def _adamw(c: float) -> Make:
    return lambda parameters: AdamW(parameters, lr=1e-3, weight_decay=c)


def _ihgd(c: float) -> Make:
    return lambda parameters: IHGD(parameters, lr=0.5, momentum=0.9, weight_decay=c, decoupled_weight_decay=True)


OPTIMIZERS = {
    "AdamW, lr = 1e-3, c = 0": _adamw(0.0),
    "AdamW, lr = 1e-3, c = 0.1": _adamw(0.1),
    "IHGD, lr = 0.5, c = 0": _ihgd(0.0),
    "IHGD, lr = 0.5, c = 0.1": _ihgd(0.1),
    "IHGD, lr = 0.5, c = 0.1 · 1e-3/0.5": _ihgd(2e-4),
}


def run(seeds: Seeds = 3, steps: Steps = 600) -> None:
    """Print a line for each optimizer."""
    data = digits()
    with with_threads(1):
        for name, make in OPTIMIZERS.items():
            print(f"{name:36} loss {median_loss(data, make, seeds, steps):.3f}", flush=True)

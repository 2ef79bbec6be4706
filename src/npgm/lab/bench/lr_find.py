"""The stepsize that Lightning's lr_find suggests, against the best of a grid with ratios of 2.

A perceptron is trained on MNIST; stepsizes and losses are medians over the seeds.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.tuner.tuning import Tuner
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, TensorDataset
from typer import Option

from npgm.lab.bench._digits import BATCH, Steps, digits, median_loss, network
from npgm.lab.bench._shared import Seeds
from npgm.lab.threads import with_threads
from npgm.torch import IHGD

MakeAt = Callable[[list[nn.Parameter], float], Optimizer]

OPTIMIZERS: dict[str, MakeAt] = {
    "SGD": lambda parameters, lr: torch.optim.SGD(parameters, lr, momentum=0.9),
    "Adam": lambda parameters, lr: torch.optim.Adam(parameters, lr),
    "IHGD": lambda parameters, lr: IHGD(parameters, lr, momentum=0.9),
}


class _Module(pl.LightningModule):
    def __init__(self, make: MakeAt) -> None:
        super().__init__()
        self.net, self.make, self.lr = network(), make, 1e-3

    def training_step(self, batch: Any, _: int) -> Tensor:
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> Optimizer:
        return self.make(list(self.parameters()), self.lr)


def run(
    seeds: Seeds = 3,
    steps: Steps = 600,
    exponents: Annotated[tuple[int, int], Option(help="log₂ of the ends of the grid.")] = (-10, 3),
) -> None:
    """Print a line for each optimizer."""
    data, grid = digits(), [2.0**k for k in range(exponents[0], exponents[1] + 1)]
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with with_threads(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice
        for name, make in OPTIMIZERS.items():

            def loss(lr: float, make: MakeAt = make) -> float:
                return median_loss(data, lambda parameters: make(parameters, lr), seeds, steps)

            suggested = float(np.nanmedian([_suggested(data, make, seed) for seed in range(seeds)]))
            losses = {lr: loss(lr) for lr in grid}
            best = min(losses, key=losses.__getitem__)
            found = f"suggested {suggested:.2g}, loss {loss(suggested):.3f}; best {best:.2g}, loss {losses[best]:.3f}"
            print(f"{name:16} {found}", flush=True)


def _suggested(data: TensorDataset, make: MakeAt, seed: int) -> float:
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, default_root_dir=folder,
        )  # fmt: skip
        finder = Tuner(trainer).lr_find(_Module(make), DataLoader(data, BATCH, shuffle=True), update_attr=False)
    suggestion = None if finder is None else finder.suggestion()
    return float("nan") if suggestion is None else suggestion

"""Which lr suits `scale="auto"`: `python benchmarks/auto_lr.py [SEEDS]`.

Short trainings of the MNIST perceptron (one epoch) and of a recurrent network on the characters of Shakespeare (cosine
schedule), by the package's own trainer, with momentum 0.9 and the stepsizes of one grid. Prints the held-out losses.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from npgm.lab.experiments.training.images import ImageTraining
from npgm.lab.experiments.training.task import Training
from npgm.lab.experiments.training.text import TextTraining
from npgm.lab.experiments.training.trainer import Trainer

ENTRIES = [0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008]
"""Stepsizes of a φ of entries, whose step moves an entry by a number of the order of lr."""
NORMS = [0.03, 0.06, 0.12, 0.25, 0.5, 1.0]
"""Stepsizes of an isotropic φ, whose step is a vector of a length of the order of lr."""
METHODS = {"separable-log": ENTRIES, "separable-cosh": ENTRIES, "isotropic-log": NORMS}
MLP = {"name": "mlp", "widths": [784, 512, 256]}
RNN = {"name": "rnn", "embedding": 64, "hidden": 128}
TEXT = {"length": 64, "steps": 300, "every": 300, "windows": 64, "schedule": "cosine"}
TASKS: dict[str, tuple[Training, str]] = {
    "MNIST, perceptron": (ImageTraining(MLP, "mnist", batch_size=256, epochs=1), "test_loss"),
    "Shakespeare, recurrent": (TextTraining(RNN, "shakespeare", 8, **TEXT), "validation_loss"),
}


def trained(training: Training, measure: str, seeds: list[int], **arguments: Any) -> float:
    """Return the mean of a held-out loss over seeds."""
    trainer = Trainer(training, "npgm", {"momentum": 0.9, "scale": "auto", **arguments}, seeds)
    while not trainer.done:
        trainer.step()
    losses: list[float] = trainer.history[-1][measure]
    return sum(losses) / len(losses)


def main() -> None:
    """Print a table for each task: rows of methods, columns of stepsizes."""
    seeds = list(range(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
    torch.set_num_threads(1)
    for title, (training, measure) in TASKS.items():
        print(f"{title}, {measure}")
        for reference, grid in METHODS.items():
            losses = {lr: trained(training, measure, seeds, reference=reference, lr=lr) for lr in grid}
            print(f"  {reference:15}", *(f"{lr:g}: {loss:.4f}" for lr, loss in losses.items()), sep="  ", flush=True)


if __name__ == "__main__":
    main()

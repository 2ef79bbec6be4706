"""Which lr suits `scale="auto"`: held-out losses of short trainings.

The MNIST perceptron is trained for an epoch, and a recurrent network on the characters of Shakespeare by a cosine
schedule, both with momentum 0.9 and the stepsizes of one grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from typer import Option

from npgm.lab.bench._shared import Seeds
from npgm.lab.experiments.training.images import ImageTraining
from npgm.lab.experiments.training.task import Training
from npgm.lab.experiments.training.text import TextTraining
from npgm.lab.experiments.training.trainer import Trainer
from npgm.lab.threads import with_threads

ENTRIES = [0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008]
"""Stepsizes of a φ of entries, whose step moves an entry by a number of the order of lr."""
NORMS = [0.03, 0.06, 0.12, 0.25, 0.5, 1.0]
"""Stepsizes of an isotropic φ, whose step is a vector of a length of the order of lr."""
METHODS = {"separable-log": ENTRIES, "separable-cosh": ENTRIES, "isotropic-log": NORMS}
MLP = {"name": "mlp", "widths": [784, 512, 256]}
RNN = {"name": "rnn", "embedding": 64, "hidden": 128}


def run(
    seeds: Seeds = 1,
    steps: Annotated[int, Option(min=1, help="Steps on Shakespeare.")] = 300,
    examples: Annotated[int | None, Option(help="The first so many images of MNIST; all by default.")] = None,
) -> None:
    """Print a table for each task: rows of methods, columns of stepsizes."""
    images = ImageTraining(MLP, "mnist", batch_size=256, epochs=1, examples=examples)
    text = TextTraining(RNN, "shakespeare", 8, length=64, steps=steps, every=steps, windows=64, schedule="cosine")
    tasks: list[tuple[str, Training, str]] = [
        ("MNIST, perceptron", images, "test_loss"),
        ("Shakespeare, recurrent", text, "validation_loss"),
    ]
    with with_threads(1):
        for title, training, measure in tasks:
            print(f"{title}, {measure}")
            for reference, grid in METHODS.items():
                losses = {lr: _trained(training, measure, range(seeds), reference=reference, lr=lr) for lr in grid}
                cells = (f"{lr:g}: {loss:.4f}" for lr, loss in losses.items())
                print(f"  {reference:15}", *cells, sep="  ", flush=True)


def _trained(training: Training, measure: str, seeds: Sequence[int], **arguments: Any) -> float:
    """Return the mean of a held-out loss over seeds."""
    trainer = Trainer(training, "npgm", {"momentum": 0.9, "scale": "auto", **arguments}, seeds)
    while not trainer.done:
        trainer.step()
    losses: list[float] = trainer.history[-1][measure]
    return sum(losses) / len(losses)

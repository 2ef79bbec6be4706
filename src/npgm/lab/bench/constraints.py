"""Constraints on the matrices of a small GPT, beside weight decay: held-out losses over a range of stepsizes.

`SpectralGD` with its defaults trains the GPT of the experiment char-gpt on the characters of Shakespeare, by a cosine
schedule. A constraint or a decay applies to the hidden matrices. The stepsize is that of all parameters.
"""

from __future__ import annotations

import statistics
from typing import Annotated, Any

from typer import Option

from npgm.lab.bench._shared import Seeds
from npgm.lab.experiments.training.text import TextTraining
from npgm.lab.experiments.training.trainer import Trainer
from npgm.lab.threads import with_threads
from npgm.proximal import Rows, SpectralBall, Sphere

GPT = {"name": "gpt", "layers": 2, "width": 64, "heads": 2, "length": 64}
STEPSIZES = (0.01, 0.02, 0.04, 0.08, 0.16)
VARIANTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "weight decay 0.1": {"weight_decay": 0.1, "decoupled_weight_decay": True},
    "weight decay 1": {"weight_decay": 1.0, "decoupled_weight_decay": True},
    "SpectralBall(1)": {"prox": SpectralBall(1.0)},
    "SpectralBall(3)": {"prox": SpectralBall(3.0)},
    "Rows(Sphere(1))": {"prox": Rows(Sphere(1.0))},
    "Rows(Sphere(0.3))": {"prox": Rows(Sphere(0.3))},
}
REST = {"method": "npgm", "reference": "separable-log", "scale": "auto", "momentum": 0.95, "momentum_order": "before"}


def run(seeds: Seeds = 3, steps: Annotated[int, Option(min=1, help="Steps of a training.")] = 200) -> None:
    """Print a line for each: validation losses at each stepsize, and the test losses of all seeds at the best one."""
    training = TextTraining(GPT, "shakespeare", 12, length=64, steps=steps, every=steps, windows=64, schedule="cosine")
    with with_threads(1):
        for name, options in VARIANTS.items():
            ends = {lr: _trained(training, seeds, lr=lr, **options) for lr in STEPSIZES}
            losses = {lr: statistics.fmean(end["validation_loss"]) for lr, end in ends.items()}
            best = min(losses, key=losses.__getitem__)
            cells = (f"{lr:g}: {loss:.3f}" for lr, loss in losses.items())
            tests = (f"{loss:.3f}" for loss in ends[best]["test_loss"])
            print(f"{name:18}", *cells, f" test losses at {best:g}:", *tests, sep="  ", flush=True)


def _trained(training: TextTraining, seeds: int, **options: Any) -> dict[str, list[float]]:
    """Return the held-out losses of each seed at the end."""
    arguments = {**options, "blocks": {"queries_keys_values": 3}, "rest": REST}
    trainer = Trainer(training, "spectral", arguments, range(seeds))
    while not trainer.done:
        trainer.step()
    end: dict[str, list[float]] = trainer.history[-1]
    return end

"""The skewness and the tail index of minibatch gradients along phase retrieval, or the training of a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import scipy.stats
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from typer import Option

import npgm
from npgm._common import validate
from npgm._common.array import Floats
from npgm.lab import experiments
from npgm.lab.experiments.spec import Resources
from npgm.lab.experiments.training.experiment import trainer_of
from npgm.lab.experiments.training.trainer import Trainer
from npgm.lab.terminal import console, guarded, new_table

SIZE, MEASUREMENTS, BATCH, STEPS = 1000, 300, 50, 2000
NETWORKS = ("rnn", "gpt")
METHOD = "NGDm, after"
"""That of the experiment by which the network is trained."""
AT = (0.0, 0.1, 0.5, 1.0)
"""Where along the run, as shares of its steps."""
ENTRIES, DIRECTIONS = 2000, 20


@dataclass(frozen=True)
class _Point:
    """A place along a run, with ∇f and a function that draws minibatch gradients, each of shape (n,)."""

    step: int
    loss: float
    gradient: Floats
    draw: Callable[[], Floats]


def run(
    problem: Annotated[str, Option(help=f"phase, or a network: {', '.join(NETWORKS)}.")] = "phase",
    samples: Annotated[int, Option(min=50, help="Minibatches at each point.")] = 500,
    seed: Annotated[int, Option(help="Of the problem, or of the network.")] = 0,
    preset: Annotated[str, Option(help="That of the experiment momentum-order-rnn or momentum-order-gpt.")] = "cpu",
) -> None:
    """Print, for the noise ξ = g - ∇f at points of a run: its size, its skewness, and tail indices.

    The runs are iHGDm with γ and λ of the paper and β = 0.9 on phase retrieval, and NGDm with momentum after the map on
    a network. ∇f of a network is the mean of as many other minibatches.

    The skewness E s³/(E s²)^{3/2} is 0 for a symmetric distribution. It is that of s = ⟨ξ, d⟩, with d the direction of
    ∇f, and the root mean square over 20 random d; and that of the entries of ξ, the median magnitude over up to 2000.
    By chance alone, that of N normal numbers has the root mean square √(6/N), and the median magnitude 0.67√(6/N).

    The tail index is Hill's estimate of the largest p with E‖ξ‖^p finite, from the largest twentieth of the norms: 2 or
    less means noise without a variance. That of an entry is the median over the entries; it is 6.0 for normal ones.
    """

    def work() -> Iterator[_Point]:
        if validate.choice("problem", problem, ("phase", *NETWORKS)) == "phase":
            return _phase_retrieval(seed)
        return _training(problem, preset, samples, seed)

    columns = [_column(point, samples) for point in guarded(work)]
    table = new_table("step", *(step for step, *_ in columns), wrapped=())
    for name, *numbers in zip(_NAMES, *(numbers for _, *numbers in columns), strict=True):
        table.add_row(name, *numbers)
    console.print(table)


_NAMES = (
    "f", "‖∇f‖", "√E‖ξ‖²", "skewness along ∇f", "across it", "of entries", "tail index of ‖ξ‖", "of entries"
)  # fmt: skip


def _column(point: _Point, samples: int) -> list[str]:
    """Return the step and the numbers of `_NAMES`."""
    rng, n = np.random.default_rng(1), point.gradient.size
    directions, which = rng.standard_normal((n, DIRECTIONS)), rng.permutation(n)[:ENTRIES]
    norms, along, across, entries = [], [], [], []
    for _ in range(samples):
        noise = point.draw() - point.gradient
        norms.append(np.linalg.norm(noise))
        along.append(noise @ point.gradient)
        across.append(noise @ directions)
        entries.append(noise[which])
    single = np.stack(entries)
    deviations = single.std(axis=0)  # near zero for the embedding of a character that never occurs
    single = single[:, deviations > 1e-3 * np.median(deviations)]
    skewness = (scipy.stats.skew(along), _rms(scipy.stats.skew(across)), np.median(np.abs(scipy.stats.skew(single))))
    tails = (_tail_index(np.array(norms)), np.median(_tail_index(np.abs(single - single.mean(axis=0)))))
    sizes = (point.loss, np.linalg.norm(point.gradient), _rms(np.array(norms)))
    return [str(point.step), *(f"{x:.3g}" for x in sizes), *(f"{x:.2f}" for x in (*skewness, *tails))]


def _phase_retrieval(seed: int) -> Iterator[_Point]:
    problem = npgm.problems.PhaseRetrieval.random(SIZE, MEASUREMENTS, seed, variance=0.25)
    start = np.random.default_rng([seed, 2]).normal(5.0, 0.5, SIZE)
    points = [start]
    npgm.minimize(
        problem.minibatches(BATCH, seed), start, lr=1 / 45, momentum=0.9, tol=0.0, maxiter=STEPS,
        reference=npgm.reference("isotropic-cosh", scale=1000.0), callback=points.append,
    )  # fmt: skip
    for k in (round(share * STEPS) for share in AT):
        x, sample = points[k], problem.minibatches(BATCH, seed + 1)
        value, gradient = problem(x)
        yield _Point(k, value - problem.optimum, gradient, partial(_gradient, sample, x))


def _gradient(sample: Callable[[Floats], tuple[Any, Floats]], x: Floats) -> Floats:
    return sample(x)[1]


def _training(network: str, preset: str, samples: int, seed: int) -> Iterator[_Point]:
    experiment: Any = experiments.load(f"momentum-order-{network}")
    (method,) = (m for m in experiment.methods if m.label == METHOD)
    chosen, (setting, *_) = experiment.preset(preset), experiment.grid()
    trained = experiment.run(chosen, setting, method, seed)
    trainer = trainer_of([trained], Resources(torch.get_num_threads(), "cpu", Path()))
    batches = _batches(trainer, torch.Generator().manual_seed(seed + 1))
    for k in sorted({round(share * trainer.total) for share in AT}):
        while trainer.steps < k:
            trainer.step()
        loss, mean = _minibatch(trainer, *next(batches))
        for drawn in range(2, samples + 1):
            value, gradient = _minibatch(trainer, *next(batches))
            loss, mean = loss + (value - loss) / drawn, mean + (gradient - mean) / drawn
        yield _Point(k, loss, mean, lambda: _minibatch(trainer, *next(batches))[1])


def _batches(trainer: Trainer, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Draw minibatches that are not those of the training."""
    size = trainer.training.batch_size
    while True:
        order = trainer.examples.order([generator])
        for start in range(0, trainer.examples.number - size + 1, size):
            yield trainer.examples.batch(order, slice(start, start + size))


def _minibatch(trainer: Trainer, inputs: Tensor, targets: Tensor) -> tuple[float, Floats]:
    """Return the loss and its gradient as one vector."""
    loss = cross_entropy(trainer.ensemble(inputs).flatten(0, -2), targets.flatten())
    trainer.ensemble.backward(loss[None])
    gradients = [parameter.grad for parameter in trainer.ensemble.members[0]]
    flat: Floats = torch.cat([g.flatten() for g in gradients if g is not None]).double().numpy()
    return loss.item(), flat


def _rms(values: Floats) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _tail_index(magnitudes: Floats) -> Floats:
    """Return Hill's estimate from the largest twentieth, along the first axis."""
    largest = np.sort(magnitudes, axis=0)[-(len(magnitudes) // 20 + 1) :]
    with np.errstate(divide="ignore"):
        index: Floats = 1.0 / np.mean(np.log(largest[1:] / largest[0]), axis=0)
    return index

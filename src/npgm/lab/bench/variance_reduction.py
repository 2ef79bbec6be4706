"""STORM, momentum with variance reduction, beside plain momentum: where each is with its best γ and β."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
from typer import Option

import npgm
from npgm._common import validate
from npgm._common.array import Floats
from npgm.lab.terminal import console, new_table
from npgm.theory.certify import simulate

RATES = (1.0, 0.25, 0.0625, 0.015625, 0.00390625)
BETAS = (0.9, 0.99)


class Case(NamedTuple):
    """A problem, with a stochastic gradient of it, and the largest γ that is tried."""

    function: Callable[[Floats], Any]
    sample: Callable[[np.random.Generator, Floats], Floats]
    start: Floats
    minimum: float
    scale: float
    lr: float


def cases() -> dict[str, Case]:
    """Return the problems: a line whose gradients have noise added, and two whose noise depends on the point."""

    def line(noise: Callable[[np.random.Generator], float]) -> Case:
        return Case(lambda x: (0.5 * float(x @ x), x), lambda rng, x: x + noise(rng), np.array([2.0]), 0.0, 0.1, 0.01)

    pair = npgm.problems.multivariate.TwoQuadratics()
    retrieval = npgm.problems.PhaseRetrieval.random(200, 60, 0, variance=0.25)

    def minibatch(rng: np.random.Generator, x: Floats) -> Floats:
        batch = rng.choice(60, 10, replace=False)
        return npgm.problems.PhaseRetrieval(retrieval.A[batch], retrieval.y[batch])(x)[1]

    start = np.random.default_rng([0, 2]).normal(5.0, 0.5, 200)
    return {
        "line-normal": line(lambda rng: 3.0 * rng.standard_normal()),
        "line-skewed": line(lambda rng: -1.0 if rng.random() < 0.9 else 9.0),
        "line-heavy": line(lambda rng: 3.0 * rng.standard_t(1.5)),
        "two-quadratics": Case(pair, pair.sample, pair.start, pair.minimum(1), 1.0, 0.4),
        "phase-retrieval": Case(retrieval, minibatch, start, retrieval.optimum, 1000.0, 0.32),
    }


def run(
    steps: Annotated[int, Option(min=10, help="Steps, with one gradient each; STORM has two.")] = 300,
    seeds: Annotated[int, Option(min=1, help="How many runs a mean is of.")] = 2,
    reference: Annotated[str, Option(help="φ, before whose map the momentum is.")] = "isotropic-cosh",
    problems: Annotated[list[str] | None, Option(help="A problem; by default all; repeatable.")] = None,
) -> None:
    """Print the mean of f - inf f over the last tenth of the runs and over the seeds, each with the best γ and β."""
    table = new_table("problem", "momentum", "f - inf f", "γ", "β", wrapped=("problem",))
    known = cases()
    for name in problems or known:
        case = known[validate.choice("problems", name, known)]
        phi = npgm.reference(reference, scale=case.scale)
        kinds = {"plain": (steps, False), "STORM, as many gradients": (steps // 2, True), "STORM": (steps, True)}
        for kind, (size, storm) in kinds.items():
            ends = [_end(case, phi, size, seeds, *numbers, storm) for numbers in itertools.product(RATES, BETAS)]
            table.add_row(name, kind, *(f"{number:.3g}" for number in min(ends)))
    console.print(table)


def _end(
    case: Case, phi: npgm.Reference, steps: int, seeds: int, rate: float, beta: float, storm: bool
) -> tuple[float, float, float]:
    """Return the mean of f - inf f over the last tenth, with γ and β."""
    lr = rate * case.lr
    with np.errstate(all="ignore"):
        history = simulate(
            case.function, case.sample, phi, case.start, lr=lr, momentum=beta, iterations=steps,
            seeds=range(seeds), variance_reduction=storm,
        )  # fmt: skip
    end = float(np.mean(history["fun"][-max(steps // 10, 1) :])) - case.minimum
    return (end if np.isfinite(end) else np.inf), lr, beta

"""The skewness and the tail index of minibatch gradients along a run of phase retrieval."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import scipy.stats
from typer import Option

import npgm
from npgm._common.array import Floats
from npgm.lab.terminal import console, new_table

SIZE, MEASUREMENTS, BATCH = 1000, 300, 50
AT = (0.0, 0.01, 0.1, 1.0)
"""Where along the run, as shares of its steps."""


def run(
    steps: Annotated[int, Option(min=1, help="Steps of iHGDm, with γ and λ of the paper and β = 0.9.")] = 2000,
    samples: Annotated[int, Option(min=50, help="Minibatches at each point.")] = 1000,
    seed: Annotated[int, Option(help="The problem.")] = 0,
) -> None:
    """Print, for the noise ξ = g - ∇f at points of a run: its size, skewness along ∇f and across it, and tail index.

    The skewness is E s³/(E s²)^{3/2}, 0 for a symmetric distribution, of s = ⟨ξ, d⟩: with d the direction of ∇f, and
    the root mean square over 20 random d. The tail index is Hill's estimate of the largest p with E‖ξ‖^p finite, from
    the largest twentieth of the norms: 2 or less means noise without a variance.
    """
    problem = npgm.problems.PhaseRetrieval.random(SIZE, MEASUREMENTS, seed, variance=0.25)
    start = np.random.default_rng([seed, 2]).normal(5.0, 0.5, SIZE)
    points = [start]
    npgm.minimize(
        problem.minibatches(BATCH, seed), start, lr=1 / 45, momentum=0.9, tol=0.0, maxiter=steps,
        reference=npgm.reference("isotropic-cosh", scale=1000.0), callback=points.append,
    )  # fmt: skip
    table = new_table("step", "f - min f", "‖∇f‖", "√E‖ξ‖²", "skewness along ∇f", "across", "tail index", wrapped=())
    directions = np.random.default_rng(1).standard_normal((20, SIZE))
    for k in (round(share * steps) for share in AT):
        value, full = problem(points[k])
        sample = problem.minibatches(BATCH, seed + 1)
        noise = np.stack([sample(points[k])[1] for _ in range(samples)]) - full
        norms = np.linalg.norm(noise, axis=1)
        across = np.sqrt(np.mean(scipy.stats.skew(noise @ directions.T, axis=0) ** 2))
        numbers = (value - problem.optimum, np.linalg.norm(full), np.sqrt(np.mean(norms**2)))
        row = (scipy.stats.skew(noise @ full), across, _tail_index(norms))
        table.add_row(str(k), *(f"{x:.3g}" for x in numbers), *(f"{x:.2f}" for x in row))
    console.print(table)


def _tail_index(norms: Floats) -> float:
    """Return Hill's estimate from the largest twentieth."""
    largest = np.sort(norms)[-(len(norms) // 20 + 1) :]
    return float(1.0 / np.mean(np.log(largest[1:] / largest[0])))

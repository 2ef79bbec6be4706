"""How far the stepsizes that theorems allow, with momentum after the map, are from the largest ones that work."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from typer import Option

import npgm
from npgm._common.array import Floats
from npgm.lab.experiments.solving import instances
from npgm.lab.terminal import console, new_table
from npgm.references import Reference
from npgm.solvers.stepsizes.backtracking import TAU
from npgm.theory import anisotropic_smoothness, oracles, preconditioned_lipschitz

SOLVED = 1e-6
"""A run works if f - inf f ends at most at this share of its first value."""
DOUBLINGS = 16


def run(
    momentum: Annotated[float, Option(help="β.")] = 0.9,
    maxiter: Annotated[int, Option(min=1, help="Iterations of a run.")] = 2000,
    points: Annotated[int, Option(min=1, help="Where the constants of matrix factorisation are estimated.")] = 8,
    rank: Annotated[int, Option(min=1, help="Of matrix factorisation.")] = 10,
) -> None:
    """Print the largest γ that works, and its ratios to those of Theorems 2.7 and B and of backtracking, with cosh.

    γ of Theorem 2.7 is (1-β)²/L with the larger of L and L_p, and that of Theorem B the lesser of 1/L and
    τ(1-β)/(βL_p) with τ² = 1/3. Backtracking tests the latter's two conditions along the run, and its γ is that of the
    last step before the run has worked. The largest that works is one of the doubles of that of Theorem B. φ is
    isotropic. The constants of matrix factorisation on MovieLens, with λ = 100, are the largest of estimates along the
    run of backtracking.
    """
    table = new_table("problem", "γ that works", "/ 2.7", "/ B", "/ backtracking", wrapped=())
    phi = npgm.reference("isotropic-cosh")
    cls: Any
    for key, cls in npgm.problems.registry.items():
        instance = cls(reference=phi) if "reference" in getattr(cls, "__dataclass_fields__", ()) else cls()
        try:
            constants = instance.constants(phi, instance.start.size)
        except ValueError:  # they are not known
            continue
        known = constants.smoothness, constants.lipschitz or constants.smoothness
        minimum = instance.minimum(instance.start.size)
        _add(table, key, instance, phi, instance.start, minimum, known, momentum, maxiter)
    _add(table, *_factorisation(rank, momentum, maxiter, points), momentum, maxiter)
    console.print(table)


def _add(
    table: Any,
    name: str,
    function: Any,
    phi: Reference,
    start: Floats,
    minimum: float,
    constants: tuple[float, float],
    momentum: float,
    maxiter: int,
) -> None:
    L, lipschitz = constants
    paper = (1.0 - momentum) ** 2 / max(L, lipschitz)
    ours = min(1.0 / L, TAU * (1.0 - momentum) / (momentum * lipschitz))
    first = float(function(start)[0]) - minimum

    def works(lr: float) -> bool:
        with np.errstate(all="ignore"):
            end = npgm.minimize(function, start, lr=lr, momentum=momentum, reference=phi, maxiter=maxiter, tol=0.0).fun
        return bool(end - minimum <= SOLVED * first)

    history = npgm.minimize(
        function, start, lr="backtracking", momentum=momentum, reference=phi, maxiter=maxiter, tol=0.0, history=True
    ).history
    unsolved = (history["fun"] - minimum > SOLVED * first) & np.isfinite(history["lr"])  # rounding fails tests later
    searched = float(history["lr"][unsolved][-1])
    working = [lr for lr in (ours * 2.0**k for k in range(DOUBLINGS)) if works(lr)]
    if working:
        best = max(working)
        table.add_row(name, f"{best:.3g}", *(f"{best / lr:.0f}" for lr in (paper, ours, searched)))


def _factorisation(
    rank: int, momentum: float, maxiter: int, points: int
) -> tuple[str, Any, Reference, Floats, float, tuple[float, float]]:
    instance: Any = instances.registry["movielens-factorization"](rank, threads=1)
    problem, phi = instance.problem, npgm.reference("isotropic-cosh", scale=100.0)
    function, hvp = instances.on_vectors(problem)
    start, path = problem.start(0).ravel(), list[Floats]()
    npgm.minimize(
        function, start, lr="backtracking", momentum=momentum, reference=phi, maxiter=maxiter, tol=0.0,
        callback=path.append,
    )  # fmt: skip
    oracle, seen = oracles.from_numpy(function, hvp), np.stack(path[:: max(len(path) // points, 1)])
    options: dict[str, Any] = {"max_products": 32}
    L = anisotropic_smoothness(oracle, phi, seen, **options).value
    lipschitz = preconditioned_lipschitz(oracle, phi, seen, **options).value
    return f"factorisation, rank {rank}", function, phi, start, problem.optimum, (L, lipschitz)

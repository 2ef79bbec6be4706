"""Evaluations of f and ∇f that `npgm.minimize(..., prox=...)` takes, beside the proximal gradient method.

python benchmarks/proximal.py
"""

from __future__ import annotations

import argparse
from statistics import median
from typing import Any

from npgm import minimize
from npgm.lab.data.movielens import MovieLens100K, rating_matrix
from npgm.problems import CompositeProblem, NonnegativeFactorization, SparseLogisticRegression

METHODS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "defaults, quadratic φ": {"reference": "separable-quad"},
    "backtracking": {"lr": "backtracking"},
    "backtracking, quadratic φ": {"lr": "backtracking", "reference": "separable-quad"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="of the data, or of the start (default: 3)")
    parser.add_argument("--limit", type=int, default=10_000, help="iterations (default: 10000)")
    arguments = parser.parse_args()
    ratings, seeds = rating_matrix(MovieLens100K().load()), range(arguments.seeds)
    problems: dict[str, tuple[list[CompositeProblem], float]] = {
        "sparse logistic regression, ‖v‖ ≤ 1e-6": ([SparseLogisticRegression(seed=seed) for seed in seeds], 1e-6),
        "MovieLens 100K, rank 10, ‖v‖ ≤ 1e-3": ([NonnegativeFactorization(ratings, 10, seed) for seed in seeds], 1e-3),
    }
    for name, (instances, tol) in problems.items():
        print(name)
        for label, options in METHODS.items():
            runs = [
                minimize(each, each.start, prox=each.prox, tol=tol, maxiter=arguments.limit, **options)
                for each in instances
            ]
            solved, counts = sum(run.success for run in runs), [run.nfev for run in runs]
            values = ", ".join(f"{run.fun:.9g}" for run in runs)
            print(f"  {label:26} {solved}/{len(runs)} solved, evaluations {median(counts):g} {counts}, f + g: {values}")


if __name__ == "__main__":
    main()

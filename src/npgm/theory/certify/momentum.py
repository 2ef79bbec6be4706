"""The theorems on momentum before the preconditioner, as they are tried on a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from npgm.references import Isotropic
from npgm.solvers import History
from npgm.theory import bounds
from npgm.theory.bounds import AssumptionError, Bound
from npgm.theory.certify.report import Trials


def trials_before_the_map(
    history: History,
    lipschitz: float,
    *,
    gap: float,
    iterations: int,
    variance: float = 0.0,
) -> Trials:
    """Return Theorems A and A' for a run with momentum `before_the_map`, of an f with an ``lipschitz`` gradient."""

    def options() -> dict[str, Any]:
        method: Any = history.method
        norms = np.asarray(history["grad_norm"])
        return {
            "reference": method.reference,
            "lipschitz": lipschitz,
            "lr": method.lr,
            "momentum": method.momentum,
            "gap": gap,
            "first": float(np.max(norms[0])),
            "iterations": iterations,
        }

    def bounded() -> Bound:
        name = "Theorem A'"
        values = options()
        phi = values["reference"]
        ratio = 1.0
        if phi.radius < np.inf and not isinstance(phi, Isotropic):
            if history.size is None:
                raise AssumptionError(name, "a known number of variables", "the history has no size")
            ratio = phi.euclidean_radius((history.size,)) / phi.radius
        # the constants of the Euclidean norm are at most so many times larger in the dual norm
        values |= {"lipschitz": ratio**2 * lipschitz, "first": ratio * values["first"]}
        return bounds.momentum_before_bounded(**values, ratio=ratio, deviation=variance**0.5)

    return {
        "Theorem A": lambda: bounds.momentum_before(**options(), variance=variance),
        "Theorem A'": bounded,
    }

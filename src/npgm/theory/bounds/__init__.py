"""The theorems as functions. Each checks the assumptions of its theorem and returns the bound.

Throughout, u^k = ∇φ*(∇f(x^k)), S_k = φ(u^k) is the stationarity measure, D0 = f(x^0) - inf f is ``gap``, γ is ``lr``, β
is ``momentum``, L is ``smoothness``, and μ is ``pl``. Numbers are the paper's; ``docs/theory.md`` derives what it does
not contain.

    >>> import npgm
    >>> phi = npgm.reference("isotropic-cosh")
    >>> bound = npgm.theory.bounds.theorem_2_2(phi, smoothness=2.0, lr=0.5, momentum=0.25, gap=10.0, iterations=100)
    >>> bound.provenance, round(float(bound.values[-1]), 4)
    ('proved', 0.396)
    >>> npgm.theory.bounds.theorem_2_2(phi, smoothness=2.0, lr=0.5, momentum=0.5, gap=10.0, iterations=100)
    Traceback (most recent call last):
    ...
    npgm.theory.bounds.assume.AssumptionError: Theorem 2.2 does not apply: it assumes β < 1/2, but β = 0.5
"""

from npgm.theory.bounds.assume import AssumptionError
from npgm.theory.bounds.bound import Bound, Provenance, Quantity
from npgm.theory.bounds.convex import convex_conjugate, convex_isotropic
from npgm.theory.bounds.deterministic import (
    base_method,
    clipping,
    nonmonotone_descent,
    proposition_2_6,
    theorem_2_2,
    theorem_2_2_variable,
    theorem_2_4,
    theorem_2_7,
)
from npgm.theory.bounds.momentum import (
    momentum_after,
    momentum_after_variable,
    momentum_before,
    momentum_before_bounded,
)
from npgm.theory.bounds.stationarity import example_e_2, gradient_norm, proposition_e_1
from npgm.theory.bounds.stochastic import (
    proposition_3_2,
    proposition_3_2_provenance,
    theorem_3_1,
    theorem_3_4,
    theorem_3_5,
)

__all__ = [
    "AssumptionError",
    "Bound",
    "Provenance",
    "Quantity",
    "base_method",
    "clipping",
    "convex_conjugate",
    "convex_isotropic",
    "example_e_2",
    "gradient_norm",
    "momentum_after",
    "momentum_after_variable",
    "momentum_before",
    "momentum_before_bounded",
    "nonmonotone_descent",
    "proposition_2_6",
    "proposition_3_2",
    "proposition_3_2_provenance",
    "proposition_e_1",
    "theorem_2_2",
    "theorem_2_2_variable",
    "theorem_2_4",
    "theorem_2_7",
    "theorem_3_1",
    "theorem_3_4",
    "theorem_3_5",
]

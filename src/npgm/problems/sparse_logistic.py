"""Logistic regression with an ℓ1 penalty."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from npgm._common import validate
from npgm._common.array import Floats
from npgm.problems.composite import CompositeProblem, register
from npgm.proximal import L1


@register
class SparseLogisticRegression(CompositeProblem):
    """f(x) = (1/m) Σ ln(1 + exp(-b_i⟨a_i, x⟩)) and g(x) = τ‖x‖₁, with columns of A whose scales differ.

    The rows a_i are normal, with each column times a power of 10. The exponents are evenly spaced over ``decades``, as
    for features in units that do not match, which makes f badly conditioned. The labels follow the logistic model of a
    vector with a fifth of its entries nonzero.

    Args:
        samples: m.
        features: n.
        decades: log₁₀ of the quotient of the largest and the smallest scale.
        weight: τ, as a share of max |∇f(0)|, the least τ for which the solution is zero.
        seed: of the random numbers.
    """

    key = "sparse-logistic"
    formula = "(1/m) Σ ln(1 + exp(-b⟨a, x⟩)) + τ‖x‖₁"

    def __init__(
        self, samples: int = 200, features: int = 50, decades: float = 2.0, weight: float = 1e-2, seed: int = 0
    ) -> None:
        m, n = validate.count("samples", samples, least=2), validate.count("features", features, least=1)
        rng = np.random.default_rng(seed)
        scales = 10.0 ** rng.permutation(np.linspace(-0.5, 0.5, n) * validate.nonnegative("decades", decades))
        truth = np.where(rng.permutation(n) < max(n // 5, 1), rng.standard_normal(n), 0.0)
        rows = rng.standard_normal((m, n))
        self.labels = np.where(rng.random(m) < expit(2.0 * (rows @ truth)), 1.0, -1.0)
        self.A = rows * scales
        largest = float(np.abs(self(np.zeros(n))[1]).max())
        self.weight = validate.fraction("weight", weight) * largest

    def __call__(self, x: Floats) -> tuple[Any, Floats]:
        """Return f, a float or of shape (runs,), and ∇f, of the shape of x."""
        margins = self.labels * (x @ self.A.T)
        value = np.mean(np.logaddexp(0.0, -margins), axis=-1)
        grad: Floats = (expit(-margins) * (-self.labels / self.labels.size)) @ self.A
        return value, grad

    @property
    def prox(self) -> L1:
        return L1(self.weight)

    @property
    def start(self) -> Floats:
        return np.zeros(self.A.shape[1])

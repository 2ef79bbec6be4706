"""Nonnegative matrix factorisation."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from npgm._common import validate
from npgm._common.array import Floats
from npgm.problems.composite import CompositeProblem, register
from npgm.problems.matrix_factorization import Matrix, MatrixFactorization
from npgm.proximal import Nonnegative


@register
class NonnegativeFactorization(CompositeProblem):
    """f(U, V) = ½‖U Vᵀ - A‖² in the Frobenius norm over X = [U; V], with U and V nonnegative.

    A point is an array of shape (m + n, r), and a sparse A stays sparse, as for `MatrixFactorization`. The problem is
    not convex, and no minimum is known.

    Args:
        A: the matrix, of shape (m, n), of nonnegative entries; by default a sparse random one of shape (40, 30).
        rank: r, from 1 to min(m, n).
        seed: of the start.

    Raises:
        TypeError, ValueError: if A is not a real finite matrix, has a negative entry, or the rank is out of range.
    """

    key = "nonnegative-factorization"
    formula = "½‖U Vᵀ - A‖², U ≥ 0, V ≥ 0"

    def __init__(self, A: Matrix | None = None, rank: int = 5, seed: int = 0) -> None:
        if A is None:
            A = scipy.sparse.random_array((40, 30), density=0.3, rng=np.random.default_rng(0))
        self.smooth = MatrixFactorization(A, rank)
        if self.smooth.A.min() < 0.0:
            raise ValueError("A must be nonnegative, but has a negative entry")
        self.seed = validate.count("seed", seed)

    def __call__(self, x: Floats) -> tuple[Any, Floats]:
        """Return f, a float or of shape (runs,), and ∇f, of the shape of x."""
        return self.smooth(x)

    @property
    def prox(self) -> Nonnegative:
        return Nonnegative()

    @property
    def start(self) -> Floats:
        """Magnitudes of normal numbers, of such a size that U Vᵀ has the mean of A."""
        X = np.abs(np.random.default_rng(self.seed).standard_normal(self.smooth.shape))
        mean = float(self.smooth.A.mean())
        product = self.smooth.rank * 2.0 / np.pi
        scaled: Floats = X * np.sqrt(mean / product if mean > 0.0 else 1.0)
        return scaled

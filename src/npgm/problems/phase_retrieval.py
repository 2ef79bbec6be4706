"""Phase retrieval, Appendix F.2.1 of the paper."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npgm._common import validate
from npgm._common.array import Floats


class PhaseRetrieval:
    """f(x) = 1/(2m) Σ_i (y_i - (a_iᵀx)²)² over x in ℝⁿ, with a_i the rows of A.

    Args:
        A: the measurement vectors, of shape (m, n).
        y: the measurements, of shape (m,).

    Raises:
        ValueError: if A or y is not finite or the shapes do not fit.

    Example:
        >>> problem = PhaseRetrieval.random(n=20, m=6, seed=0)
        >>> f, grad = problem(np.zeros(20))
        >>> grad.shape, problem.optimum <= f
        ((20,), True)
    """

    def __init__(self, A: Floats, y: Floats) -> None:
        self.A, self.y = np.asarray(A, dtype=np.float64), np.asarray(y, dtype=np.float64)
        if self.A.ndim != 2 or 0 in self.A.shape:
            raise ValueError(f"A must be a nonempty matrix, not an array of shape {self.A.shape}")
        if self.y.shape != self.A.shape[:1]:
            raise ValueError(f"y must have shape {self.A.shape[:1]}, one measurement a row of A, not {self.y.shape}")
        if not (np.isfinite(self.A).all() and np.isfinite(self.y).all()):
            raise ValueError("A and y must be finite, but contain NaN or infinity")

    @classmethod
    def random(cls, n: int, m: int, seed: int, *, variance: float = 0.5, noise: float = 4.0) -> PhaseRetrieval:
        """Return a problem as in the paper: a_i and the ground truth z normal, y_i = (a_iᵀz)² + ε_i.

        Args:
            n: the number of unknowns.
            m: the number of measurements.
            seed: the problem drawn.
            variance: that of the entries of a_i and z.
            noise: the standard deviation of ε_i.
        """
        rng = np.random.default_rng([seed, 0])
        spread = np.sqrt(validate.positive("variance", variance))
        A = rng.normal(0.0, spread, (validate.count("m", m, least=1), validate.count("n", n, least=1)))
        z = rng.normal(0.0, spread, n)
        return cls(A, (A @ z) ** 2 + rng.normal(0.0, validate.nonnegative("noise", noise), m))

    def __call__(self, x: Floats) -> tuple[float, Floats]:
        """Return f and ∇f at x of shape (n,)."""
        Ax = self.A @ x
        residual = Ax**2 - self.y
        return 0.5 * float(np.mean(residual**2)), self.A.T @ (2.0 / len(self.y) * residual * Ax)

    def hvp(self, x: Floats, d: Floats) -> Floats:
        """Return ∇²f(x) d."""
        Ax = self.A @ x
        product: Floats = self.A.T @ (2.0 / len(self.y) * (3.0 * Ax**2 - self.y) * (self.A @ d))
        return product

    def minibatches(self, size: int, seed: int) -> Callable[[Floats], tuple[float, Floats]]:
        """Return a function that gives f and the gradient of a new minibatch at each call.

        Args:
            size: the measurements in a batch, drawn without replacement.
            seed: the sequence of batches.
        """
        if validate.count("size", size, least=1) > len(self.y):
            raise ValueError(f"size must be at most m = {len(self.y)}, not {size}")
        rng = np.random.default_rng([seed, 1])

        def stochastic(x: Floats) -> tuple[float, Floats]:
            Ax = self.A @ x
            residual = Ax**2 - self.y
            batch = rng.choice(len(self.y), size, replace=False)
            return 0.5 * float(np.mean(residual**2)), self.A[batch].T @ (2.0 / size * residual[batch] * Ax[batch])

        return stochastic

    @property
    def optimum(self) -> float:
        """A lower bound of f, and min f if A has rank m, when only negative measurements cannot be matched."""
        return 0.5 * float(np.mean(np.minimum(self.y, 0.0) ** 2))

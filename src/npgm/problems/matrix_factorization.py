"""Low-rank matrix factorisation, Section 4.2 of the paper."""

from __future__ import annotations

import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
import scipy.linalg
import scipy.sparse

from npgm._common import validate
from npgm._common.array import Floats

Matrix: TypeAlias = Any
"""A SciPy sparse array or matrix, or a two-dimensional NumPy array."""


class MatrixFactorization:
    """f(U, V) = ½‖U Vᵀ - A‖² in the Frobenius norm, over X = [U; V] with U of shape (m, r) and V of shape (n, r).

    A point is an array of shape (m + n, r), or (runs, m + n, r) for several runs at once.

    A sparse A of shape (m, n) stays sparse: f = ½(⟨UᵀU, VᵀV⟩ - 2⟨AV, U⟩ + ‖A‖²) and
    ∇f = [U(VᵀV) - AV; V(UᵀU) - AᵀU], so that no m×n matrix is formed. A dense A is treated by the definition.

    Args:
        A: the matrix, of shape (m, n), with unobserved entries counted as zeros.
        rank: r, from 1 to min(m, n).
        threads: with 2, a sparse A does its two products side by side.

    Raises:
        TypeError, ValueError: if A is not a real finite matrix or the rank is out of range.

    Example:
        >>> import scipy.sparse
        >>> problem = MatrixFactorization(scipy.sparse.csr_array([[2.0, 0.0], [0.0, 1.0]]), rank=1)
        >>> f, grad = problem(problem.start(seed=0))
        >>> grad.shape, problem.optimum
        ((4, 1), 0.5)
    """

    def __init__(self, A: Matrix, rank: int, threads: int = 1) -> None:
        self.sparse = scipy.sparse.issparse(A)
        if self.sparse:
            # by columns for both: SciPy's product with a narrow dense matrix is a third faster than by rows
            self.A: Matrix = scipy.sparse.csc_array(A, dtype=np.float64)
            self.At: Matrix = scipy.sparse.csc_array(self.A.T)
            entries = self.A.data
        else:
            self.A = np.asarray(A, dtype=np.float64)
            self.At = self.A.T
            entries = self.A
        if self.A.ndim != 2 or 0 in self.A.shape:
            raise ValueError(f"A must be a nonempty matrix, not an array of shape {self.A.shape}")
        if not np.isfinite(entries).all():
            raise ValueError("A must be finite, but contains NaN or infinity")
        self.rank = validate.count("rank", rank, least=1)
        if rank > min(self.A.shape):
            raise ValueError(f"rank must be at most min{self.A.shape} = {min(self.A.shape)}, not {rank}")
        self.threads = validate.count("threads", threads, least=1)
        self.squared_norm = float(np.sum(entries**2))

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of one point."""
        return (sum(self.A.shape), self.rank)

    def start(self, seed: int) -> Floats:
        """Return a standard normal point, drawn by the legacy generator as in Malitsky and Mishchenko's notebook."""
        return np.random.RandomState(seed).standard_normal(self.shape)

    def __call__(self, X: Floats) -> tuple[Any, Floats]:
        """Return f, a float or of shape (runs,), and ∇f, of the shape of X."""
        U, V = self._split(X)
        grad = np.empty_like(X)
        grad_U, grad_V = self._split(grad)
        if self.sparse:
            transposed = _beside(os.getpid()).submit(_times, self.At, U) if self.threads > 1 else None
            gram_U, gram_V = _gram(U), _gram(V)
            AV = _times(self.A, V)
            value = 0.5 * (_dot(gram_U, gram_V) - 2.0 * _dot(AV, U) + self.squared_norm)
            np.matmul(U, gram_V, out=grad_U)
            grad_U -= AV
            np.matmul(V, gram_U, out=grad_V)
            grad_V -= transposed.result() if transposed else _times(self.At, U)
        else:
            residual = U @ V.swapaxes(-1, -2)
            residual -= self.A
            value = 0.5 * _dot(residual, residual)
            np.matmul(residual, V, out=grad_U)
            np.matmul(residual.swapaxes(-1, -2), U, out=grad_V)
        return value, grad

    def hvp(self, X: Floats, D: Floats) -> Floats:
        """Return ∇²f(X) D, of the shape of X and D."""
        U, V = self._split(X)
        dU, dV = self._split(D)
        out = np.empty_like(X)
        out_U, out_V = self._split(out)
        cross_V, cross_U = V.swapaxes(-1, -2) @ dV, U.swapaxes(-1, -2) @ dU
        out_U[...] = dU @ _gram(V) + U @ (cross_V + cross_V.swapaxes(-1, -2)) - _times(self.A, dV)
        out_V[...] = dV @ _gram(U) + V @ (cross_U + cross_U.swapaxes(-1, -2)) - _times(self.At, dU)
        return out

    @functools.cached_property
    def singular_values(self) -> Floats:
        """The singular values of A, the largest first."""
        A = self.A.toarray() if self.sparse else self.A
        values: Floats = scipy.linalg.svdvals(A)
        return values

    @property
    def optimum(self) -> float:
        """min f = ½ Σ_{i>r} σ_i², by the Eckart–Young theorem; no other local minimum exists."""
        return 0.5 * float(np.sum(self.singular_values[self.rank :] ** 2))

    def _split(self, X: Floats) -> tuple[Floats, Floats]:
        m = self.A.shape[0]
        return X[..., :m, :], X[..., m:, :]


def _gram(U: Floats) -> Floats:
    gram: Floats = U.swapaxes(-1, -2) @ U
    return gram


def _dot(x: Floats, y: Floats) -> Any:
    value = np.einsum("...ij,...ij->...", x, y)
    return float(value) if value.ndim == 0 else value


def _times(A: Matrix, V: Floats) -> Floats:
    """Return A V; for runs side by side in one product, which reads a sparse A once."""
    if V.ndim == 2 or not scipy.sparse.issparse(A):
        product: Floats = A @ V
        return product
    runs, n, r = V.shape
    side_by_side = A @ V.transpose(1, 0, 2).reshape(n, runs * r)
    return np.asarray(side_by_side).reshape(-1, runs, r).transpose(1, 0, 2)


@functools.cache
def _beside(process: int) -> ThreadPoolExecutor:
    """Return the second thread of this process.

    There is one for all problems: an interruption while a thread starts keeps Python from ending, so few may start.
    """
    return ThreadPoolExecutor(1)

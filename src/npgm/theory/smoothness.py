"""Curvature of an objective at a point, from Hessian-vector products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse.linalg

from npgm._array import Floats


def sharpness(
    hvp: Callable[[Floats, Floats], Floats], x: Floats, *, start: Floats | None = None, rtol: float = 1e-3
) -> tuple[float, Floats]:
    """Return λ_max(∇²f(x)), the largest signed eigenvalue of the Hessian, and its eigenvector, by Lanczos' method.

    Args:
        hvp: ``hvp(x, d)`` returns ∇²f(x) d.
        x: the point, of any shape.
        start: an estimate of the eigenvector, of the shape of ``x``, such as the result at a nearby point.
        rtol: the relative accuracy of the eigenvalue; the value found is a lower bound up to it.
    """
    operator = scipy.sparse.linalg.LinearOperator(
        (x.size, x.size), matvec=lambda d: hvp(x, d.reshape(x.shape)).ravel(), dtype=x.dtype
    )
    v0: Floats = np.random.default_rng(0).standard_normal(x.size) if start is None else start.ravel()
    values, vectors = scipy.sparse.linalg.eigsh(operator, k=1, which="LA", v0=v0, tol=rtol)
    return float(values[0]), vectors[:, 0].reshape(x.shape)

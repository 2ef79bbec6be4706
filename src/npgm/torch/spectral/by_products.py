"""Functions of singular values by matrix products alone, with a number of them that is known before.

The polar factor of [Z, λI] is [(λ² + ZZᵀ)^-½ Z, λ (λ² + ZZᵀ)^-½]. The singular values of [Z, λI] lie between λ and its
norm, so that a composition of minimax polynomials brings all of them to 1 in as many steps as λ/‖[Z, λI]‖ asks for.
"""

from __future__ import annotations

import torch
from torch import Tensor

from npgm.kernels import Artanh, Kernel, LogSquare, Sqrt
from npgm.torch.spectral.minimax import COEFFICIENTS, RATIOS

KERNELS: tuple[type[Kernel], ...] = (Sqrt, LogSquare, Artanh)
"""Those of which the functions here know a formula."""

_DOUBLINGS = 12
_MARGIN = {torch.bfloat16: 1.02}
"""What singular values are divided by before each polynomial, since these grow fast beyond their interval."""


def precondition(kernel: Kernel, z: Tensor, q: Tensor, *, steps: int = 7, dtype: torch.dtype | None = None) -> Tensor:
    """Return U diag(h*'(q σ)) Vᵀ for each matrix U diag(σ) Vᵀ of a batch.

    Args:
        kernel: h, one of `KERNELS`.
        z: matrices of shape (b, m, n) with m <= n.
        q: by what to multiply the singular values, of shape (b,). It is lowered to where the number of steps suffices:
            to a norm of q [Z, I/q] of 1000 for 7 steps, 316 for 6, 100 for 5 and 32 for 4.
        steps: the number of polynomials.
        dtype: in which to compute products, that of ``z`` by default.
    """
    square = torch.linalg.matrix_norm(z).square()
    most = (max(RATIOS[steps] ** 2 - z.shape[-2], 1.0) / torch.where(square > 0, square, 1.0)).sqrt()
    y = z * torch.minimum(q.to(z.dtype), most)[:, None, None]
    if isinstance(kernel, Artanh):
        return _tanh(y)
    first, second = polar(y, steps, y.dtype if dtype is None else dtype)
    if isinstance(kernel, LogSquare):  # y/(1 + √(1 + y²)) is y r/(1 + r) with r = 1/√(1 + y²)
        return _solve_shifted(second, first)
    return first


def polar(y: Tensor, steps: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return (I + YYᵀ)^-½ Y and (I + YYᵀ)^-½, where ‖[Y, I]‖ is at most the ratio for so many steps."""
    eye = torch.eye(y.shape[-2], dtype=y.dtype, device=y.device).expand(*y.shape[:-1], y.shape[-2])
    margin = _MARGIN.get(dtype, 1.0)
    size = (torch.linalg.matrix_norm(y).square() + y.shape[-2]).sqrt()[:, None, None]
    first, second = (y / size).to(dtype), (eye / size).to(dtype)
    for a, b, c in COEFFICIENTS[steps]:
        a, b, c = a / margin, b / margin**3, c / margin**5
        gram = torch.baddbmm(first @ first.mT, second, second.mT)
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        first, second = (torch.baddbmm(x, factor, x, beta=a) for x in (first, second))
    return first.to(y.dtype), second.to(y.dtype)


def _tanh(y: Tensor) -> Tensor:
    """Return the hyperbolic tangent of singular values up to 1000, from Padé's at a small part of them by doubling."""
    t = y * 2.0**-_DOUBLINGS
    gram = t @ t.mT
    t = _solve_shifted(0.4 * gram, t + gram @ t / 15.0)  # x (15 + x²)/(15 + 6 x²)
    for _ in range(_DOUBLINGS):
        t = 2.0 * _solve_shifted(t @ t.mT, t)
    return t


def _solve_shifted(a: Tensor, b: Tensor) -> Tensor:
    """Return (I + A)^-1 B for positive semidefinite A, in the dtype of B."""
    shifted = a + torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    factor = torch.linalg.cholesky_ex(shifted).L  # `cholesky` would wait for a device to say that there is one
    result: Tensor = torch.cholesky_solve(b, factor)
    return result

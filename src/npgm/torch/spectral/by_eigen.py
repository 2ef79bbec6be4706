"""Functions of singular values by the eigenvalues of the smaller Gram matrix, in the precision that this takes.

Squaring doubles the digits that are lost: the error is about eps (σmax/λ)², where that of a singular value
decomposition, which takes many times as long, is eps σmax/λ.
"""

from __future__ import annotations

import torch
from torch import Tensor

from npgm.kernels import Kernel

LIMITS = {torch.float32: 100.0, torch.float64: 30.0}
"""The largest σmax/λ for which the precision of a matrix itself is used."""


def precondition(kernel: Kernel, z: Tensor, q: Tensor) -> Tensor:
    """Return U diag(h*'(q σ)) Vᵀ for each matrix U diag(σ) Vᵀ of a batch.

    Args:
        kernel: h.
        z: finite matrices of shape (b, m, n) with m <= n, in float32 or float64.
        q: by what to multiply the singular values, of shape (b,), in float64.
    """
    gram = z @ z.mT
    # ‖G‖_F^½ is at least σmax, and at most m^¼ times that
    exact = q * torch.linalg.matrix_norm(gram).sqrt() > LIMITS[z.dtype]
    if not exact.any():
        return _by_gram(kernel, z, gram, q.to(z.dtype))
    if exact.all():
        return _exact(kernel, z, q)
    result = torch.empty_like(z)
    result[exact] = _exact(kernel, z[exact], q[exact])
    result[~exact] = _by_gram(kernel, z[~exact], gram[~exact], q[~exact].to(z.dtype))
    return result


def _exact(kernel: Kernel, z: Tensor, q: Tensor) -> Tensor:
    if z.dtype == torch.float64:
        return _by_svd(kernel, z, q)
    wide = z.double()
    return _by_gram(kernel, wide, wide @ wide.mT, q).to(z.dtype)


def _by_gram(kernel: Kernel, z: Tensor, gram: Tensor, q: Tensor) -> Tensor:
    try:
        squares, u = torch.linalg.eigh(gram)
    except RuntimeError:  # LAPACK does not always converge on matrices of low rank
        return _by_svd(kernel, z.double(), q.double()).to(z.dtype) if z.dtype == torch.float64 else _exact(kernel, z, q)
    # an eigenvalue that is lost in rounding must not divide what is not
    largest = squares[..., -1:]
    floor = torch.where(largest > 0, largest * torch.finfo(squares.dtype).eps, 1.0)
    s = torch.maximum(squares, floor).sqrt()
    factors = kernel.precondition(s * q[..., None]) / s
    result: Tensor = (u * factors[..., None, :]) @ u.mT @ z
    return result


def _by_svd(kernel: Kernel, z: Tensor, q: Tensor) -> Tensor:
    u, s, vt = torch.linalg.svd(z, full_matrices=False)
    result: Tensor = (u * kernel.precondition(s * q[..., None])[..., None, :]) @ vt
    return result

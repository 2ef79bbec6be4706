"""Functions of singular values by the eigenvalues of the smaller Gram matrix, again for those that are lost in it.

Squaring doubles the digits that are lost: of singular values below a sixteenth of the largest too few are left. The
rows that belong to them are projected off the others and decomposed by a Gram matrix of their own, where they are the
largest, and so on. The error is then about eps σmax/λ, that of a singular value decomposition, which takes longer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from npgm.kernels import Kernel

LIMITS = {torch.float32: 3e4, torch.float64: 1e3}
"""The largest σmax/λ for which the precision of a matrix itself is used, which is off by 1e-3 and 1e-12 there."""

_LOST = 16.0
"""How many times a singular value is below the largest where it is decomposed again, if that is as far above λ."""
_BLOCK = 128


def precondition(kernel: Kernel, z: Tensor, q: Tensor) -> Tensor:
    """Return U diag(h*'(q σ)) Vᵀ for each matrix U diag(σ) Vᵀ of a batch.

    Args:
        kernel: h.
        z: finite matrices of shape (b, m, n) with m <= n, in float32 or float64.
        q: by what to multiply the singular values, of shape (b,), in float64.
    """
    gram = _symmetric(z, z)
    # ‖G‖_F^½ is at least σmax, and at most m^¼ times that
    exact = q * torch.linalg.matrix_norm(gram).sqrt() > LIMITS[z.dtype]
    if not exact.any():
        return _by_gram(kernel, z, gram, q)
    if exact.all():
        return _exact(kernel, z, q)
    result = torch.empty_like(z)
    result[exact] = _exact(kernel, z[exact], q[exact])
    result[~exact] = _by_gram(kernel, z[~exact], gram[~exact], q[~exact])
    return result


def _exact(kernel: Kernel, z: Tensor, q: Tensor) -> Tensor:
    if z.dtype == torch.float64:
        return _by_svd(kernel, z, q)
    wide = z.double()
    return _by_gram(kernel, wide, _symmetric(wide, wide), q).to(z.dtype)


def _by_gram(kernel: Kernel, z: Tensor, gram: Tensor, q: Tensor) -> Tensor:
    try:
        squares, u = torch.linalg.eigh(gram)
    except RuntimeError:  # LAPACK does not always converge on matrices of low rank
        return _exact(kernel, z, q)
    # an eigenvalue that is lost in rounding must not divide what is not
    largest = squares[..., -1:]
    squares = torch.maximum(squares, torch.where(largest > 0, largest * torch.finfo(squares.dtype).eps, 1.0))
    s = squares.sqrt()
    scaled = s * q.to(s.dtype)[:, None]
    factors = kernel.precondition(scaled) / s
    lost = (s * _LOST < s[..., -1:]) & (scaled[..., -1:] > _LOST)
    if not (k := int(lost.sum(-1).max())):
        product: Tensor = _symmetric(u * factors[..., None, :], u) @ z
        return product
    rows = u.mT @ z
    few, many = rows[..., :k, :], rows[..., k:, :]
    few = few - (few @ many.mT / squares[..., None, k:]) @ many
    parts = [_by_gram(kernel, few, _symmetric(few, few), q), many * factors[..., k:, None]]
    result: Tensor = u @ torch.cat(parts, dim=-2)
    return result


def _symmetric(a: Tensor, b: Tensor) -> Tensor:
    """Return A Bᵀ where that is symmetric, in little more than half of the time."""
    n = a.shape[-2]
    result = a.new_empty(*a.shape[:-1], n)
    for start in range(0, n, _BLOCK):
        end = min(start + _BLOCK, n)
        columns = a[..., start:, :] @ b[..., start:end, :].mT
        result[..., start:, start:end] = columns
        result[..., start:end, end:] = columns[..., end - start :, :].mT
    return result


def _by_svd(kernel: Kernel, z: Tensor, q: Tensor) -> Tensor:
    u, s, vt = torch.linalg.svd(z, full_matrices=False)
    result: Tensor = (u * kernel.precondition(s * q[..., None])[..., None, :]) @ vt
    return result

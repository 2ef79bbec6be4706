"""∇φ* of the kernel sqrt on the CPU, by a few inverses and matrix products of the native module.

The direction is the first block of the polar factor of [q Z, I]. Halley's iteration brings its singular values to 1 in
three steps or four; the first is computed in double precision, since squares lose twice the digits. The error is then
smaller than by eigenvalues, in a fraction of the time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from npgm import _native
from npgm.kernels import Kernel, Sqrt

LIMIT = 3e4
"""The largest q ‖Z‖, in the Frobenius norm."""


def takes(kernel: Kernel, z: Tensor) -> bool:
    """Whether matrices can be preconditioned here, if they keep to the limit."""
    return isinstance(kernel, Sqrt) and z.dtype == torch.float32 and z.device.type == "cpu" and _native.available()


def keeps_to_limit(z: Tensor, q: Tensor) -> Tensor:
    """Return for each matrix whether q ‖Z‖ is within the limit."""
    result: Tensor = q * torch.linalg.matrix_norm(z) <= LIMIT
    return result


def precondition(z: Tensor, q: Tensor) -> Tensor:
    """Return U diag(q σ/√(1 + (q σ)²)) Vᵀ for each matrix U diag(σ) Vᵀ of a batch.

    Args:
        z: finite matrices of shape (b, m, n) with m <= n, which `takes` accepts.
        q: by what to multiply the singular values, of shape (b,), in float64; it keeps to the limit.
    """
    z = z.contiguous()
    u = torch.empty_like(z)
    _native.core().apply_sqrt(
        z.data_ptr(), u.data_ptr(), rows=z.shape[1], columns=z.shape[2], q=q.tolist(), threads=torch.get_num_threads()
    )
    return u

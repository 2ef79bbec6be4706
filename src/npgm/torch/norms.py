"""The norm of many tensors as one vector."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which to compute for tensors of ``dtype``: float32 at least."""
    return torch.promote_types(dtype, torch.float32)


def scaled_norm(tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return ``(m, q)``, of no dimension, with m q the Euclidean norm of all entries of ``tensors`` together.

    As in `npgm.Isotropic.factor`, m is the largest absolute value, so that nothing overflows: 1 if that is zero or not
    finite. The result is in the widest dtype present, float32 at least, on the device of the first tensor; no value
    is read on the host.
    """
    tensors = [tensor for tensor in tensors if tensor.numel() > 0]
    if not tensors:
        return torch.ones(()), torch.zeros(())
    device = tensors[0].device
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    maxima = [torch.linalg.vector_norm(t, torch.inf).to(device, dtype) for t in tensors]
    largest = torch.stack(maxima).amax()
    m = torch.where((largest > 0) & torch.isfinite(largest), largest, 1.0)
    parts = [torch.linalg.vector_norm(t.to(dtype) / m.to(t.device)).to(device) for t in tensors]
    return m, torch.linalg.vector_norm(torch.stack(parts))

"""Norms of many tensors as one vector: over groups, dtypes, devices and shards, without overflow.

Nothing here reads a value on the host, so that no step waits for an accelerator.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import torch.distributed as dist

import torch
from torch import Tensor

ProcessGroups: TypeAlias = tuple[Any, ...]


class Bounded(Protocol):
    """One or more tensors that may be sharded, as the part of them that this process holds."""

    @property
    def process_groups(self) -> ProcessGroups:
        """The process groups over which the tensors are sharded; none if this process holds all of them."""

    def largest(self) -> Tensor:
        """The largest absolute value in this part, one for all tensors or one for each, of one dimension."""


class Measurable(Bounded, Protocol):
    """Tensors of which norms are taken."""

    def norm(self, m: Tensor) -> Tensor:
        """‖y / m‖ for this part y, one for all tensors or one for each, of one dimension."""


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which to compute for tensors of ``dtype``: float32 at least, complex where that is."""
    return torch.promote_types(dtype, torch.float32)


def is_dtensor(tensor: Tensor) -> bool:
    """Whether ``tensor`` is a `torch.distributed.tensor.DTensor`, a class whose import takes half a second."""
    return hasattr(tensor, "device_mesh")


def shard_groups(tensor: Tensor) -> ProcessGroups:
    """Return the process groups over which the shards of ``tensor`` lie; none for a plain or replicated tensor."""
    if not is_dtensor(tensor):
        return ()
    mesh, placements = tensor.device_mesh, tensor.placements  # type: ignore[attr-defined]
    return tuple(mesh.get_group(i) for i, placement in enumerate(placements) if not placement.is_replicate())


def largest(tensors: Sequence[Bounded]) -> list[Tensor]:
    """Return the largest absolute value of each, over all its shards: infinity if it holds infinity or NaN."""
    # NaN is mapped to infinity since the maximum over processes need not keep NaN
    values = [torch.nan_to_num(t.largest().detach(), nan=torch.inf, posinf=torch.inf) for t in tensors]
    return _all_reduce(values, tensors, dist.ReduceOp.MAX)


def scaled_norms(
    units: Sequence[Sequence[Measurable]], maxima: Sequence[Sequence[Tensor]]
) -> list[tuple[Tensor, Tensor]]:
    """Return ``(m, q)`` for each unit, with m q the Euclidean norm of all its tensors together.

    As in `npgm.Isotropic.factor`, m is the largest absolute value, so that nothing overflows: 1 if that is zero or not
    finite. The result is in the widest dtype of the unit, on the device of its first tensor.

    Args:
        units: the tensors that make up each vector. Each of a unit of several tensors has one norm.
        maxima: the result of `largest` for each tensor of each unit.
    """
    scales = [_scale(values) for values in maxima]
    flat = [(tensors, m) for unit, m in zip(units, scales, strict=True) for tensors in unit]
    norms = [tensors.norm(m) for tensors, m in flat]
    # only what is sharded is squared and its root taken: at zero that has no derivative, and a vector norm has
    sharded = [i for i, (tensors, _) in enumerate(flat) if tensors.process_groups]
    squares = _all_reduce([norms[i].square() for i in sharded], [flat[i][0] for i in sharded], dist.ReduceOp.SUM)
    for i, square in zip(sharded, squares, strict=True):
        norms[i] = square.sqrt()
    results, start = [], 0
    for unit, m in zip(units, scales, strict=True):
        parts = [norm.to(m.device, m.dtype) for norm in norms[start : start + len(unit)]]
        results.append((m, torch.linalg.vector_norm(torch.stack(parts), dim=0)))
        start += len(unit)
    return results


def narrowed(m: Tensor, like: Tensor) -> Tensor:
    """Return the scale m for tensors on the device and of the dtype of ``like``, never zero."""
    m = m.to(like.device, like.dtype)
    return torch.where(m == 0, 1.0, m)  # where m underflows in a narrower dtype, all that it divides there is zero


def saturated(coefficient: Tensor, like: Tensor) -> Tensor:
    """Return a coefficient for tensors on the device and of the dtype of ``like``, never infinite."""
    # what is multiplied by more than the largest number of a narrower dtype is zero there
    return coefficient.to(like.device, like.dtype).clamp(max=torch.finfo(like.dtype).max)


def _scale(maxima: Sequence[Tensor]) -> Tensor:
    dtype = torch.float32
    for value in maxima:
        dtype = torch.promote_types(dtype, value.dtype)
    m = torch.stack([value.to(maxima[0].device, dtype) for value in maxima]).amax(0)
    return torch.where((m > 0) & torch.isfinite(m), m, 1.0)


def _all_reduce(values: list[Tensor], tensors: Sequence[Bounded], op: Any) -> list[Tensor]:
    """Reduce ``values`` over the shards of ``tensors``, in one collective for each process group, device and dtype."""
    together = defaultdict(list)
    for i, (value, tensor) in enumerate(zip(values, tensors, strict=True)):
        if tensor.process_groups:
            together[tensor.process_groups, value.device, value.dtype].append(i)
    for (process_groups, _, _), members in together.items():
        packed = torch.cat([values[i] for i in members])
        for process_group in process_groups:
            dist.all_reduce(packed, op, group=process_group)
        for i, value in zip(members, torch.split(packed, [values[i].numel() for i in members]), strict=True):
            values[i] = value
    return values

"""Norms of many tensors as one vector: over groups, dtypes, devices and shards, without overflow.

Nothing here reads a value on the host, so that no step waits for an accelerator.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import torch
import torch.distributed as dist
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
        """‖y / m‖ for this part y, one for all tensors or one for each; m has the dtype and device of `largest`."""


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which to compute for tensors of ``dtype``: float32 at least, complex where that is."""
    return torch.promote_types(dtype, torch.float32)


def is_dtensor(tensor: Tensor) -> bool:
    """Whether ``tensor`` is a `torch.distributed.tensor.DTensor`, a class whose import takes half a second."""
    return hasattr(tensor, "device_mesh")


def is_flat_shard(tensor: Tensor) -> bool:
    """Whether ``tensor`` is a shard of FSDP1, of unknown tensors, whose norm cannot be known."""
    return getattr(tensor, "_is_flat_param", False)


def shard_groups(tensor: Tensor) -> ProcessGroups:
    """Return the process groups over which the shards of ``tensor`` lie; none for a plain or replicated tensor."""
    if not is_dtensor(tensor):
        return ()
    mesh, placements = tensor.device_mesh, tensor.placements  # type: ignore[attr-defined]
    return tuple(mesh.get_group(i) for i, placement in enumerate(placements) if not placement.is_replicate())


def largest(tensors: Sequence[Bounded]) -> list[Tensor]:
    """Return the largest absolute value of each, over all its shards; it is not finite if any entry is not."""
    return _all_reduce([t.largest().detach() for t in tensors], tensors, "MAX", _infinite_if_nan)


def scaled_norms(
    units: Sequence[Sequence[Measurable]], maxima: Sequence[Sequence[Tensor]]
) -> list[tuple[Tensor, Tensor]]:
    """Return ``(m, q)`` for each unit, with m q the Euclidean norm of all its tensors together.

    As in `npgm.Isotropic.factor`, m is the largest absolute value, so that nothing overflows: 1 if that is zero or not
    finite. The result is in the widest dtype of the unit, on the device of its first tensor.

    Args:
        units: the tensors that make up each vector. Those that have one norm each make up a unit by themselves.
        maxima: the result of `largest` for each tensor of each unit.
    """
    scales = [_scale(values) for values in maxima]
    norms = []
    for unit, values, m in zip(units, maxima, scales, strict=True):
        narrowed = Narrowed(m, _one_if_zero)
        norms += [tensors.norm(narrowed.like(value)) for tensors, value in zip(unit, values, strict=True)]
    # only what is sharded is squared and its root taken: at zero that has no derivative, and a vector norm has
    flat = [tensors for unit in units for tensors in unit]
    sharded = [i for i, tensors in enumerate(flat) if tensors.process_groups]
    squares = _all_reduce([norms[i] for i in sharded], [flat[i] for i in sharded], "SUM", torch.square)
    for i, square in zip(sharded, squares, strict=True):
        norms[i] = square.sqrt()
    results, start = [], 0
    for unit, m in zip(units, scales, strict=True):
        parts = [norm.to(m.device, m.dtype) for norm in norms[start : start + len(unit)]]
        results.append((m, torch.linalg.vector_norm(torch.stack(parts), dim=0)))
        start += len(unit)
    return results


class Narrowed:
    """A few numbers in the dtypes and on the devices of the tensors that they divide or multiply, each made once."""

    def __init__(self, value: Tensor, repair: Callable[[Tensor], Tensor]) -> None:
        self._value, self._repair = value, repair
        self._made: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def like(self, tensor: Tensor) -> Tensor:
        key = (tensor.device, tensor.dtype)
        if key not in self._made:
            self._made[key] = self._repair(self._value.to(*key))
        return self._made[key]


def finite(coefficient: Tensor) -> Tensor:
    """Return a coefficient cut off at the largest number of its dtype: what it multiplies there is zero."""
    return coefficient.clamp(max=torch.finfo(coefficient.dtype).max)


def _one_if_zero(m: Tensor) -> Tensor:
    return torch.where(m == 0, 1.0, m)  # where m underflows in a narrower dtype, all that it divides there is zero


def _infinite_if_nan(values: Tensor) -> Tensor:
    return torch.nan_to_num(values, nan=torch.inf, posinf=torch.inf)  # the maximum over processes may drop NaN


def _scale(maxima: Sequence[Tensor]) -> Tensor:
    dtype = torch.float32
    for value in maxima:
        dtype = torch.promote_types(dtype, value.dtype)
    m = torch.stack([value.to(maxima[0].device, dtype) for value in maxima]).amax(0)
    return torch.where((m > 0) & torch.isfinite(m), m, 1.0)


def _all_reduce(
    values: list[Tensor], tensors: Sequence[Bounded], op: str, prepare: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Reduce ``values`` over the shards of ``tensors``, in one collective for each process group, device and dtype."""
    together = defaultdict(list)
    for i, (value, tensor) in enumerate(zip(values, tensors, strict=True)):
        if tensor.process_groups:
            together[tensor.process_groups, value.device, value.dtype].append(i)
    for (process_groups, _, _), members in together.items():
        packed = prepare(torch.cat([values[i] for i in members]))
        for process_group in process_groups:
            dist.all_reduce(packed, getattr(dist.ReduceOp, op), group=process_group)
        for i, value in zip(members, torch.split(packed, [values[i].numel() for i in members]), strict=True):
            values[i] = value
    return values

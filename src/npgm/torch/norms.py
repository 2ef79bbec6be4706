"""One vector made of many tensors: over groups, dtypes, devices and shards, without overflow.

Nothing here reads a value on the host, so that no step waits for an accelerator.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import array_api_compat.torch
import torch
import torch.distributed as dist
from torch import Tensor

from npgm._common import array

ProcessGroups: TypeAlias = tuple[Any, ...]


class Norm(NamedTuple):
    """The norms of some tensors y, of shape (1,) for one vector of all of them and of shape (n,) for one of each."""

    largest: Tensor
    """max|y|, not finite if an entry is not."""
    ratio: Tensor
    """‖y‖ / divisor(largest)."""


def divisor(largest: Tensor) -> Tensor:
    """See `npgm._common.array.divisor`."""
    result: Tensor = array.divisor(array_api_compat.torch, largest)
    return result


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which to compute for tensors of ``dtype``: float32 at least, complex where that is."""
    return torch.promote_types(dtype, torch.float32)


def widest_dtype(device: torch.device) -> torch.dtype:
    """Return the widest real dtype of a device: Apple's have no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def largest_of(y: Tensor) -> Tensor:
    """Return max|y|, of shape (1,)."""
    values = y.coalesce().values() if y.is_sparse else y
    if values.numel() == 0:
        return values.new_zeros(1)
    low, high = torch.aminmax(values)  # many times as fast on the CPU as the norm of order infinity
    return torch.maximum(high, -low).reshape(1)


def is_dtensor(tensor: Tensor) -> bool:
    """Whether ``tensor`` is a `torch.distributed.tensor.DTensor`, a class whose import takes half a second."""
    return hasattr(tensor, "device_mesh")


def is_flat_shard(tensor: Tensor) -> bool:
    """Whether ``tensor`` is a shard of FSDP1, of unknown tensors, whose norm cannot be known."""
    return getattr(tensor, "_is_flat_param", False) or getattr(tensor, "_fsdp_flattened", False)


def shard_groups(tensor: Tensor) -> ProcessGroups:
    """Return the process groups over which the shards of ``tensor`` lie; none for a plain or replicated tensor."""
    if not is_dtensor(tensor):
        return ()
    mesh, placements = tensor.device_mesh, tensor.placements  # type: ignore[attr-defined]
    return tuple(mesh.get_group(i) for i, placement in enumerate(placements) if not placement.is_replicate())


def over_shards(norms: Sequence[Norm], process_groups: Sequence[ProcessGroups]) -> list[Norm]:
    """Return the norms of whole tensors from those of the shards that each process holds.

    Args:
        norms: those of what this process holds.
        process_groups: those over which each lies; none for what this process holds all of.
    """
    # the maximum over processes may drop NaN
    infinite_if_nan = partial(torch.nan_to_num, nan=torch.inf, posinf=torch.inf)
    largest = _all_reduce([norm.largest for norm in norms], process_groups, "MAX", infinite_if_nan)
    # only what is sharded is squared and its root taken: at zero that has no derivative, and a vector norm has
    parts = [
        norm.ratio * (divisor(norm.largest) / divisor(whole)) if spread else norm.ratio
        for norm, whole, spread in zip(norms, largest, process_groups, strict=True)
    ]
    squares = _all_reduce(parts, process_groups, "SUM", torch.square)
    ratios = [square.sqrt() if spread else square for square, spread in zip(squares, process_groups, strict=True)]
    return [Norm(*pair) for pair in zip(largest, ratios, strict=True)]


def over_processes(norm: Norm, process_group: dist.ProcessGroup) -> Norm:
    """Return the norm of the vector of which each process holds other tensors; all of them call this at once."""
    device = _device(norm.largest, process_group)
    wide = Norm(*(value.to(device, widest_dtype(device)) for value in norm))
    return over_shards([wide], [(process_group,)])[0]


def sum_over_processes(number: int, like: Tensor, process_group: dist.ProcessGroup) -> Tensor:
    """Return the sum of a number over processes, of the shape and on the device of ``like``."""
    total = torch.full_like(like, number)
    dist.all_reduce(total, group=process_group)
    return total


def all_over_processes(flags: Sequence[Tensor], process_group: dist.ProcessGroup) -> Tensor:
    """Return whether all flags of all processes hold, without dimensions."""
    device = _device(flags[0] if flags else torch.empty(0, device="cpu"), process_group)
    own = torch.cat([flag.to(device) for flag in flags] + [torch.ones(1, dtype=torch.bool, device=device)]).all()
    result = own.to(torch.float32)
    dist.all_reduce(result, dist.ReduceOp.MIN, group=process_group)
    return result == 1.0


def _device(like: Tensor, process_group: dist.ProcessGroup) -> torch.device:
    """Return a device between whose tensors the processes can reduce."""
    return torch.device("cuda") if dist.get_backend(process_group) == "nccl" else like.device


def joint(norms: Sequence[Norm]) -> Norm:
    """Return the norm of the vector that is made up of several, in their widest dtype, on the device of the first."""
    if not norms:
        return Norm(*torch.zeros(2, 1, device="cpu"))
    device, dtype = norms[0].largest.device, norms[0].largest.dtype
    for norm in norms:
        dtype = torch.promote_types(dtype, norm.largest.dtype)
    wide = [Norm(norm.largest.to(device, dtype), norm.ratio.to(device, dtype)) for norm in norms]
    largest = torch.stack([norm.largest for norm in wide]).amax(0)
    m = divisor(largest)
    parts = torch.stack([norm.ratio * (divisor(norm.largest) / m) for norm in wide])
    return Norm(largest, torch.linalg.vector_norm(parts, dim=0))


def lengths(norm: Norm) -> Tensor:
    """Return each norm as one number, NaN where it is not finite."""
    return torch.where(torch.isfinite(norm.largest), divisor(norm.largest) * norm.ratio, torch.nan)


def total(norms: Sequence[Norm]) -> Tensor:
    """Return the norm of all vectors as one, without dimensions, in the widest dtype of the device."""
    device = norms[0].largest.device
    dtype = widest_dtype(device)
    largest, ratio = (torch.cat([v.to(device, dtype) for v in values]) for values in zip(*norms, strict=True))
    m = divisor(largest.amax())
    norm: Tensor = m * torch.linalg.vector_norm(ratio * (divisor(largest) / m))
    return norm


def finite(coefficient: Tensor) -> Tensor:
    """Return a coefficient cut off at the largest number of its dtype: what it multiplies there is zero."""
    return coefficient.clamp(max=torch.finfo(coefficient.dtype).max)


def _all_reduce(
    values: list[Tensor], process_groups: Sequence[ProcessGroups], op: str, prepare: Callable[[Tensor], Tensor]
) -> list[Tensor]:
    """Reduce ``values`` over their process groups, in one collective for each of these, device and dtype."""
    values, joined = list(values), defaultdict(list)
    for i, (value, spread) in enumerate(zip(values, process_groups, strict=True)):
        if spread:
            joined[spread, value.device, value.dtype].append(i)
    for (spread, _, _), members in joined.items():
        packed = prepare(torch.cat([values[i] for i in members]))
        for process_group in spread:
            dist.all_reduce(packed, getattr(dist.ReduceOp, op), group=process_group)
        for i, value in zip(members, torch.split(packed, [values[i].numel() for i in members]), strict=True):
            values[i] = value
    return values

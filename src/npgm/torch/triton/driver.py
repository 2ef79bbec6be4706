"""Many tensors in one launch: the tables of their addresses, the choice of the loops, and the operators for CUDA."""

from __future__ import annotations

import functools
import itertools
import struct
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from npgm.torch.norms import working_dtype
from npgm.torch.rule import Rule
from npgm.torch.triton import loops
from npgm.torch.triton.preconditioners import PRECONDITIONERS

BLOCK = 4096
"""Entries of a tensor that one program takes."""
WARPS = 8
"""Of 32 threads, each of which takes sixteen bytes at a time."""
ARGUMENTS = 256
"""Entries of a table that one launch writes."""

_DTYPES = {torch.float32: tl.float32, torch.float64: tl.float64, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}

KERNELS = frozenset(PRECONDITIONERS)
"""The keys of the kernels that have a separable step."""


def measure(
    points: list[Tensor], gradients: list[Tensor], momentum: list[Tensor], grad_scale: Tensor | None, **rule: Any
) -> Tensor:
    """Return max|y| and ‖y‖ / max|y| in two rows, as `npgm.torch.norms.Norm` says, on the device."""
    decoded = Rule.of_arguments(**rule)
    dtype, device, n = gradients[0].dtype, gradients[0].device, len(gradients)
    averages = momentum if decoded.before else []
    vectors = n if decoded.per_tensor else 1
    with torch.cuda.device_of(gradients[0]):  # type: ignore[no-untyped-call]
        table, blocks = _table(decoded, points, gradients, averages)
        parts, result = (torch.empty(2, size, dtype=torch.float64, device=device) for size in (blocks, vectors))
        if blocks:
            loops.measure[(blocks,)](
                table,
                n,
                blocks,
                parts,
                grad_scale,
                T=_DTYPES[working_dtype(dtype)],
                PARAMETER=_DTYPES[dtype],
                MOMENTUM=_DTYPES[averages[0].dtype] if averages else None,
                GRAD_SCALES=_is_each(grad_scale),
                DECAYS=decoded.coupled_decay != 0.0,
                BLOCK=BLOCK,
                num_warps=WARPS,
            )
        loops.combine[(vectors,)](table, n, blocks, parts, result, PER_TENSOR=decoded.per_tensor, WIDTH=1024)
    return result


def apply_step(
    points: list[Tensor],
    gradients: list[Tensor],
    momentum: list[Tensor],
    factors: Tensor | None,
    lr: Tensor,
    grad_scale: Tensor | None,
    applies: Tensor | None,
    **rule: Any,
) -> None:
    """Move as `npgm.torch.batch.Path` says, with all numbers read on the device."""
    decoded = Rule.of_arguments(**rule)
    # what shares memory moves one after the other, as in a loop over the tensors
    shared = _overlap(_extents(points), _extents(gradients), _extents(momentum))
    parts = [slice(i, i + 1) for i in range(len(points))] if shared else [slice(None)]
    dtype = points[0].dtype
    per_tensor = _is_each(factors)
    with torch.cuda.device_of(points[0]):  # type: ignore[no-untyped-call]
        for part in parts:
            table, blocks = _table(decoded, points[part], gradients[part], momentum[part])
            if blocks:
                loops.apply_step[(blocks,)](
                    table,
                    len(points[part]),
                    factors[part] if factors is not None and per_tensor else factors,
                    lr,
                    grad_scale[part] if grad_scale is not None and _is_each(grad_scale) else grad_scale,
                    applies,
                    T=_DTYPES[working_dtype(dtype)],
                    PARAMETER=_DTYPES[dtype],
                    MOMENTUM=_DTYPES[momentum[0].dtype] if momentum else None,
                    BEFORE=decoded.before,
                    PRECONDITION=None if decoded.isotropic else PRECONDITIONERS[decoded.kernel],
                    PER_TENSOR=per_tensor,
                    GRAD_SCALES=_is_each(grad_scale),
                    DECAYS=decoded.coupled_decay != 0.0,
                    BLOCK=BLOCK,
                    STRIP=32 * WARPS * 16 // dtype.itemsize,
                    num_warps=WARPS,
                )
    torch.autograd.graph.increment_version([*points, *momentum])


torch.library.impl("npgm::measure", "CUDA", measure)
torch.library.impl("npgm::apply_step_", "CUDA", apply_step)


def _is_each(values: Tensor | None) -> bool:
    """Whether there is one value for each tensor, and not one for all."""
    return values is not None and values.numel() > 1


def _table(rule: Rule, parameters: list[Tensor], gradients: list[Tensor], momentum: list[Tensor]) -> tuple[Tensor, int]:
    """Return the table that `loops` describes, and the number of blocks."""
    limits = torch.finfo(working_dtype(parameters[0].dtype))
    sign = -1.0 if rule.maximize else 1.0
    scale = min(max(rule.scale, limits.smallest_normal * limits.eps), limits.max)  # positive and finite in its dtype
    numbers = (scale, 1.0 - rule.momentum, rule.coupled_decay, rule.decoupled_decay, sign)
    halves = struct.unpack(f"<{2 * len(numbers)}I", struct.pack(f"<{len(numbers)}d", *numbers))
    sizes = [x.numel() for x in parameters]
    starts = [0, *itertools.accumulate(-(-size // BLOCK) for size in sizes)]
    addresses = (x.data_ptr() for x in itertools.chain(parameters, gradients, momentum or gradients))
    entries = (*halves, *addresses, *sizes, *starts)
    device, stream = parameters[0].device, 0
    if device.type == "cuda":
        if torch.cuda.is_current_stream_capturing():
            # memory and contents that belong to the graph
            return _written(device, entries), starts[-1]
        stream = torch.cuda.current_stream(device).cuda_stream
    return _kept(device, stream, entries), starts[-1]


@functools.lru_cache(maxsize=64)
def _kept(device: torch.device, stream: int, entries: tuple[int, ...]) -> Tensor:
    """Return a table that is used on one stream, so that its memory is not given away while it is in use."""
    return _written(device, entries)


def _written(device: torch.device, entries: tuple[int, ...]) -> Tensor:
    padded = [entry + loops.OFFSET.value for entry in entries]
    padded += -len(entries) % ARGUMENTS * [loops.OFFSET.value]
    table = torch.empty(len(padded), dtype=torch.int64, device=device)
    for start in range(0, len(padded), ARGUMENTS):
        loops.write[(1,)](table, start, tuple(padded[start : start + ARGUMENTS]))
    return table


Extents = tuple[tuple[int, int], ...]
"""Where tensors begin and end in memory."""


def _extents(tensors: list[Tensor]) -> Extents:
    return tuple((x.data_ptr(), x.data_ptr() + x.numel() * x.itemsize) for x in tensors)


@functools.lru_cache(maxsize=64)
def _overlap(parameters: Extents, gradients: Extents, momentum: Extents) -> bool:
    """Whether a tensor that is written shares memory with one of another parameter.

    Raises:
        ValueError: if it shares memory with one of its own.
    """
    extents = [(*extent, True) for extent in (*parameters, *momentum)] + [(*extent, False) for extent in gradients]
    shared, end, written_end = False, 0, 0
    for first, last, written in sorted(extent for extent in extents if extent[0] < extent[1]):
        shared |= first < (end if written else written_end)
        end = max(end, last)
        written_end = max(written_end, last) if written else written_end
    if shared:
        for own in zip(parameters, gradients, momentum or parameters, strict=True):
            for a, b in itertools.combinations(own if momentum else own[:2], 2):
                if max(a[0], b[0]) < min(a[1], b[1]):
                    raise ValueError("a parameter, its gradient and its momentum overlap in memory")
    return shared

"""Matrices together, for φ of singular values: those of one shape at once, sharded ones by one process each."""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from npgm._common import optimizers
from npgm.torch.batch import Batch, Lengths
from npgm.torch.matrix_form import as_matrices, of_matrices, rows_and_columns
from npgm.torch.paths import foreach
from npgm.torch.spectral import precondition

measure = foreach.measure


def apply_step(batch: Batch, factor: Tensor | None, applies: Tensor | None) -> Lengths:
    """See `npgm.torch.batch.Path`."""
    return foreach.step_along(_directions, batch, factor, applies)


def _directions(batch: Batch, ys: list[Tensor], scales: Tensor | None) -> tuple[list[Tensor], Lengths]:
    us, options = _preconditioned(batch, ys, scales), batch.options
    lengths = foreach.tracked(batch, ys, us)
    if options.adjust is not None:
        shapes = [rows_and_columns(parameter.shape, options.matrix_form) for parameter in batch.full]
        factors = [optimizers.adjustment(options.adjust, rows // options.blocks, columns) for rows, columns in shapes]
        us = list(torch._foreach_mul(us, factors))
    return us, lengths


def _preconditioned(batch: Batch, ys: list[Tensor], scales: Tensor | None) -> list[Tensor]:
    """Return ∇φ* of matrices, of which this process holds what it holds of the parameters."""
    if scales is not None:
        ys = foreach.quotients(batch, ys, scales)
    if not batch.process_groups:
        return _of_whole(batch, ys)
    full = batch.full
    mesh = full[0].device_mesh  # type: ignore[attr-defined]
    results: list[Tensor] = []
    for start in range(0, len(ys), mesh.size()):
        round_ = list(zip(full[start : start + mesh.size()], ys[start:], strict=False))
        mine: Tensor | None = None
        for owner, (parameter, y) in enumerate(round_):
            gathered = _as_dtensor(y, parameter).full_tensor()
            if owner == _place(mesh):
                mine = gathered
        made = None if mine is None else _of_whole(batch, [mine])[0]
        for owner, (parameter, y) in enumerate(round_):
            u = made if owner == _place(mesh) and made is not None else y.new_empty(parameter.shape)
            results.append(_shard(_from_owner(u.contiguous(), mesh, owner), parameter))
    return results


def _of_whole(batch: Batch, ys: list[Tensor]) -> list[Tensor]:
    options = batch.options
    us = precondition(options.phi, [as_matrices(y, options) for y in ys], dtype=options.product_dtype)
    return [of_matrices(u, y, options) for u, y in zip(us, ys, strict=True)]


def _as_dtensor(local: Tensor, like: Any) -> Any:
    from torch.distributed.tensor import DTensor  # an import of half a second, which was made for ``like``

    shape, stride = like.shape, torch.empty(like.shape, device="meta").stride()
    return DTensor.from_local(local, like.device_mesh, like.placements, run_check=False, shape=shape, stride=stride)


def _shard(whole: Tensor, like: Any) -> Tensor:
    """Return the part of a tensor that this process holds of ``like``."""
    from torch.distributed.tensor import DTensor, Replicate

    mesh = like.device_mesh
    replicated = DTensor.from_local(whole, mesh, [Replicate()] * mesh.ndim, run_check=False)
    local: Tensor = replicated.redistribute(placements=like.placements).to_local()
    return local


def _place(mesh: Any) -> int:
    """Return the place of this process in a mesh, row by row."""
    place = 0
    for size, coordinate in zip(mesh.shape, mesh.get_coordinate(), strict=True):
        place = place * size + coordinate
    return place


def _from_owner(u: Tensor, mesh: Any, owner: int) -> Tensor:
    """Send what the process at the place ``owner`` of a mesh holds to all others, one axis of it after another."""
    at = next(itertools.islice(itertools.product(*map(range, mesh.shape)), owner, None))
    for axis in range(mesh.ndim):
        if tuple(mesh.get_coordinate()[axis + 1 :]) == at[axis + 1 :]:
            process_group = mesh.get_group(axis)
            dist.broadcast(u, dist.get_global_rank(process_group, at[axis]), group=process_group)
    return u

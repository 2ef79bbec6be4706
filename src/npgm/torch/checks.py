"""What a step refuses, found before anything has changed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from npgm.torch import fused, norms, proximal, sharding
from npgm.torch.gather import local
from npgm.torch.matrix_form import rows_and_columns
from npgm.torch.norms import Norm
from npgm.torch.options import Options


def refuse(optimizer: Optimizer, found_inf: Tensor | None) -> None:
    """Raise for gradients and states that are not supported, or not finite where that is to be an error."""
    refuse_kinds(optimizer)
    watched = [
        (_name_of(group, i, j), parameter, parameter.grad)
        for i, group in enumerate(optimizer.param_groups)
        for j, parameter in enumerate(group["params"])
        if group["nonfinite"] == "raise" and parameter.grad is not None
    ]
    if watched and (found_inf is None or not found_inf.any()):  # what a GradScaler has found, it skips
        _refuse_nonfinite(watched)


def refuse_kinds(optimizer: Optimizer) -> None:
    """Raise for what is not supported whatever its values."""
    flat = not torch.compiler.is_compiling() and sharding.is_flattened_by_caller()
    for i, group in enumerate(optimizer.param_groups):
        for j, parameter in enumerate(group["params"]):
            buffer = optimizer.state[parameter].get("momentum_buffer") if parameter in optimizer.state else None
            if flat and not _by_entry(group):
                message: str | None = (
                    "is a part of DeepSpeed's flattened parameters, whose whole cannot be known; use a separable "
                    "reference function with a number as its scale, and no limit"
                )
            else:
                message = _fault(group, parameter, parameter.grad, buffer)
            if message:
                raise RuntimeError(f"{_name_of(group, i, j)} {message}")
    _refuse_spread_prox(optimizer)


def _refuse_spread_prox(optimizer: Optimizer) -> None:
    """Raise if a proximal step would need a number of parameters of other processes or devices."""
    groups = [group for group in optimizer.param_groups if proximal.is_searched(group)]
    devices = {p.device for group in groups for p in group["params"] if p.grad is not None}
    if len(devices) > 1 or (groups and getattr(optimizer, "process_group", None) is not None):
        where = "on several devices" if len(devices) > 1 else "on several processes"
        raise RuntimeError(
            f"the parameters are {where}, but prox={groups[0]['prox']!r} with an isotropic reference function needs "
            "one number of all of them; use scope='tensor', a separable reference function, or a prox that is a set"
        )


def _name_of(group: dict[str, Any], i: int, j: int) -> str:
    """Return the name of a parameter, or its place and that of its group."""
    return group["param_names"][j] if "param_names" in group else f"parameter {j} of group {i}"


def _by_entry(group: dict[str, Any]) -> bool:
    """Whether no entry of a step depends on another one."""
    separable = group["reference"].startswith("separable") and group["scale"] != "auto" and group["limit"] is None
    return separable and (group["prox"] is None or proximal.may_be_sharded(group))


def _fault(group: dict[str, Any], parameter: Tensor, gradient: Tensor | None, buffer: Tensor | None) -> str | None:
    if parameter.requires_grad and not _by_entry(group) and norms.is_flat_shard(parameter):
        return (
            "is a shard of FSDP1, whose whole cannot be known; use torch.distributed.fsdp.fully_shard, or a separable "
            "reference function with a number as its scale, and no limit"
        )
    if gradient is None:
        return None
    if group["reference"].startswith("spectral") and parameter.is_complex():
        return "is complex, which a spectral reference function does not support"
    if message := _fault_of_blocks(group, parameter):
        return message
    if parameter.layout != torch.strided or gradient.layout not in (torch.strided, torch.sparse_coo):
        return (
            f"has the layout {parameter.layout} and its gradient {gradient.layout}; supported are torch.strided, and "
            "torch.sparse_coo for gradients"
        )
    if not torch.compiler.is_compiling() and parameter.is_conj():
        return "is a view that conjugates; give the optimizer its `resolve_conj()`"
    if group["fused"] and gradient.layout != torch.strided:
        return "has a sparse gradient, which `fused=True` does not support"
    if group["prox"] is not None and norms.shard_groups(parameter) and not proximal.may_be_sharded(group):
        return f"is sharded, but a step of prox={group['prox']!r} needs the whole"
    if group["differentiable"] and norms.is_dtensor(parameter):
        return "is a DTensor, which differentiable=True does not support"
    strides = zip(parameter.stride(), parameter.shape, strict=True)
    if parameter.numel() and any(stride == 0 and size > 1 for stride, size in strides):
        return "is expanded: several of its entries are one number in memory"
    if group["momentum"] == 0:
        buffer = None
    for name, other in (("gradient", gradient), ("momentum", buffer)):
        if other is not None and (other.shape != parameter.shape or other.device != parameter.device):
            return (
                f"has the shape {tuple(parameter.shape)} on {parameter.device} and its {name} "
                f"{tuple(other.shape)} on {other.device}"
            )
    if buffer is not None and fused.share_memory(parameter, buffer):
        return "shares memory with its momentum"
    if group["fused"] and parameter.is_cuda and (lacking := fused.missing(parameter.device)):
        return f"is on a CUDA device, where `fused=True` needs Triton: {lacking}"
    return None


def require_steps(groups: list[dict[str, Any]]) -> None:
    """Raise unless each parameter of the last group can be its blocks, and has a proximal and a fused step if asked."""
    group, tried = groups[-1], set()
    options = Options.of(group)
    if group["fused"]:
        fused.load({parameter.device for parameter in group["params"]})
    for j, parameter in enumerate(group["params"]):
        message = _fault_of_blocks(group, parameter)
        kind = parameter.shape, parameter.dtype  # a step is tried once for each, as some decompose matrices
        if message is None and options.prox is not None and kind not in tried:
            message = proximal.fault(options, parameter)
            tried.add(kind)
        if message:
            raise ValueError(f"{_name_of(group, len(groups) - 1, j)} {message}")
        if group["fused"]:
            fused.require(options.phi, parameter)


def _fault_of_blocks(group: dict[str, Any], parameter: Tensor) -> str | None:
    """Return why a parameter cannot be as many blocks as its group says, or None if it can, or has no shape yet."""
    blocks = group["blocks"]
    if blocks == 1 or torch.nn.parameter.is_lazy(parameter):
        return None
    rows, _ = rows_and_columns(parameter.shape, group["matrix_form"])
    return f"has {rows} rows, which cannot be {blocks} blocks of one size" if rows % blocks else None


def _refuse_nonfinite(watched: list[tuple[str, Tensor, Tensor]]) -> None:
    names, parameters, gradients = zip(*watched, strict=True)
    largest = [norms.largest_of(local(p, g, None)[1]) for p, g in zip(parameters, gradients, strict=True)]
    whole = norms.over_shards([Norm(m, m) for m in largest], [norms.shard_groups(p) for p in parameters])
    finite = torch.cat([norm.largest.to(largest[0].device) for norm in whole]).isfinite()
    if not finite.all():  # once, since a wrapper subclass has no `tolist`
        name = next(name for name, is_finite in zip(names, finite, strict=True) if not is_finite)
        raise RuntimeError(f"the gradient of {name} contains NaN or infinity, and nonfinite='raise'")

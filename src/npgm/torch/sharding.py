"""How parameters may be spread over processes, where the tensors themselves do not tell."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import torch.distributed as dist
from torch.optim import Optimizer

from npgm.torch.groups import has_norm, scope_of

_ZERO = "torch.distributed.optim.zero_redundancy_optimizer"
_WORKER = "torch.distributed.optim.optimizer"
_BACKWARD = "torch.distributed.optim.apply_optimizer_in_backward"
_FLAT = ("deepspeed.runtime.zero.", "deepspeed.runtime.bf16_optimizer", "deepspeed.runtime.superoffload.")
"""The modules of DeepSpeed that put parts of flattened parameters in the place of the parameters."""


def process_group_of_caller(optimizer: Optimizer) -> dist.ProcessGroup | None:
    """Return the processes between which whoever makes the optimizer divides the parameters, if that is known.

    Those who divide them make the optimizer of each process with nothing but its part of the parameters, and say
    nothing of the others; hence the look at who calls.

    Raises:
        RuntimeError: if they cannot take the norm of a vector together, and there is one.
    """
    frame = _caller(_ZERO, _WORKER, _BACKWARD)
    if frame is None or not any(_is_joint(group) for group in optimizer.param_groups):
        return None
    if (module := frame.f_globals["__name__"]) != _ZERO:
        who = "DistributedOptimizer steps each worker's parameters by themselves"
        if module == _BACKWARD:
            who = "an optimizer in the backward pass steps each parameter by itself"
        raise RuntimeError(
            f"{who}, so the norm of all of them is unknown; use scope='tensor' or a separable reference function"
        )
    for group in optimizer.param_groups:
        if _is_joint(group) and scope_of(group) == "group":
            raise RuntimeError("scope='group' is not supported under ZeroRedundancyOptimizer; use 'global' or 'tensor'")
    result: dist.ProcessGroup = frame.f_locals["self"].process_group
    return result


def is_flattened_by_caller() -> bool:
    """Whether who takes a step has replaced the parameters by parts of them, of which each process has others."""
    return _caller(*_FLAT) is not None


def _is_joint(group: dict[str, Any]) -> bool:
    """Whether a norm is of more than one tensor."""
    joined = (has_norm(group) or group["limit"] is not None) and scope_of(group) != "tensor"
    return joined or group["nonfinite"] == "skip"


def _caller(*modules: str) -> FrameType | None:
    """Return the innermost call of a function of the modules whose names begin like one of these."""
    frame = sys._getframe().f_back
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(modules):
            return frame
        frame = frame.f_back
    return None

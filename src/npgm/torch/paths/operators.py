"""One pass over memory by operators of torch, which `torch.compile` keeps in its graph.

On the CPU `npgm.torch.paths.native` takes them, on CUDA devices `npgm.torch.triton`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from npgm.torch.batch import Batch, Lengths
from npgm.torch.norms import Norm
from npgm.torch.rule import Rule

_RULE = "*, Tensor numbers, str key, float[] parameters, bool isotropic, bool per_tensor, bool before, bool maximize"
"""See `Rule.arguments`."""

# The tables of addresses outlive a step, which the pools of memory that `torch.compile` makes for CUDA graphs do not
# allow; in graphs of the user's own each step has its own.
torch.library.define(
    "npgm::measure",
    f"(Tensor[] points, Tensor[] gradients, Tensor[] averages, Tensor? grad_scale, {_RULE}) -> Tensor",
    tags=torch.Tag.cudagraph_unsafe,
)
torch.library.define(
    "npgm::apply_step_",
    "(Tensor(a!)[] points, Tensor[] gradients, Tensor(b!)[] averages, Tensor? factors, Tensor lr, Tensor? grad_scale,"
    f" Tensor? applies, {_RULE}) -> ()",
    tags=torch.Tag.cudagraph_unsafe,
)


@torch.library.register_fake("npgm::measure")  # type: ignore[untyped-decorator]
def _(points: object, gradients: list[Tensor], *args: object, per_tensor: bool, **rule: object) -> Tensor:
    return gradients[0].new_empty((2, len(gradients) if per_tensor else 1), dtype=torch.float64)


@torch.library.register_fake("npgm::apply_step_")  # type: ignore[untyped-decorator]
def _(*args: object, **rule: object) -> None:
    return None


def measure(batch: Batch, rule: Rule) -> Norm:
    """See `npgm.torch.batch.Path`."""
    tensors = (batch.parameters, batch.gradients, batch.momentum)
    result = torch.ops.npgm.measure(*tensors, _on(batch, batch.grad_scale), **rule.arguments())
    return Norm(result[0], result[1])


def apply_step(batch: Batch, factor: Tensor | None, applies: Tensor | None) -> Lengths:
    """See `npgm.torch.batch.Path`; nothing is tracked."""
    lr = batch.options.rate
    if isinstance(lr, Tensor):
        lr = lr.reshape(())
        lr = lr if lr.is_cpu else _on(batch, lr)
    # a product, since a float by itself would be compiled in as a constant
    lr = lr * torch.ones((), dtype=torch.float64, device=batch.parameters[0].device)
    torch.ops.npgm.apply_step_(
        batch.parameters,
        batch.gradients,
        batch.momentum,
        factor,
        lr,
        _on(batch, batch.grad_scale),
        _on(batch, applies),
        **batch.options.rule.arguments(),
    )
    return None


def _on(batch: Batch, value: Any) -> Any:
    return None if value is None else value.to(batch.parameters[0].device)

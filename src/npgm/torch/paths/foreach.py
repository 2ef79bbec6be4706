"""Many tensors at once by `torch._foreach_*`, and for φ of each entry by one flat copy of what it is given.

There is no foreach form of most preconditioners; on the flat copy each of their operations is one launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from npgm.torch.batch import Batch, Lengths
from npgm.torch.fused import is_dense
from npgm.torch.norms import Norm, divisor
from npgm.torch.paths.single import cut_off, masked
from npgm.torch.rule import Rule

Directions: TypeAlias = Callable[[Batch, list[Tensor], Tensor | None], tuple[list[Tensor], Lengths]]
"""Takes a batch, what φ is given, and the factor of `npgm.torch.batch.Path.apply_step` to ∇φ*, with what is tracked."""


def measure(batch: Batch, rule: Rule) -> Norm:
    """See `npgm.torch.batch.Path`."""
    ys = _gradients(batch, rule)
    if rule.before:
        means = list(torch._foreach_lerp(_wide(batch, batch.momentum), ys, 1.0 - batch.options.momentum))
        ys = _ahead(batch, ys, means)
    zero = ys[0].new_zeros(1)  # the maximum of nothing is an error
    sizes = list(torch._foreach_abs([y if y.numel() else zero for y in ys]))
    largest = torch.stack(torch.ops.aten._foreach_max(sizes))  # which torch.compile knows by this name
    if not rule.per_tensor:
        largest = largest.amax().reshape(1)
    torch._foreach_div_(sizes, _of_each(divisor(largest), sizes))
    ratios = torch.stack(torch._foreach_norm(sizes))
    if not rule.per_tensor:
        ratios = torch.linalg.vector_norm(ratios).reshape(1)
    return Norm(largest, ratios)


def apply_step(batch: Batch, factor: Tensor | None, applies: Tensor | None) -> Lengths:
    """See `npgm.torch.batch.Path`."""
    return step_along(_directions, batch, factor, applies)


def step_along(directions: Directions, batch: Batch, factor: Tensor | None, applies: Tensor | None) -> Lengths:
    """Do what `npgm.torch.batch.Path.apply_step` says, along the directions that a function makes."""
    rule = batch.options.rule
    us = _gradients(batch, rule)
    lengths: Lengths = None
    if not rule.before:
        us, lengths = directions(batch, us, factor)
    us = _masked(us, applies)
    if batch.momentum:
        us = _average(batch, us, applies)
    if rule.before:
        us, lengths = directions(batch, us, factor)
        us = _masked(us, applies)
    _advance(batch, us, applies)
    return lengths


def tracked(batch: Batch, ys: list[Tensor], us: list[Tensor]) -> Lengths:
    """Return what `npgm.torch.batch.Path.apply_step` returns, for us = ∇φ*(ys)."""
    if not batch.options.tracks:
        return None
    return torch.stack(torch._foreach_norm(ys)), torch.stack(torch._foreach_norm(us))


def _average(batch: Batch, us: list[Tensor], applies: Tensor | None) -> list[Tensor]:
    """Take ``us`` into the momentum, if ``applies`` is not False; return what to go by, in the working dtype."""
    means, share = _wide(batch, batch.momentum), batch.weight(us[0], applies)
    if isinstance(share, Tensor):
        torch._foreach_mul_(means, 1.0 - share)
        torch._foreach_add_(means, torch._foreach_mul(us, share))
    else:
        torch._foreach_lerp_(means, us, share)
    if means is not batch.momentum:
        torch._foreach_copy_(batch.momentum, means)
    return _ahead(batch, us, means)


def _ahead(batch: Batch, us: list[Tensor], means: list[Tensor]) -> list[Tensor]:
    """Return the means, or with Nesterov's momentum what lies ahead along them."""
    return list(torch._foreach_lerp(us, means, batch.options.momentum)) if batch.options.nesterov else means


def _advance(batch: Batch, us: list[Tensor], applies: Tensor | None) -> None:
    """Move the parameters against ``us``, if ``applies`` is not False."""
    rule, lr = batch.options.rule, batch.rate(us[0], applies)
    points = _wide(batch, batch.parameters)
    if rule.decoupled_decay:
        torch._foreach_mul_(points, 1.0 - lr * rule.decoupled_decay)
    if isinstance(lr, Tensor):
        torch._foreach_sub_(points, torch._foreach_mul(us, lr))
    else:
        torch._foreach_add_(points, us, alpha=-lr)
    if points is not batch.parameters:
        torch._foreach_copy_(batch.parameters, points)


def _gradients(batch: Batch, rule: Rule) -> list[Tensor]:
    """The gradients of the loss to minimise, decay included, in the working dtype; those of the batch if they are."""
    ys = _wide(batch, batch.gradients)
    if batch.grad_scale is not None:
        ys = list(torch._foreach_div(ys, _of_each(batch.grad_scale.to(ys[0]), ys)))
    if rule.maximize:
        ys = list(torch._foreach_neg(ys))
    if rule.coupled_decay:
        ys = list(torch._foreach_add(ys, _wide(batch, batch.parameters), alpha=rule.coupled_decay))
    return ys


def _directions(batch: Batch, ys: list[Tensor], factor: Tensor | None) -> tuple[list[Tensor], Lengths]:
    """∇φ* of all of them, which for an isotropic φ are multiples, with what is tracked."""
    if batch.options.rule.isotropic:
        return list(torch._foreach_mul(ys, _of_each(factor, ys))), None  # type: ignore[arg-type]
    flat = _flat(ys, batch.parameters, ys[0].dtype)[0] if factor is None else _quotients(batch, ys, factor)
    us = _split(batch.options.phi.precondition(flat), batch.parameters)
    return us, tracked(batch, ys, us)


def quotients(batch: Batch, ys: list[Tensor], scales: Tensor) -> list[Tensor]:
    """Return each y / λ, with finite quotients beyond the largest finite number cut off there."""
    return _split(_quotients(batch, ys, scales), batch.parameters)


def _quotients(batch: Batch, ys: list[Tensor], scales: Tensor) -> Tensor:
    flat, views = _flat(ys, batch.parameters, ys[0].dtype)
    infinite = flat.isinf()
    torch._foreach_div_(views, _of_each(scales, ys))
    return cut_off(flat, infinite)


def _masked(us: list[Tensor], applies: Tensor | None) -> list[Tensor]:
    if applies is None:
        return us
    flat, _ = _flat(us, us, us[0].dtype)
    return _split(masked(flat, applies), us)


def _of_each(values: Tensor, tensors: list[Tensor]) -> Tensor | list[Tensor]:
    """One number for all as `torch._foreach_*` takes it, or one for each."""
    return values.reshape(()) if values.numel() == 1 else list(values.unbind())


def _wide(batch: Batch, tensors: list[Tensor]) -> list[Tensor]:
    """Return tensors in the dtype in which to compute, as they are where they have that."""
    dtype = batch.working_dtype
    return tensors if tensors[0].dtype == dtype else _flat(tensors, batch.parameters, dtype)[1]


def _flat(tensors: list[Tensor], like: list[Tensor], dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
    """Copy tensors into one of one dimension; return it and its views, laid out as ``like``."""
    flat = torch.empty(sum(t.numel() for t in like), dtype=dtype, device=like[0].device)
    views = _split(flat, like)
    torch._foreach_copy_(views, tensors)
    return flat, views


def _split(flat: Tensor, like: list[Tensor]) -> list[Tensor]:
    """Return views of ``flat`` of the shapes of ``like``, and of their strides where those fill the memory."""
    parts = torch.split(flat, [t.numel() for t in like])
    return [
        part.view(t.shape) if t.is_contiguous() or not is_dense(t) else part.as_strided(t.shape, t.stride())
        for part, t in zip(parts, like, strict=True)
    ]

"""Proximal steps after a step, for groups with a function g beside the loss."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from npgm._common import optimizers
from npgm.proximal import Proximable
from npgm.proximal.joint import is_entrywise, joint_step, step_or_prox
from npgm.references import Isotropic, Reference, Spectral
from npgm.torch.batch import Batch
from npgm.torch.options import has_norm, scope_of
from npgm.torch.paths.single import as_matrix


@torch._disable_dynamo  # type: ignore[attr-defined]  # some search for a number, in a loop that ends when it is found
def step(batches: Sequence[Batch], vectors: Collection[Sequence[int]], keep: Tensor | None) -> None:
    """Take the parameters from y = x - γ m, where they are, to argmin g + γ φ((· - y)/γ), in place.

    Args:
        batches: those of all groups.
        vectors: the places of the batches that an isotropic φ sees as one vector.
        keep: without dimensions; nothing moves if it is False.
    """
    for batch in batches:
        if _has_step(batch) and not _is_joint(batch):
            options, prox, lr = batch.options, batch.options.prox, float(batch.options.rate)
            for x in batch.parameters:
                _move(x, _step(prox, options.phi, x, lr, options.matrix_form, options.adjust), keep)
    for places in vectors:
        members = [batches[i] for i in places if _has_step(batches[i]) and _is_joint(batches[i])]
        terms = [(batch.options.prox, x, float(batch.options.rate)) for batch in members for x in batch.parameters]
        if terms:
            functions, points, rates = map(list, zip(*terms, strict=True))
            for x, z in zip(points, joint_step(members[0].options.phi, functions, points, rates), strict=True):
                _move(x, z, keep)


def fault(prox: Proximable, phi: Reference, parameter: Tensor, adjust: str | None, form: str) -> str | None:
    """Return why there is no step for such a parameter, or None if there is one."""
    if parameter.is_complex():
        return f"is complex, which prox={prox!r} does not support"
    zeros = torch.zeros(parameter.shape, dtype=torch.float32, device="cpu")
    try:
        _step(prox, phi, zeros, 1.0, form, adjust)
    except ValueError as error:
        return f"of shape {tuple(parameter.shape)} has no step of prox: {error}"
    return None


def is_searched(group: dict[str, Any]) -> bool:
    """Whether the parameters of a group share a number on which their proximal steps depend."""
    prox = group["prox"]
    return prox is not None and not prox.indicator and has_norm(group) and scope_of(group) != "tensor"


def may_be_sharded(prox: Proximable, phi: Reference) -> bool:
    """Whether the step of a part of a parameter is that part of the step."""
    return is_entrywise(prox, phi)


def _has_step(batch: Batch) -> bool:
    # where γ is zero, so is the step
    return batch.options.prox is not None and float(batch.options.rate) > 0.0


def _is_joint(batch: Batch) -> bool:
    return isinstance(batch.options.phi, Isotropic) and batch.options.scope != "tensor"


def _step(prox: Proximable, phi: Reference, y: Tensor, lr: float, form: str, adjust: str | None) -> Tensor:
    if not isinstance(phi, Spectral):
        z: Tensor = step_or_prox(prox, phi, y, lr)
        return z
    view = as_matrix(y, form)
    if adjust is not None:  # φ is a multiple a of the one named, of its argument over a
        lr *= optimizers.adjustment(adjust, *view.shape[-2:])
    z = step_or_prox(prox, phi, view, lr, (-2, -1))
    return z.reshape(y.shape)


def _move(x: Tensor, z: Tensor, keep: Tensor | None) -> None:
    x.copy_(z if keep is None else torch.where(keep.to(x.device), z, x))

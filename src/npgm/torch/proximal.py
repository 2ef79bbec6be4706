"""Proximal steps after a step, for groups with a function g beside the loss."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from npgm._common import optimizers
from npgm.proximal.base import Proximable
from npgm.proximal.joint import is_entrywise, joint_step, step_or_prox
from npgm.references import Isotropic, Reference, Spectral
from npgm.torch.batch import Batch
from npgm.torch.groups import checked_reference, has_norm, scope_of
from npgm.torch.matrix_form import as_matrices, of_matrices
from npgm.torch.options import Options


@torch._disable_dynamo  # type: ignore[attr-defined]  # some search for a number, in a loop that ends when it is found
def step(
    batches: Sequence[Batch],
    vectors: Collection[Sequence[int]],
    scales: Sequence[Tensor | None],
    applies: Tensor | None,
) -> None:
    """Take the parameters from y = x - γ m, where they are, to argmin g + γ φ((· - y)/γ), in place.

    Args:
        batches: those of all groups.
        vectors: the places of the batches that an isotropic φ sees as one vector.
        scales: of each batch the λ that follows the gradients, of one element or one for each parameter.
        applies: without dimensions; nothing moves if it is False.
    """
    # where γ is zero, so is the step
    rates = [0.0 if batch.options.prox is None else float(batch.options.rate) for batch in batches]
    for batch, scale, lr in zip(batches, scales, rates, strict=True):
        if lr > 0.0 and not _is_joint(batch.options):
            own = [None] * len(batch.parameters) if scale is None else scale.expand(len(batch.parameters)).tolist()
            for x, value in zip(batch.parameters, own, strict=True):
                if (phi := _with_scale(batch.options.phi, value)) is not None:
                    _move(x, _step(batch.options, phi, x, lr), applies)
    for places in vectors:
        # groups of different φ share a norm and no φ: those of each φ are a vector to it
        vector: dict[Isotropic, list[tuple[Proximable, Tensor, float]]] = {}
        for i in places:
            batch, scale, lr = batches[i], scales[i], rates[i]
            if lr > 0.0 and _is_joint(batch.options):
                phi = _with_scale(batch.options.phi, None if scale is None else scale.item())
                if isinstance(phi, Isotropic) and batch.options.prox is not None:
                    vector.setdefault(phi, []).extend((batch.options.prox, x, lr) for x in batch.parameters)
        for phi, terms in vector.items():
            functions, points, own_rates = map(list, zip(*terms, strict=True))
            for x, z in zip(points, joint_step(phi, functions, points, own_rates), strict=True):
                _move(x, z, applies)


def fault(options: Options, parameter: Tensor) -> str | None:
    """Return why there is no step for such a parameter, or None if there is one."""
    if parameter.is_complex():
        return f"is complex, which prox={options.prox!r} does not support"
    zeros = torch.zeros(parameter.shape, dtype=torch.float32, device="cpu")
    try:
        _step(options, options.phi, zeros, 1.0)
    except ValueError as error:
        return f"of shape {tuple(parameter.shape)} has no step of prox: {error}"
    return None


def is_searched(group: dict[str, Any]) -> bool:
    """Whether the parameters of a group share a number on which their proximal steps depend."""
    prox = group["prox"]
    return prox is not None and not prox.indicator and has_norm(group) and scope_of(group) != "tensor"


def may_be_sharded(group: dict[str, Any]) -> bool:
    """Whether the proximal step of a part of a parameter is that part of the step."""
    return is_entrywise(group["prox"], checked_reference(group))


def _is_joint(options: Options) -> bool:
    return isinstance(options.phi, Isotropic) and options.scope != "tensor"


def _with_scale(phi: Reference, scale: float | None) -> Reference | None:
    """Return φ with a λ that follows the gradients; None where that is no number that φ can have."""
    if scale is None:
        return phi
    return phi.with_scale(scale) if 0.0 < scale < math.inf else None


def _step(options: Options, phi: Reference, y: Tensor, lr: float) -> Tensor:
    assert options.prox is not None
    if not isinstance(phi, Spectral):
        z: Tensor = step_or_prox(options.prox, phi, y, lr)
        return z
    matrices = as_matrices(y, options)
    if options.adjust is not None:  # φ is a multiple a of the one named, of its argument over a
        lr *= optimizers.adjustment(options.adjust, *matrices.shape[-2:])
    return of_matrices(step_or_prox(options.prox, phi, matrices, lr, (-2, -1)), y, options)


def _move(x: Tensor, z: Tensor, applies: Tensor | None) -> None:
    x.copy_(z if applies is None else torch.where(applies.to(x.device), z, x))

"""How far the preconditioner was from linear: what a step leaves behind, and what is made of it on request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from npgm.torch import norms
from npgm.torch.batch import Batch, Moved
from npgm.torch.norms import Norm


class Saturation(NamedTuple):
    """How far ∇φ* was from linear in the last step of a parameter group, in tensors without dimensions."""

    value: Tensor
    """1 - λ ‖u‖ / (h*''(0) ‖y‖), where u = ∇φ*(y): 0 where the step was one of plain gradient descent, near 1 where the
    gradient was clipped. It is 0 for y = 0, and negative if φ makes large gradients larger, as few kernels do. It is 1
    if h*''(0) is infinite, as for normalised gradients, and -inf if h*''(0) = 0. NaN after a step that was skipped."""
    input_norm: Tensor
    """‖y‖, of what the preconditioner was given: the gradient, or the momentum where that comes before it."""
    output_norm: Tensor
    """‖u‖, before ``lr``, ``adjust`` and the momentum that comes after."""
    scale: Tensor
    """λ; where each tensor has its own, their root mean square, weighted by ‖u‖²."""


@dataclass(frozen=True, eq=False)
class Tracked:
    """What a step leaves behind of one batch: norms of the whole batch, or of each tensor."""

    group: int
    curvature: float
    """h*''(0)."""
    given: Tensor
    """‖y‖."""
    made: Tensor
    """‖u‖."""
    scale: float | Tensor
    """λ."""


def tracked(
    batches: Sequence[Batch],
    measured: Sequence[Norm | None],
    factors: Sequence[Tensor | None],
    scales: Sequence[Tensor | None],
    moved: Sequence[Moved],
    keep: Tensor | None,
) -> list[Tracked]:
    """Return what a step leaves behind of the batches whose groups ask for it.

    Args:
        batches: what was moved.
        measured: the norms of what φ was given, where they were taken.
        factors: what `npgm.torch.batch.Path.move` was given.
        scales: each λ that follows the gradients.
        moved: what that function returned.
        keep: whether anything was moved, without dimensions.
    """
    if torch.compiler.is_compiling():
        return []
    chosen = [i for i, batch in enumerate(batches) if batch.options.track]
    pairs = [_pair(measured[i], factors[i], moved[i]) for i in chosen]
    # an isotropic φ was told the norms of whole tensors already
    groups = [batches[i].process_groups if moved[i] is not None else () for i in chosen for _ in range(2)]
    whole = norms.over_shards([_norm(values) for pair in pairs for values in pair], groups)
    result = []
    for place, i in enumerate(chosen):
        phi, scale = batches[i].options.phi, scales[i]
        given, made = (_size(norm).detach() for norm in whole[2 * place : 2 * place + 2])
        if keep is not None:
            given, made = (torch.where(keep.to(values.device), values, torch.nan) for values in (given, made))
        curvature = phi.kernel.curvature_at_zero
        result.append(Tracked(batches[i].group, curvature, given, made, phi.scale if scale is None else scale))
    return result


def of_groups(tracked: Iterable[Tracked], count: int) -> list[Saturation | None]:
    """Return the saturation of each of so many groups, None for one of which nothing is known."""
    members: list[list[Tracked]] = [[] for _ in range(count)]
    for one in tracked:
        members[one.group].append(one)
    return [_of_group(own) if own else None for own in members]


def _pair(measured: Norm | None, factor: Tensor | None, moved: Moved) -> tuple[Tensor, Tensor]:
    """Return ‖y‖ and ‖u‖ in the widest dtype."""
    if moved is None:
        assert measured is not None
        assert factor is not None
        given = _size(measured)
        return given, given * factor
    given, made = (values.to(norms.widest_dtype(values.device)) for values in moved)
    return given, made


def _of_group(members: list[Tracked]) -> Saturation:
    given, made = (_total([getattr(one, name) for one in members]) for name in ("given", "made"))
    product = _total([one.made * one.scale for one in members])
    value = torch.where(given == 0, torch.zeros_like(given), 1.0 - product / (members[0].curvature * given))
    largest = torch.stack([torch.as_tensor(one.scale).to(made).amax() for one in members]).amax()
    return Saturation(value, given, made, torch.where(made == 0, largest, product / made))


def _total(values: Sequence[Tensor]) -> Tensor:
    return norms.total([_norm(one) for one in values])


def _norm(size: Tensor) -> Norm:
    return Norm(size, size / norms.divisor(size))


def _size(norm: Norm) -> Tensor:
    wide = Norm(*(value.to(norms.widest_dtype(value.device)) for value in norm))
    return norms.divisor(wide.largest) * wide.ratio

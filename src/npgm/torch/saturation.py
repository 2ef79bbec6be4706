"""How far the preconditioner was from linear: what a step leaves behind, and what is made of it on request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from npgm.references import Reference
from npgm.torch import norms
from npgm.torch.batch import Batch, Lengths
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


class Tracked(NamedTuple):
    """What a step leaves behind of one batch, of which nothing is computed before somebody asks."""

    group: int
    phi: Reference
    lengths: tuple[float, float] | tuple[Tensor, Tensor] | tuple[Norm, Tensor]
    """‖y‖ and ‖u‖ of the whole batch or of each tensor; of an isotropic φ the former and the factor."""
    scale: float | Tensor
    """λ."""
    applies: Tensor | None = None
    """Whether anything was moved, without dimensions."""

    def read(self) -> tuple[Tensor, Tensor]:
        """Return ‖y‖ and ‖u‖ in the widest dtype, NaN if nothing was moved."""
        given, made = self.lengths
        if isinstance(given, float):
            given, made = torch.tensor([[given], [made]], dtype=torch.float64, device="cpu")
        elif isinstance(given, Norm):
            given = _size(given)
            made = given * made
        assert isinstance(made, Tensor)
        pair = (values.detach().to(norms.widest_dtype(values.device)) for values in (given, made))
        if self.applies is not None:
            applies = self.applies
            pair = (torch.where(applies.to(values.device), values, torch.nan) for values in pair)
        given, made = pair
        return given, made


def tracked(
    batches: Sequence[Batch],
    measured: Sequence[Norm | None],
    factors: Sequence[Tensor | None],
    scales: Sequence[Tensor | None],
    moved: Sequence[Lengths],
    applies: Tensor | None,
) -> list[Tracked]:
    """Return what a step leaves behind of the batches whose groups ask for it.

    Args:
        batches: what was moved.
        measured: the norms of what φ was given, where they were taken.
        factors: what `npgm.torch.batch.Path.apply_step` was given.
        scales: each λ that follows the gradients.
        moved: what that function returned.
        applies: whether anything was moved, without dimensions.
    """
    chosen = [] if torch.compiler.is_compiling() else [i for i, batch in enumerate(batches) if batch.options.track]
    # an isotropic φ was told the norms of whole tensors already
    sharded = [i for i in chosen if batches[i].process_groups and moved[i] is not None]
    parts = [_norm(values) for i in sharded for values in moved[i] or ()]
    whole = [
        _size(norm) for norm in norms.over_shards(parts, [batches[i].process_groups for i in sharded for _ in (0, 1)])
    ]
    pairs = dict(zip(sharded, zip(whole[::2], whole[1::2], strict=True), strict=True))
    result = []
    for i in chosen:
        phi, scale = batches[i].options.phi, scales[i]
        lengths: Any = pairs.get(i) or moved[i] or (measured[i], factors[i])
        result.append(Tracked(batches[i].group, phi, lengths, phi.scale if scale is None else scale, applies))
    return result


def of_numbers(batches: Sequence[Batch], lengths: Sequence[tuple[float, float]]) -> list[Tracked]:
    """Return what a step leaves behind that knows ‖y‖ and ‖u‖ of each batch on the host, NaN if nothing was moved."""
    return [
        Tracked(batch.group, batch.options.phi, pair, batch.options.phi.scale)
        for batch, pair in zip(batches, lengths, strict=True)
        if batch.options.track
    ]


def of_groups(tracked: Iterable[Tracked], count: int) -> list[Saturation | None]:
    """Return the saturation of each of so many groups, None for one of which nothing is known."""
    members: list[list[Tracked]] = [[] for _ in range(count)]
    for one in tracked:
        members[one.group].append(one)
    return [_of_group(own) if own else None for own in members]


def _of_group(members: list[Tracked]) -> Saturation:
    pairs = [one.read() for one in members]
    scales = [torch.as_tensor(one.scale).to(made) for one, (_, made) in zip(members, pairs, strict=True)]
    given, made = (_total(values) for values in zip(*pairs, strict=True))
    product = _total([u * scale for (_, u), scale in zip(pairs, scales, strict=True)])
    curvature = members[0].phi.kernel.curvature_at_zero
    value = torch.where(given == 0, torch.zeros_like(given), 1.0 - product / (curvature * given))
    largest = torch.stack([scale.amax() for scale in scales]).amax()
    return Saturation(value, given, made, torch.where(made == 0, largest, product / made))


def _total(values: Sequence[Tensor]) -> Tensor:
    return norms.total([_norm(one) for one in values])


def _norm(size: Tensor) -> Norm:
    return Norm(size, size / norms.divisor(size))


def _size(norm: Norm) -> Tensor:
    wide = Norm(*(value.to(norms.widest_dtype(value.device)) for value in norm))
    return norms.divisor(wide.largest) * wide.ratio

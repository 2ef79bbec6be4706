"""One step of the method on all groups: gather → measure → factor → move.

The mathematics is that of `npgm.references`. What differs between the paths is how they measure and how they move.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import array_api_compat.torch
import torch
from torch import Tensor

from npgm._array import as_real_array
from npgm.references import Isotropic
from npgm.torch import norms
from npgm.torch.gather import Batch
from npgm.torch.norms import Norm
from npgm.torch.paths import native

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# known before torch.compile traces a step
as_real_array(torch.empty(0, dtype=torch.float32))
as_real_array(torch.empty(0, dtype=torch.float64))


def step(
    batches: Sequence[Batch], found_inf: Tensor | None = None, process_group: ProcessGroup | None = None
) -> list[Norm] | float | None:
    """Move the parameters of all groups by one step, in place; return the norms of what isotropic φ were given.

    They are those of each vector, or where they are on the host anyway that of all of them.

    Args:
        batches: what `npgm.torch.gather` makes of each group.
        found_inf: of one element, nonzero if the step is to leave everything as it is.
        process_group: the processes that hold other parameters of the same vector; see `NPGM.process_group`.
    """
    if process_group is None and native.takes(batches):
        return native.step(batches, found_inf)
    for device in {batch.parameters[0].device.type for batch in batches}:
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):
                return step(batches, found_inf, process_group)
    measured = _measure(batches)
    vectors = _vectors(batches, measured, process_group)
    factors = _factors(batches, measured, vectors)
    keep = _keep(batches, measured, found_inf, process_group)
    for batch, factor in zip(batches, factors, strict=True):
        batch.path.move(batch, factor, keep)
    return [vector.norm for vector in vectors]


class _Vector(NamedTuple):
    """The batches whose gradients have one norm, by their places, and that norm."""

    members: list[int]
    norm: Norm


def _measure(batches: Sequence[Batch]) -> list[Norm | None]:
    """Return the norm of what φ is given, for each batch in which somebody asks for it."""
    asked = [batch.options.rule.isotropic or batch.options.nonfinite == "skip" for batch in batches]
    some = [batch for batch, is_asked in zip(batches, asked, strict=True) if is_asked]
    parts = [batch.path.measure(batch) for batch in some]
    whole = norms.over_shards(parts, [batch.process_groups for batch in some])
    return [whole.pop(0) if is_asked else None for is_asked in asked]


def _vectors(
    batches: Sequence[Batch], measured: Sequence[Norm | None], process_group: ProcessGroup | None
) -> list[_Vector]:
    """Return the vectors that the batches with an isotropic φ make up."""
    members: defaultdict[Any, list[int]] = defaultdict(list)
    for i, batch in enumerate(batches):
        if batch.options.rule.isotropic:
            scope = batch.options.scope
            members[scope, {"global": 0, "group": batch.group, "tensor": i}[scope]].append(i)
    if process_group is not None:
        members["global", 0] += []  # to which others may add
    vectors = []
    for (scope, _), places in members.items():
        norm = norms.together([part for i in places if (part := measured[i]) is not None])
        if process_group is not None and scope == "global":
            norm = norms.over_processes(norm, process_group)
        vectors.append(_Vector(places, norm))
    return vectors


def _factors(
    batches: Sequence[Batch], measured: Sequence[Norm | None], vectors: Sequence[_Vector]
) -> list[Tensor | None]:
    """Return, for each batch with an isotropic φ, the numbers by which ∇φ* multiplies what it is given."""
    factors: list[Tensor | None] = [None] * len(batches)
    for members, norm in vectors:
        m = norms.divisor(norm.largest)
        made: dict[Any, Tensor] = {}  # each number once, in the dtypes and on the devices of what it multiplies
        for i in members:
            phi, part = batches[i].options.phi, measured[i]
            assert isinstance(phi, Isotropic) and part is not None  # noqa: PT018
            key = (batches[i].group, part.largest.device, part.largest.dtype)
            if key not in made:
                factor = phi.factor(array_api_compat.torch, m, norm.ratio) / m
                made[key] = norms.finite(factor.to(part.largest.device, part.largest.dtype))
            factors[i] = made[key]
    return factors


def _keep(
    batches: Sequence[Batch],
    measured: Sequence[Norm | None],
    found_inf: Tensor | None,
    process_group: ProcessGroup | None,
) -> Tensor | None:
    """Return whether to move, as a tensor without dimensions, or None if that is not asked."""
    flags = [] if found_inf is None else [found_inf.reshape(1) == 0]
    for batch, norm in zip(batches, measured, strict=True):
        if batch.options.nonfinite == "skip" and norm is not None:
            flags.append(torch.isfinite(norm.largest))
    if process_group is not None:
        return norms.all_over_processes(flags, process_group)
    return torch.cat([flag.to(flags[0].device) for flag in flags]).all() if flags else None

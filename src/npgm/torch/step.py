"""One step of the method on all groups: gather → measure → factor → move.

The mathematics is that of `npgm.references`. What differs between the paths is how they measure and how they move.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import array_api_compat.torch
import torch
from torch import Tensor

from npgm._common.array import as_real_array
from npgm.references import Isotropic
from npgm.torch import auto_scale, norms
from npgm.torch.batch import Batch
from npgm.torch.norms import Norm
from npgm.torch.paths import native

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# known before torch.compile traces a step
as_real_array(torch.empty(0, dtype=torch.float32))
as_real_array(torch.empty(0, dtype=torch.float64))


def step(
    batches: Sequence[Batch],
    found_inf: Tensor | None = None,
    process_group: ProcessGroup | None = None,
    shared: Collection[str] = (),
) -> list[Norm] | float | None:
    """Move the parameters of all groups by one step, in place; return the norms of what isotropic φ were given.

    They are those of each vector, or where they are on the host anyway that of all of them.

    Args:
        batches: what `npgm.torch.gather` makes of each group.
        found_inf: of one element, nonzero if the step is to leave everything as it is.
        process_group: the processes that hold other parameters of the same vector; see `NPGM.process_group`.
        shared: the lifts of φ of which they take a norm together.
    """
    if process_group is None and native.takes(batches) and (found_inf is None or not found_inf.item()):
        return native.step(batches)
    for device in {batch.parameters[0].device.type for batch in batches}:
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):
                return step(batches, found_inf, process_group, shared)
    measured = _measure(batches)
    vectors = _vectors(batches, measured, process_group, shared)
    keep = _keep(batches, measured, found_inf, process_group)
    factors = _factors(batches, measured, vectors, keep)
    for batch, factor in zip(batches, factors, strict=True):
        batch.path.move(batch, factor, keep)
    return [vector.norm for vector in vectors if vector.lift == Isotropic.lift]


class _Vector(NamedTuple):
    """The batches whose gradients have one norm, by their places, and that norm; or one batch with many."""

    lift: str
    members: list[int]
    norm: Norm
    terms: list[int] | Tensor
    """See `npgm.torch.auto_scale.sizes`."""


def _measure(batches: Sequence[Batch]) -> list[Norm | None]:
    """Return the norm of what φ is given, for each batch in which somebody asks for it."""
    asked = [_has_vector(batch) or batch.options.nonfinite == "skip" for batch in batches]
    some = [batch for batch, is_asked in zip(batches, asked, strict=True) if is_asked]
    parts = [batch.path.measure(batch) for batch in some]
    whole = norms.over_shards(parts, [batch.process_groups for batch in some])
    return [whole.pop(0) if is_asked else None for is_asked in asked]


def _vectors(
    batches: Sequence[Batch],
    measured: Sequence[Norm | None],
    process_group: ProcessGroup | None,
    shared: Collection[str],
) -> list[_Vector]:
    """Return the vectors that the batches make up whose φ is isotropic or whose λ follows the gradients."""
    members: defaultdict[Any, list[int]] = defaultdict(list)
    if process_group is not None:
        for lift in sorted(shared):  # in which order all processes reduce, also those that have nothing to add
            members[lift, "global", 0] = []
    for i, batch in enumerate(batches):
        if _has_vector(batch):
            scope = batch.options.scope
            where = {"global": 0, "group": batch.group, "tensor": i}[scope]  # type: ignore[index]
            members[batch.options.phi.lift, scope, where].append(i)
    vectors = []
    for (lift, scope, _), places in members.items():
        norm = norms.joint([part for i in places if (part := measured[i]) is not None])
        if lift == Isotropic.lift:  # of which nothing is counted
            counts = [0] * len(norm.largest)
        else:
            tensors = [(batches[i].options, p) for i in places for p in batches[i].full or batches[i].parameters]
            counts = [auto_scale.terms(options, p) for options, p in tensors]
        terms: list[int] | Tensor = counts if scope == "tensor" else [sum(counts)]
        if process_group is not None and scope == "global":
            norm = norms.over_processes(norm, process_group)
            if lift != Isotropic.lift:
                terms = norms.sum_over_processes(sum(counts), norm.largest, process_group)
        vectors.append(_Vector(lift, places, norm, terms))
    return vectors


def _has_vector(batch: Batch) -> bool:
    return batch.options.rule.isotropic or batch.options.automatic


def _factors(
    batches: Sequence[Batch], measured: Sequence[Norm | None], vectors: Sequence[_Vector], keep: Tensor | None
) -> list[Tensor | None]:
    """Return the factors of `npgm.torch.batch.Path.move` for each batch, and let λ follow what was measured."""
    factors: list[Tensor | None] = [None] * len(batches)
    for vector in vectors:
        made: dict[Any, Tensor] = {}  # each number once, in the dtypes and on the devices of what it multiplies
        roots: dict[float, Tensor] = {}
        for i in vector.members:
            batch, part = batches[i], measured[i]
            assert part is not None
            key = (batch.group, part.largest.device, part.largest.dtype)
            if key not in made:
                scale = None
                if batch.options.automatic:
                    decay = batch.options.scale_decay
                    if decay not in roots:
                        roots[decay] = _updated_rms(batch, vector, keep)
                    scale = batch.options.relative_scale * roots[decay]
                factor = _factor(batch, vector.norm, scale)
                made[key] = norms.finite(factor.to(part.largest.device, part.largest.dtype))
            factors[i] = made[key]
    return factors


def _updated_rms(batch: Batch, vector: _Vector, keep: Tensor | None) -> Tensor:
    """Take what was measured into the state of a vector, or of many, and return the root mean square of each."""
    n = len(vector.norm.largest)
    rms, weight = batch.scale_rms[:n], batch.scale_weight[:n]  # the parameters of one vector hold the same
    norm = Norm(*(value.to(rms[0]) for value in vector.norm))
    return auto_scale.update_rms(auto_scale.sizes(norm, vector.terms), rms, weight, batch.options.scale_decay, keep)


def _factor(batch: Batch, norm: Norm, scale: Tensor | None) -> Tensor:
    """Return by what an isotropic φ multiplies what it is given, or the λ of any other."""
    phi = batch.options.phi
    if scale is not None and not isinstance(phi, Isotropic):
        limits = torch.finfo(norms.working_dtype(batch.parameters[0].dtype))
        return scale.clamp(limits.smallest_normal * limits.eps, limits.max)
    assert isinstance(phi, Isotropic)
    m, ratio = norms.divisor(norm.largest), norm.ratio
    argument = m
    if scale is not None:
        m, ratio = m.to(scale), ratio.to(scale)
        argument = norms.finite(m / scale)
    factor: Tensor = phi.factor(array_api_compat.torch, argument, ratio) / m
    return factor


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

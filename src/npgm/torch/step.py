"""One step of the method on all groups: gather → measure → factor → move → proximal step.

The mathematics is that of `npgm.references`. What differs between the paths is how they measure and how they move.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import array_api_compat.torch
import torch
from torch import Tensor

from npgm._common.array import as_real_array
from npgm.references import Isotropic
from npgm.torch import limit, norms, proximal, running, saturation, vectors
from npgm.torch.batch import Batch
from npgm.torch.norms import Norm
from npgm.torch.paths import native
from npgm.torch.rule import Rule
from npgm.torch.saturation import Tracked
from npgm.torch.vectors import Vector

# known before torch.compile traces a step
as_real_array(torch.empty(0, dtype=torch.float32))
as_real_array(torch.empty(0, dtype=torch.float64))


class Seen(NamedTuple):
    """What a step leaves behind."""

    norms: list[Norm] | float | None = None
    """Of what isotropic φ were given: of each vector, or where they are on the host anyway that of all of them."""
    tracked: Sequence[Tracked] = ()


def step(
    batches: Sequence[Batch],
    found_inf: Tensor | None = None,
    process_group: torch.distributed.ProcessGroup | None = None,
    shared: Collection[str] = (),
    limited: Collection[str] = (),
) -> Seen:
    """Move the parameters of all groups by one step, in place.

    Args:
        batches: what `npgm.torch.gather` makes of each group.
        found_inf: of one element, nonzero if the step is to leave everything as it is.
        process_group: the processes that hold other parameters of the same vector; see `NPGM.process_group`.
        shared: the lifts of φ of which they take a norm together.
        limited: the lifts of φ of which they limit the gradients together.
    """
    if process_group is None and native.takes(batches) and (found_inf is None or not found_inf.item()):
        if not any(batch.options.track for batch in batches):
            return Seen(native.step(batches))
        norm, lengths = native.step_tracked(batches)
        return Seen(norm, saturation.of_numbers(batches, lengths))
    for device in {batch.parameters[0].device.type for batch in batches}:
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):
                return step(batches, found_inf, process_group, shared, limited)
    cuts = limit.cut(batches, process_group, limited)
    measured = vectors.measured(batches, [_rule(batch) for batch in batches])
    seen = vectors.of(batches, [_has_vector(batch) for batch in batches], measured, process_group, shared)
    applies = _applies(batches, measured, found_inf, process_group)
    limit.remember(batches, cuts, applies)
    factors, scales = _factors(batches, measured, seen, applies)
    moved = [batch.path.apply_step(batch, factor, applies) for batch, factor in zip(batches, factors, strict=True)]
    if any(batch.options.prox is not None for batch in batches):
        proximal.step(batches, [vector.members for vector in seen if vector.lift == Isotropic.lift], scales, applies)
    return Seen(
        [vector.norm for vector in seen if vector.lift == Isotropic.lift],
        saturation.tracked(batches, measured, factors, scales, moved, applies),
    )


def _rule(batch: Batch) -> Rule | None:
    """Return the rule by which to measure what φ is given, or None if nobody asks for its norm."""
    return batch.options.rule if _has_vector(batch) or batch.options.nonfinite == "skip" else None


def _has_vector(batch: Batch) -> bool:
    return batch.options.rule.isotropic or batch.options.automatic


def _factors(
    batches: Sequence[Batch], measured: Sequence[Norm | None], seen: Sequence[Vector], applies: Tensor | None
) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """Let λ follow what was measured; return the factors of `Path.apply_step`, and each λ that follows."""
    factors: list[Tensor | None] = [None] * len(batches)
    scales: list[Tensor | None] = [None] * len(batches)
    for vector in seen:
        # each number once, in the dtypes and on the devices of what it multiplies
        made: dict[Any, tuple[Tensor, Tensor | None]] = {}
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
                        rms, weight = vector.known(batch.scale_rms, batch.scale_weight)
                        roots[decay] = running.update_rms(vector.sizes(rms[0]), rms, weight, applies, decay=decay)
                    scale = batch.options.relative_scale * roots[decay]
                factor = _factor(batch, vector.norm, scale)
                made[key] = norms.finite(factor.to(part.largest.device, part.largest.dtype)), scale
            factors[i], scales[i] = made[key]
    return factors, scales


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


def _applies(
    batches: Sequence[Batch],
    measured: Sequence[Norm | None],
    found_inf: Tensor | None,
    process_group: torch.distributed.ProcessGroup | None,
) -> Tensor | None:
    """Return whether the step applies, as a tensor without dimensions, or None if that is not asked."""
    flags = [] if found_inf is None else [found_inf.reshape(1) == 0]
    for batch, norm in zip(batches, measured, strict=True):
        if batch.options.nonfinite == "skip" and norm is not None:
            flags.append(torch.isfinite(norm.largest))
    if process_group is not None:
        return norms.all_over_processes(flags, process_group)
    return torch.cat([flag.to(flags[0].device) for flag in flags]).all() if flags else None

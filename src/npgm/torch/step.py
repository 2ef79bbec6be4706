"""One step of the method on all groups: gather → measure → factor → move.

The mathematics is that of `npgm.references`. What differs between the paths is how they measure and how they move.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import array_api_compat.torch
import torch
from torch import Tensor

from npgm._array import as_real_array
from npgm.references import Isotropic
from npgm.torch import norms
from npgm.torch.gather import Batch
from npgm.torch.norms import Norm
from npgm.torch.paths import native

# known before torch.compile traces a step
as_real_array(torch.empty(0, dtype=torch.float32))
as_real_array(torch.empty(0, dtype=torch.float64))


def step(batches: Sequence[Batch], found_inf: Tensor | None = None) -> None:
    """Move the parameters of all groups by one step, in place.

    Args:
        batches: what `npgm.torch.gather` makes of each group.
        found_inf: of one element, nonzero if the step is to leave everything as it is.
    """
    if native.takes(batches):
        return native.step(batches, found_inf)
    measured = _measure(batches)
    factors = _factors(batches, measured)
    keep = _keep(batches, measured, found_inf)
    for batch, factor in zip(batches, factors, strict=True):
        batch.path.move(batch, factor, keep)
    return None


def _measure(batches: Sequence[Batch]) -> list[Norm | None]:
    """Return the norm of what φ is given, for each batch in which somebody asks for it."""
    asked = [batch.options.rule.isotropic or batch.options.nonfinite == "skip" for batch in batches]
    some = [batch for batch, is_asked in zip(batches, asked, strict=True) if is_asked]
    parts = [batch.path.measure(batch) for batch in some]
    whole = norms.over_shards(parts, [batch.process_groups for batch in some])
    return [whole.pop(0) if is_asked else None for is_asked in asked]


def _factors(batches: Sequence[Batch], measured: Sequence[Norm | None]) -> list[Tensor | None]:
    """Return, for each batch with an isotropic φ, the numbers by which ∇φ* multiplies what it is given."""
    vectors: defaultdict[Any, list[int]] = defaultdict(list)
    for i, batch in enumerate(batches):
        if batch.options.rule.isotropic:
            scope = batch.options.scope
            vectors[scope, {"global": 0, "group": batch.group, "tensor": i}[scope]].append(i)
    factors: list[Tensor | None] = [None] * len(batches)
    for vector in vectors.values():
        parts = [norm for i in vector if (norm := measured[i]) is not None]
        norm = norms.together(parts)
        m = norms.divisor(norm.largest)
        made: dict[Any, Tensor] = {}  # each number once, in the dtypes and on the devices of what it multiplies
        for i, part in zip(vector, parts, strict=True):
            key = (batches[i].group, part.largest.device, part.largest.dtype)
            if key not in made:
                phi = batches[i].options.phi
                assert isinstance(phi, Isotropic)
                factor = phi.factor(array_api_compat.torch, m, norm.ratio) / m
                made[key] = norms.finite(factor.to(part.largest.device, part.largest.dtype))
            factors[i] = made[key]
    return factors


def _keep(batches: Sequence[Batch], measured: Sequence[Norm | None], found_inf: Tensor | None) -> Tensor | None:
    """Return whether to move, as a tensor without dimensions, or None if that is not asked."""
    flags = [] if found_inf is None else [found_inf.reshape(1) == 0]
    for batch, norm in zip(batches, measured, strict=True):
        if batch.options.nonfinite == "skip" and norm is not None:
            flags.append(torch.isfinite(norm.largest))
    return torch.cat([flag.to(flags[0].device) for flag in flags]).all() if flags else None

"""``limit``: a gradient that is far longer than those before it is cut, by docs/spikes.md.

Nothing here reads a value on the host.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor

from npgm._common import optimizers
from npgm.torch import running, vectors
from npgm.torch.batch import Batch
from npgm.torch.vectors import Vector


def cut(
    batches: Sequence[Batch], process_group: torch.distributed.ProcessGroup | None, limited: Collection[str]
) -> list[Vector]:
    """Let the batches with a limit divide the gradients that are too long; return the vectors that these are.

    Args:
        batches: all of them.
        process_group, limited: see `npgm.torch.step.step`.
    """
    chosen = [batch.options.limit is not None for batch in batches]
    rules = [
        batch.options.gradient_rule if is_limited else None for batch, is_limited in zip(batches, chosen, strict=True)
    ]
    measured = vectors.measured(batches, rules)
    found = vectors.of(batches, chosen, measured, process_group, limited)
    for vector in found:
        for limit, members in _by_limit(batches, vector):
            rms, weight = (torch.stack(list(values)) for values in _known(members[0], vector))
            excess = optimizers.excess(torch, vector.lengths(rms), rms, weight, limit)
            for batch in members:
                own = excess.to(batch.gradients[0].device)
                batch.grad_scale = own if batch.grad_scale is None else own * batch.grad_scale.to(own).reshape(1)
    return found


def remember(batches: Sequence[Batch], cuts: Sequence[Vector], applies: Tensor | None) -> None:
    """Take the norms of the gradients, as they were cut, into the running means, if ``applies`` is not False."""
    for vector in cuts:
        for limit, (batch, *_) in _by_limit(batches, vector):
            rms, weight = _known(batch, vector)
            lengths = vector.lengths(rms[0])
            running.update_rms(lengths, rms, weight, applies, decay=optimizers.LIMIT_DECAY, outlier=limit)


def _by_limit(batches: Sequence[Batch], vector: Vector) -> Iterator[tuple[float, list[Batch]]]:
    """Yield the batches of a vector that have the same limit, and hence the same state."""
    members = [batches[i] for i in vector.members]
    for limit in dict.fromkeys(batch.options.limit for batch in members):
        if limit is not None:
            yield limit, [batch for batch in members if batch.options.limit == limit]


def _known(batch: Batch, vector: Vector) -> list[Sequence[Tensor]]:
    return vector.known(batch.limit_rms, batch.limit_weight)

"""The vectors that the gradients of the batches make up, and their norms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from npgm.references import Isotropic
from npgm.torch import auto_scale, norms
from npgm.torch.batch import Batch
from npgm.torch.norms import Norm
from npgm.torch.rule import Rule

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class Vector(NamedTuple):
    """The batches whose gradients have one norm, by their places, and that norm; or one batch with many."""

    lift: str
    members: list[int]
    norm: Norm
    terms: list[int] | Tensor
    """See `npgm.torch.auto_scale.sizes`."""

    def known(self, *states: Sequence[Tensor]) -> list[Sequence[Tensor]]:
        """Return what the states of a batch's parameters say of the vector, or of many: one vector's hold the same."""
        return [values[: len(self.norm.largest)] for values in states]


def measured(batches: Sequence[Batch], rules: Sequence[Rule | None]) -> list[Norm | None]:
    """Return the norm of what φ is given by a rule, for each batch for which there is one."""
    some = [(batch, rule) for batch, rule in zip(batches, rules, strict=True) if rule is not None]
    parts = [batch.path.measure(batch, rule) for batch, rule in some]
    whole = norms.over_shards(parts, [batch.process_groups for batch, _ in some])
    return [None if rule is None else whole.pop(0) for rule in rules]


def of(
    batches: Sequence[Batch],
    chosen: Sequence[bool],
    measured: Sequence[Norm | None],
    process_group: ProcessGroup | None,
    shared: Collection[str],
) -> list[Vector]:
    """Return the vectors that the chosen batches make up.

    Args:
        batches: all of them.
        chosen: whether a batch is part of a vector.
        measured: the norm of each of these.
        process_group, shared: see `npgm.torch.step.step`.
    """
    members: defaultdict[Any, list[int]] = defaultdict(list)
    if process_group is not None:
        for lift in sorted(shared):  # in which order all processes reduce, also those that have nothing to add
            members[lift, "global", 0] = []
    for i, batch in enumerate(batches):
        if chosen[i]:
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
        vectors.append(Vector(lift, places, norm, terms))
    return vectors

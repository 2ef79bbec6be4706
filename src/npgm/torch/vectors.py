"""The vectors that the gradients of the batches make up, and their norms."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from npgm.references import Isotropic, Spectral
from npgm.torch import norms
from npgm.torch.batch import Batch
from npgm.torch.matrix_form import rows_and_columns
from npgm.torch.norms import Norm
from npgm.torch.options import Options
from npgm.torch.rule import Rule


class Vector(NamedTuple):
    """The batches whose gradients have one norm, by their places, and that norm; or one batch with many."""

    lift: str
    members: list[int]
    norm: Norm
    terms: list[int] | Tensor
    """Of how many entries or singular values each is, 0 for an isotropic φ."""

    def lengths(self, like: Tensor) -> Tensor:
        """Return the norm of the vector, or of each, as one number in the dtype and on the device of ``like``."""
        return norms.lengths(Norm(*(value.to(like) for value in self.norm)))

    def sizes(self, like: Tensor) -> Tensor:
        """Return what λ is measured by, norms or root mean squares: (1) of docs/auto-scale.md."""
        largest, ratio = (value.to(like) for value in self.norm)
        if isinstance(self.terms, Tensor):
            ratio = ratio / self.terms.clamp(min=1).sqrt()
        else:  # numbers that a CUDA graph keeps, where a tensor made of them would be copied from the host
            ratio = torch.stack(torch._foreach_div(list(ratio.unbind()), [math.sqrt(max(1, n)) for n in self.terms]))
        return norms.lengths(Norm(largest, ratio))

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
    process_group: torch.distributed.ProcessGroup | None,
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
            counts = [_terms(options, p) for options, p in tensors]
        terms: list[int] | Tensor = counts if scope == "tensor" else [sum(counts)]
        if process_group is not None and scope == "global":
            norm = norms.over_processes(norm, process_group)
            if lift != Isotropic.lift:
                terms = norms.sum_over_processes(sum(counts), norm.largest, process_group)
        vectors.append(Vector(lift, places, norm, terms))
    return vectors


def _terms(options: Options, parameter: Tensor) -> int:
    """Return how many entries or singular values of a parameter φ adds up, which is not isotropic."""
    n = parameter.numel()
    if isinstance(options.phi, Spectral):
        rows, columns = rows_and_columns(parameter.shape, options.matrix_form)
        return n // max(1, rows // options.blocks, columns)
    return 2 * n if parameter.is_complex() else n

"""What a step is taken of: the tensors of each group, in batches that one path moves together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.optim.optimizer import _default_to_fused_or_foreach

from npgm.references import Isotropic, Separable, Spectral
from npgm.torch import fused, norms
from npgm.torch.batch import Batch, Path
from npgm.torch.options import Options
from npgm.torch.paths import foreach, native, operators, single, spectral
from npgm.torch.running import KEYS

PATHS: dict[str, Path] = {"single": single, "foreach": foreach, "operators": operators, "spectral": spectral}


class Gathered(NamedTuple):
    """What a step needs of a group: those of its parameters that have gradients, and what belongs to each."""

    parameters: list[Tensor]
    gradients: list[Tensor]
    momentum: list[Tensor]
    """Empty without momentum."""
    known: Sequence[list[Tensor]]
    """What the states hold by `npgm.torch.running.KEYS`; empty for what they do not hold."""


_Local: TypeAlias = tuple[Tensor, Tensor, Tensor | None]


def gather(
    group: int, options: Options, tensors: Gathered, grad_scale: Tensor | None, taken: Any = None
) -> list[Batch]:
    """Sort the tensors of a group into batches, each for the fastest path that can take it.

    Args:
        group: the place of the group among all.
        options: what it says.
        tensors: its own.
        grad_scale: what the gradients were multiplied by, of one element.
        taken: the result of `npgm.torch.paths.native.taken` for these tensors.
    """
    parameters, gradients, momentum, known = tensors
    if taken is not None:
        of_each: dict[str, Any] = dict(zip(KEYS, known, strict=True))
        return [Batch(native, group, options, parameters, gradients, momentum, grad_scale, native=taken, **of_each)]
    buffers: Sequence[Tensor | None] = momentum or [None] * len(parameters)
    use_foreach = options.foreach
    if use_foreach is None:
        _, use_foreach = _default_to_fused_or_foreach(list(parameters), options.differentiable)
    use_foreach = use_foreach and isinstance(options.phi, Isotropic | Separable)
    is_spectral = isinstance(options.phi, Spectral) and not options.differentiable
    members: defaultdict[Any, list[_Local]] = defaultdict(list)
    places: defaultdict[Any, list[int]] = defaultdict(list)
    for i, (parameter, gradient, buffer) in enumerate(zip(parameters, gradients, buffers, strict=True)):
        process_groups = norms.shard_groups(parameter)
        x, g, m = local(parameter, gradient, buffer)
        if g.is_sparse:
            g = _sparse_or_dense(g, options, x.dtype)
        path, alone = ("foreach", None) if use_foreach and not g.is_sparse else ("single", i)
        if is_spectral:
            path, alone = "spectral", parameter.device_mesh if process_groups else None  # type: ignore[attr-defined]
        # Triton's steps are taken where they are asked for
        tries = bool(options.fused) if x.device.type == "cuda" else options.tries_fused
        if tries and x.device.type == "cuda" and not torch.compiler.is_compiling():
            fused.load([x.device])  # they may have moved there since they were given
        tries = tries and not process_groups and not options.tracks and fused.accepts(options.phi, x.device.type)
        if tries and fused.accepts_tensors(x, g, m):
            path, alone = "operators", None
        key = (path, process_groups, alone, x.device, x.dtype, g.dtype, None if m is None else m.dtype)
        members[key].append((x, g, m))
        places[key].append(i)
    batches = []
    for key, locals_ in members.items():
        path, process_groups, *_ = key
        xs, gs, ms = map(list, zip(*locals_, strict=True))
        own = [m for m in ms if m is not None]
        chosen = [[values[i] for i in places[key]] if values else [] for values in (parameters, *known)]
        batches.append(Batch(PATHS[path], group, options, xs, gs, own, grad_scale, process_groups, *chosen))
    return batches


def local(parameter: Tensor, gradient: Tensor, buffer: Tensor | None) -> _Local:
    """Return what this process holds of a parameter, its gradient and its momentum, complex numbers as pairs."""
    if norms.is_dtensor(parameter):
        # a nonlinear map needs the sum of partial gradients, as tensor parallelism leaves them
        if gradient.placements != parameter.placements:  # type: ignore[attr-defined]
            gradient = gradient.redistribute(placements=parameter.placements)  # type: ignore[attr-defined]
        parameter, gradient = parameter.to_local(), gradient.to_local()  # type: ignore[attr-defined]
        buffer = None if buffer is None else buffer.to_local()  # type: ignore[attr-defined]
    if parameter.is_complex():
        parameter, gradient = torch.view_as_real(parameter), _as_real(gradient)
        buffer = None if buffer is None else torch.view_as_real(buffer)
    return parameter, gradient, buffer


def _sparse_or_dense(gradient: Tensor, options: Options, dtype: torch.dtype) -> Tensor:
    """Return a sparse gradient with one value for each index, to which a nonlinear map can be applied.

    Momentum and decay make the step dense, and so does what has to be rounded.
    """
    makes_dense = options.momentum or options.weight_decay or isinstance(options.phi, Spectral)
    if makes_dense or dtype != norms.working_dtype(dtype):
        return gradient.to_dense()
    return gradient.coalesce()


def _as_real(gradient: Tensor) -> Tensor:
    """View complex numbers as pairs of reals, in a sparse tensor too."""
    if not gradient.is_sparse:
        return torch.view_as_real(gradient.resolve_conj())
    gradient = gradient.coalesce()
    values = torch.view_as_real(gradient.values())
    return torch.sparse_coo_tensor(
        gradient.indices(), values, (*gradient.shape, 2), is_coalesced=True, check_invariants=False
    )

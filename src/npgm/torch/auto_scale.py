"""λ that follows the gradients, by docs/auto-scale.md: what is remembered of each vector, and how λ is made of it.

Nothing here reads a value on the host.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from npgm._common import optimizers
from npgm.references import Spectral
from npgm.torch import norms
from npgm.torch.norms import Norm
from npgm.torch.options import Options, scope_of

KEYS = ("scale_rms", "scale_weight")
"""What a parameter's state holds of its vector, without dimensions: the square root of the moving average of squares,
from 0, and the sum of the weights of that average. The parameters of one vector hold the same tensors."""


def new_state(parameter: Tensor) -> dict[str, Tensor]:
    """Return the state of a vector that begins with this parameter."""
    device = parameter.device
    return {key: torch.zeros((), dtype=norms.widest_dtype(device), device=device) for key in KEYS}


def shared_state(state: dict[Any, dict[str, Tensor]], groups: Iterable[dict[str, Any]], group: dict[str, Any]) -> Any:
    """Return the state that the vector of a group has already, or None; each tensor by itself shares none."""
    if (vector := _vector(group)) is None:
        return None
    for other in groups:
        if _vector(other) == vector:
            for parameter in other["params"]:
                if KEYS[0] in state.get(parameter, ()):
                    return {key: state[parameter][key] for key in KEYS}
    return None


def join(state: dict[Any, dict[str, Tensor]], groups: Iterable[dict[str, Any]]) -> None:
    """Let the parameters of each vector hold the same tensors again, those that have seen most, after a loading."""
    vectors: dict[Any, list[Tensor]] = {}
    for group in groups:
        if (vector := _vector(group)) is not None:
            vectors.setdefault(vector, []).extend(p for p in group["params"] if KEYS[0] in state.get(p, ()))
    for parameters in vectors.values():
        if parameters:
            known = [p for p in parameters if not p.is_meta] or parameters[:1]
            longest = known[0] if len(known) == 1 else max(known, key=lambda p: float(state[p][KEYS[1]]))
            for parameter in parameters:
                state[parameter].update({key: state[longest][key] for key in KEYS})


def _vector(group: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return what the groups have in common whose parameters are one vector, followed as one."""
    if group["scale"] != "auto" or (scope := scope_of(group)) == "tensor":
        return None
    lift, _, _ = group["reference"].partition("-")
    return lift, scope, id(group) if scope == "group" else 0, group["scale_decay"]


def terms(options: Options, parameter: Tensor) -> int:
    """Return how many entries or singular values of a parameter φ adds up, which is not isotropic."""
    n, shape = parameter.numel(), parameter.shape
    if isinstance(options.phi, Spectral):
        rows = shape[0] if shape else 1
        return n // max(
            1, *(shape[-2:] if options.matrix_form == "stack" and len(shape) > 1 else (rows, n // max(1, rows)))
        )
    return 2 * n if parameter.is_complex() else n


def sizes(norm: Norm, counts: Sequence[int] | Tensor) -> Tensor:
    """Return what λ is measured by, norms or root mean squares: (1) of the page, in the dtype of ``norm``.

    Args:
        norm: the norm of each vector.
        counts: of how many terms each is, 0 where the norm itself is asked for.
    """
    if isinstance(counts, Tensor):
        ratio = norm.ratio / counts.clamp(min=1).sqrt()
    else:  # numbers that a CUDA graph keeps, where a tensor made of them would be copied from the host
        ratio = torch.stack(torch._foreach_div(list(norm.ratio.unbind()), [math.sqrt(max(1, n)) for n in counts]))
    return torch.where(torch.isfinite(norm.largest), norms.divisor(norm.largest) * ratio, torch.nan)


def update_rms(
    size: Tensor, rms: Sequence[Tensor], weight: Sequence[Tensor], decay: float, keep: Tensor | None
) -> Tensor:
    """Take sizes into the running mean of each vector, if ``keep`` is not False; return its root, (4) with κ = 1."""
    s, w = torch.stack(list(rms)), torch.stack(list(weight))
    mean: Tensor
    s, w, mean = optimizers.update_rms(torch, size, s, w, decay, True if keep is None else keep.to(size.device))
    torch._foreach_copy_([*rms, *weight], [*s.unbind(), *w.unbind()])
    return mean

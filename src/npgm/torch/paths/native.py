"""One pass over memory on the CPU, by the native module.

Elsewhere than in a graph of `torch.compile` it is called without the dispatcher of torch, which would take longer for
thousands of tensors than the step of small ones; and for all groups in one call where it has all that is needed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from npgm import _native
from npgm.torch import fused
from npgm.torch.batch import Batch, Lengths
from npgm.torch.fused import DTYPES, PLAIN
from npgm.torch.norms import Norm
from npgm.torch.options import Options
from npgm.torch.rule import Rule

if TYPE_CHECKING:
    from npgm._native import _core

_KERNELS = _native.kernels()
_EXCHANGE: Any = None
_STEP: Any = None
if _native.available():
    _EXCHANGE = _native.core().Exchange.of(Tensor.__dlpack_c_exchange_api__, PLAIN)
    _STEP = _native.core().step


def taken(
    options: Options, parameters: list[Tensor], gradients: list[Tensor], momentum: list[Tensor]
) -> _core.Tensors | None:
    """Return all tensors of a group as the module takes them, if it takes the step of all of them in one call.

    Then they are supported, too, and finding that out takes less time than looking at each.
    """
    if not (options.native and parameters and fused.is_direct()):
        return None
    result: _core.Tensors | None = _EXCHANGE.tensors(parameters, gradients, momentum)
    return result


def addresses(parameters: list[Tensor], gradients: list[Tensor], momentum: list[Tensor]) -> _core.Tensors:
    """Return tensors of equal dtypes, each of which `fused.accepts_tensors`, as the module takes them."""
    result: _core.Tensors = _native.core().Tensors(
        list(map(Tensor.data_ptr, parameters)),
        list(map(Tensor.data_ptr, gradients)),
        list(map(Tensor.data_ptr, momentum)),
        list(map(Tensor.numel, parameters)),
        dtype=DTYPES[parameters[0].dtype],
        momentum_dtype=DTYPES[momentum[0].dtype] if momentum else "",
    )
    return result


def takes(batches: Sequence[Batch]) -> bool:
    """Whether all of a step is one call of the module."""
    for batch in batches:
        options = batch.options
        if batch.native is None or options.rule.kernel not in _KERNELS:
            return False
        if options.automatic or options.limit is not None or options.prox is not None:
            return False
    return bool(batches)


def step(batches: Sequence[Batch]) -> float | None:
    """Measure, factor and move, as `npgm.torch.step` does it; return the norm of all that isotropic φ are given."""
    norm: float | None = _step(_STEP, batches)
    return norm


def step_tracked(batches: Sequence[Batch]) -> tuple[float | None, list[tuple[float, float]]]:
    """Do the same; return with the norm ‖y‖ and ‖∇φ*(y)‖ of each batch, NaN if nothing was moved."""
    stepped: tuple[float | None, list[tuple[float, float]]] = _step(_native.core().step_tracked, batches)
    return stepped


def _step(call: Any, batches: Sequence[Batch]) -> Any:
    parts, written = [], []
    for batch in batches:
        options = batch.options
        vector = batch.group if options.scope == "group" else -1
        parts.append(
            (
                batch.native,
                _rule(options.rule),
                float(options.lr) * options.multiple,
                vector,
                options.nonfinite == "skip",
            )
        )
        written += batch.parameters
        written += batch.momentum
    torch.autograd.graph.increment_version(written)
    grad_scale = batches[0].grad_scale
    return call(parts, grad_scale=1.0 if grad_scale is None else grad_scale.item(), threads=torch.get_num_threads())


def measure(batch: Batch, rule: Rule) -> Norm:
    """See `npgm.torch.batch.Path`."""
    return Norm(*_measure(batch.native, rule, batch.grad_scale))


def apply_step(batch: Batch, factor: Tensor | None, applies: Tensor | None) -> Lengths:
    """See `npgm.torch.batch.Path`."""
    tracks = batch.options.tracks
    if applies is None or applies.item():
        torch.autograd.graph.increment_version([*batch.parameters, *batch.momentum])
        lengths = _apply_step(batch.native, batch.options.rule, factor, batch.options.rate, batch.grad_scale, tracks)
    else:
        lengths = 2 * ([math.nan] * len(batch.parameters),)
    if not tracks:
        return None
    given, made = torch.tensor(lengths, dtype=torch.float64, device="cpu")
    return given, made


def _measure(native: _core.Tensors, rule: Rule, grad_scale: Tensor | None) -> Tensor:
    measured = _native.core().measure(
        native, _rule(rule), grad_scales=_numbers(grad_scale), threads=torch.get_num_threads()
    )
    return torch.tensor(measured, dtype=torch.float64, device="cpu")


def _apply_step(
    native: _core.Tensors,
    rule: Rule,
    factor: Tensor | None,
    lr: float | Tensor,
    grad_scale: Tensor | None,
    track: bool = False,
) -> tuple[list[float], list[float]]:
    lengths: tuple[list[float], list[float]] = _native.core().apply_step(
        native,
        _rule(rule),
        factors=[] if factor is None else factor.tolist(),
        lr=float(lr),
        grad_scales=_numbers(grad_scale),
        threads=torch.get_num_threads(),
        track=track,
    )
    return lengths


def _numbers(grad_scale: Tensor | None) -> list[float]:
    return [1.0] if grad_scale is None else grad_scale.reshape(-1).tolist()


@functools.lru_cache
def _rule(rule: Rule) -> _core.Rule:
    if rule.kernel not in _KERNELS:  # of an isotropic φ, whose factor comes from elsewhere
        rule = rule._replace(kernel="", parameters=())
    result: _core.Rule = _native.core().Rule(**rule._asdict())
    return result


def _measure_operator(
    points: list[Tensor], gradients: list[Tensor], averages: list[Tensor], grad_scale: Tensor | None, **rule: Any
) -> Tensor:
    return _measure(addresses(points, gradients, averages), Rule.of_arguments(**rule), grad_scale)


def _apply_step_operator(
    points: list[Tensor],
    gradients: list[Tensor],
    averages: list[Tensor],
    factors: Tensor | None,
    lr: Tensor,
    grad_scale: Tensor | None,
    applies: Tensor | None,
    **rule: Any,
) -> None:
    if applies is None or applies.item():
        torch.autograd.graph.increment_version([*points, *averages])
        _apply_step(addresses(points, gradients, averages), Rule.of_arguments(**rule), factors, lr, grad_scale)


torch.library.impl("npgm::measure", "CPU", _measure_operator)
torch.library.impl("npgm::apply_step_", "CPU", _apply_step_operator)

"""Numbers to begin with, from measured gradients and the numbers of other optimizers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from npgm._common import validate

MARGIN = 10.0
"""By what the scales are below the gradients, so that these are well beyond them."""

_MAPS = {"NGD": lambda t: t / (1.0 + t), "IHGD": math.asinh, "SNGD": lambda t: t / (1.0 + t), "SHGD": math.asinh}
"""The maps of the optimizers, of one number over λ."""


@dataclass(frozen=True)
class Suggestion:
    """What was measured, and the options that follow from it.

    Args:
        gradient_norm: the median norm of the gradient of all parameters.
        rms: the median of the root mean square of each parameter's gradient, by the parameter's name.
        options: the options of the optimizers of `npgm.torch`, by name, such as ``"NGD"``.
        automatic: the options with ``scale="auto"``, by the same names, and those of `SpectralGD` for a model's
            `matrices`.
    """

    gradient_norm: float
    rms: dict[str, float]
    options: dict[str, dict[str, float]] = field(default_factory=dict)
    automatic: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __str__(self) -> str:
        width = max(map(len, self.rms))
        lines = [f"median norm of the gradient: {self.gradient_norm:.3g}", "root mean square of each tensor's:"]
        lines += [f"  {name:{width}}  {value:.3g}" for name, value in self.rms.items()]
        lines += [f"{name}(model.parameters(), {_written(options)})" for name, options in self.options.items()]
        if self.automatic:
            lines.append("without a scale to search:")
        for name, options in self.automatic.items():
            parameters = "matrices(model)" if name == "SpectralGD" else "model.parameters()"
            lines.append(f"{name}({parameters}, {_written(options)})")
        if self.options:
            lines.append("search lr around these, and keep the schedule; OneCycleLR needs cycle_momentum=False")
        return "\n".join(lines)


def suggest(
    model: nn.Module,
    loss: Callable[[nn.Module, Any], Tensor],
    batches: Iterable[Any],
    *,
    sgd_lr: float | None = None,
    clip: float = math.inf,
    momentum: float = 0.0,
    adam_lr: float | None = None,
) -> Suggestion:
    """Measure the gradients of a model on some batches, and convert the stepsizes of other optimizers.

    λ is a tenth of the median gradient: of its norm for an isotropic φ, of the root mean square of its entries for a
    separable φ. A step at that gradient is as long as a step of the optimizer to replace. For `NGD` and `IHGD` that is
    SGD with the stepsize ``sgd_lr`` and gradients clipped to the norm ``clip``. For `SNGD` and `SHGD` it is Adam, whose
    step is about ``adam_lr`` in each entry. With ``scale="auto"``, λ is the size of the gradient, and steps are equally
    long. `SpectralGD` takes ``adam_lr`` itself, and has its own momentum. Begin a search with these numbers:
    ``docs/numbers.md`` says how far they were from the best where that was measured. A schedule of the stepsize carries
    over unchanged; `torch.optim.lr_scheduler.OneCycleLR` changes the momentum as well, unless ``cycle_momentum=False``.

    Gradients at the start of a training may differ from later ones; if you can, measure on a model that has trained for
    a while. Parameters, their gradients and the buffers stay as they were; random numbers may be drawn.

    Args:
        model: the model, on the device of the batches, in the mode in which it is trained.
        loss: the loss of the model on a batch, with the reduction that the training has.
        batches: some minibatches, such as ``itertools.islice(loader, 20)``; an iterator is used up.
        sgd_lr: the stepsize of `torch.optim.SGD`, if you replace that.
        clip: the threshold of its gradient clipping, infinite without.
        momentum: the momentum of SGD, in torch's undamped form, and of the suggested optimizers, in the damped form.
        adam_lr: the stepsize of Adam or AdamW, if you replace that.

    Raises:
        ValueError, TypeError: if a number is not accepted, if there is no batch or no parameter to train, if a gradient
            is not finite, or if all are zero.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> model = nn.Linear(4, 1)
        >>> batches = [torch.randn(8, 4) for _ in range(3)]
        >>> found = suggest(model, lambda model, x: model(x).square().mean(), batches, sgd_lr=0.1, clip=0.5)
        >>> sorted(found.options)
        ['IHGD', 'NGD']
    """
    stepsizes = {"sgd_lr": sgd_lr, "adam_lr": adam_lr}
    for name, value in stepsizes.items():
        if value is not None:
            validate.positive(name, value)
    if clip != math.inf:
        validate.positive("clip", clip)
    validate.fraction("momentum", momentum)
    norm, rms, entries = _measured(model, loss, batches)
    lengths: dict[str, tuple[float, float]] = {}  # of a step, and the size of the gradient that makes it
    if sgd_lr is not None:
        length = sgd_lr / (1.0 - momentum) * min(norm, clip)
        lengths |= dict.fromkeys(("NGD", "IHGD"), (length, norm))
    if adam_lr is not None:
        lengths |= dict.fromkeys(("SNGD", "SHGD"), (adam_lr, entries))
    beta = {"momentum": momentum} if momentum else {}
    options, automatic = {}, {}
    for name, (length, size) in lengths.items():
        options[name] = {"lr": length / _MAPS[name](MARGIN), "scale": size / MARGIN, **beta}
        automatic[name] = {"lr": length / _MAPS[name](1.0), "scale": "auto", **beta}
    if adam_lr is not None:
        automatic["SpectralGD"] = {"lr": adam_lr}
    return Suggestion(norm, rms, options, automatic)


def _written(options: dict[str, Any]) -> str:
    return ", ".join(f"{k}={format(v, '.3g') if isinstance(v, float) else repr(v)}" for k, v in options.items())


def _measured(
    model: nn.Module, loss: Callable[[nn.Module, Any], Tensor], batches: Iterable[Any]
) -> tuple[float, dict[str, float], float]:
    """Return medians: of the norm, of each tensor's root mean square, and of that of all entries."""
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad and p.numel()}
    if not parameters:
        raise ValueError("the model has no parameter to train")
    number = sum(p.numel() for p in parameters.values())
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    norms, squares = [], []
    try:
        for batch in batches:
            values = torch.autograd.grad(loss(model, batch), list(parameters.values()), allow_unused=True)
            sizes = {name: _norm(name, value) for name, value in zip(parameters, values, strict=True)}
            norms.append(math.hypot(*sizes.values()))
            squares.append({name: size / math.sqrt(parameters[name].numel()) for name, size in sizes.items()})
    finally:
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])
    if not norms:
        raise ValueError("batches must contain at least one batch")
    norm = statistics.median(norms)
    if norm == 0.0:
        raise ValueError("the gradients of the batches are zero")
    rms = {name: statistics.median(one[name] for one in squares) for name in parameters}
    return norm, rms, norm / math.sqrt(number)


def _norm(name: str, gradient: Tensor | None) -> float:
    if gradient is None:
        return 0.0
    size = torch.linalg.vector_norm(gradient.detach().to(torch.complex128 if gradient.is_complex() else torch.float64))
    value = float(size)
    if not math.isfinite(value):
        raise ValueError(f"the gradient of {name} is not finite")
    return value

"""The optimizers of the training experiments, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from npgm._common import validate
from npgm.lab.experiments.training import clipping
from npgm.torch import NPGM, SpectralGD


@dataclass(frozen=True)
class Entry:
    """An optimizer, with its step as a formula; g is the gradient of a minibatch."""

    build: Callable[..., Optimizer]
    update: str


registry = {
    "npgm": Entry(NPGM, "m ← β m + (1−β) ∇φ*(g); x ← x − γ m"),
    "spectral": Entry(SpectralGD, "m ← β m + (1−β) g; x ← x − γ ∇φ*(β m + (1−β) g), φ spectral"),
    "sgd": Entry(torch.optim.SGD, "m ← β m + (1−d) g; x ← x − γ m, with d the dampening, 0 by default"),
    "adam": Entry(torch.optim.Adam, "Adam (Kingma and Ba, 2015)"),
    "adamw": Entry(torch.optim.AdamW, "AdamW (Loshchilov and Hutter, 2019)"),
}
"""The optimizers by name.

SGD is torch's, in its own form of momentum: without dampening a step is 1/(1−β) times as long as in the form of NPGM.
The step of that form is had by the stepsize (1−β)γ, and not by the dampening β, for torch does not damp its first step.
"""

if hasattr(torch.optim, "Muon"):  # since torch 2.9
    registry["muon"] = Entry(torch.optim.Muon, "Muon (Jordan et al., 2024)")

IN_AND_OUT = ("embedding", "positions", "head")
"""Where a network's matrices are not hidden: where characters come in and logits go out."""


def build(name: str, parameters: Mapping[str, Tensor], arguments: Mapping[str, Any]) -> list[Optimizer]:
    """Return the optimizers that together move the parameters of a network.

    Args:
        name: a name of `registry`.
        parameters: by their names in the network.
        arguments: what the optimizer takes, but ``blocks`` and ``lr_multiple`` by the names of layers, and two of every
            optimizer. ``clip`` is the radius of `torch.nn.utils.clip_grad_norm_`, for the gradient of the whole
            network, or a name of `npgm.lab.experiments.training.clipping.RULES`. ``rest`` is the ``method`` and the
            arguments of a second optimizer, for all parameters but the hidden matrices, to which the first one is left
            then; its ``lr`` is that of the first by default.

    Raises:
        TypeError, ValueError: if the name or an option is not accepted.
    """
    arguments = dict(arguments)
    clip, rest = (arguments.pop(key, None) for key in ("clip", "rest"))
    of_layers: dict[str, Any] = {key: arguments.pop(key) for key in ("blocks", "lr_multiple") if key in arguments}
    entry = registry[validate.choice("method", name, registry)]
    own = {key: value for key, value in parameters.items() if rest is None or _is_hidden_matrix(key, value)}
    built = [entry.build(_groups(own, of_layers), **arguments)]
    if rest is not None:
        if not isinstance(rest, Mapping) or "method" not in rest:
            raise TypeError(f"rest must be a table with a method, not {rest!r}")
        others = {key: value for key, value in parameters.items() if key not in own}
        shared = {"lr": arguments["lr"]} if "lr" in arguments else {}
        built += build(rest["method"], others, {key: v for key, v in {**shared, **rest}.items() if key != "method"})
    if clip is not None:
        clipping.clip(built[0], list(parameters.values()), clip)
    return built


def update(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the step of an optimizer with some arguments as a formula; raises as `build` does, but for layers."""
    layers = {"matrix": 1, **dict.fromkeys(arguments.get("lr_multiple", {}), 1), **arguments.get("blocks", {})}
    build(name, {name: torch.zeros(number, 1) for name, number in layers.items()}, arguments)
    formula = registry[name].update
    if arguments.get("momentum_order") == "before":
        formula = "m ← β m + (1−β) g; x ← x − γ ∇φ*(m)"
    if "clip" in arguments:
        cut = clipping.FORMULAS.get(arguments["clip"], "g ← min(1, c/‖g‖) g")
        formula = f"{cut}; {formula}"
    if "rest" in arguments:
        formula += f"; all but the hidden matrices: {registry[arguments['rest']['method']].update}"
    return formula


def _is_hidden_matrix(name: str, parameter: Tensor) -> bool:
    return parameter.ndim == 2 and name.partition(".")[0] not in IN_AND_OUT


def _groups(parameters: Mapping[str, Tensor], options: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Return the parameters in groups of the same options, which are given by the names of layers."""
    layers = [name.removesuffix(".weight").rpartition(".")[-1] for name in parameters]
    for option, values in options.items():
        if unknown := values.keys() - set(layers):
            raise ValueError(f"{option} must name layers of the network with matrices, which {min(unknown)!r} is not")
    if not options:
        return [{"params": list(parameters.values())}]
    groups: dict[tuple[float, ...], list[Tensor]] = {}
    for layer, parameter in zip(layers, parameters.values(), strict=True):
        groups.setdefault(tuple(values.get(layer, 1) for values in options.values()), []).append(parameter)
    return [{"params": members, **dict(zip(options, values, strict=True))} for values, members in groups.items()]

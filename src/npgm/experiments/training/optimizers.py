"""The optimizers of the training experiments, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from npgm import _validate
from npgm.torch import NPGM


@dataclass(frozen=True)
class Entry:
    """An optimizer, with its step as a formula; g is the gradient of a minibatch."""

    build: Callable[..., Optimizer]
    update: str


registry = {
    "npgm": Entry(NPGM, "m ← β m + (1−β) ∇φ*(g); x ← x − γ m"),
    "sgd": Entry(torch.optim.SGD, "m ← β m + (1−d) g; x ← x − γ m, with d the dampening, 0 by default"),
    "adam": Entry(torch.optim.Adam, "Adam (Kingma and Ba, 2015)"),
}
"""The optimizers by name.

SGD is torch's, in its own form of momentum: without dampening a step is 1/(1−β) times as long as in the form of NPGM,
with the dampening β as long.
"""


def build(name: str, parameters: Iterable[Tensor], arguments: dict[str, Any]) -> Optimizer:
    """Return the optimizer of a name for parameters.

    Raises:
        TypeError, ValueError: if the name or an option is not accepted.
    """
    return registry[_validate.choice("method", name, registry)].build(parameters, **arguments)

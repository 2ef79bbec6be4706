"""What is trained, and on what, as the training loop sees it."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from npgm._common import validate
from npgm.lab import networks

Order = TypeVar("Order")


class Examples(ABC, Generic[Order]):
    """Examples to train on in rounds, such as epochs, at the end of which those of held-out parts are evaluated."""

    classes: int
    """The number of logits."""
    number: int
    """The examples of a round."""
    held_out: Mapping[str, int]
    """The numbers of examples of the held-out parts, by name."""

    @abstractmethod
    def order(self, generators: Sequence[torch.Generator]) -> Order:
        """Draw, for each seed, the order of a round."""

    @abstractmethod
    def batch(self, order: Order, which: slice) -> tuple[Tensor, Tensor]:
        """Return the examples at some places of the order.

        Returns:
            inputs of shape (seeds, B, ...), and targets of shape (seeds, B), or (seeds, B, T) for sequences.
        """

    @abstractmethod
    def held_out_batch(self, part: str, which: slice) -> tuple[Tensor, Tensor]:
        """Return some examples of a held-out part: inputs of shape (B, ...), and targets of shape (B), or (B, T)."""


@dataclass(frozen=True)
class Disturbance:
    """What is wrong with some steps: the loss, so many times too large, or the targets, drawn at random."""

    steps: int = 0
    factor: float = 1.0
    random_targets: bool = False


@dataclass(frozen=True)
class Training(ABC):
    """What is trained, and how, whatever the optimizer and the seed; see `Trainer`.

    Args:
        network: the ``name`` of a network in `npgm.lab.networks.registry`, and its options.
        dataset: a name of `npgm.lab.data.registry`.
        batch_size: the examples of a minibatch; the last one of a round has what is left.
        schedule: ``"constant"``, or ``"cosine"`` for stepsizes that fall to zero as a cosine does.
        precision: ``"float32"``, or ``"bfloat16"`` for matrix products and convolutions in it.
        compiled: whether to compile the network.
    """

    network: dict[str, Any]
    dataset: str
    batch_size: int
    _: KW_ONLY
    schedule: str = "constant"
    precision: str = "float32"
    compiled: bool = False

    def __post_init__(self) -> None:
        validate.choice("network", self.network.get("name"), networks.registry)
        validate.choice("schedule", self.schedule, ("constant", "cosine"))
        validate.choice("precision", self.precision, ("float32", "bfloat16"))
        validate.count("batch_size", self.batch_size, least=1)
        _check(json.dumps(self.network))

    @property
    @abstractmethod
    def rounds(self) -> int:
        """How many rounds there are."""

    @abstractmethod
    def examples_on(self, device: str | torch.device) -> Examples[Any]:
        """Return what is trained on; raises `npgm.lab.data.DataError` if it cannot be had."""

    def build(self, classes: int) -> nn.Module:
        """Return a network, initialised from torch's global generator."""
        return _build(classes, **self.network)

    def stepsize_factor(self, progress: float) -> float:
        """Return by what the stepsizes are multiplied when a part ``progress`` of all steps is done."""
        return 1.0 if self.schedule == "constant" else 0.5 * (1.0 + math.cos(math.pi * progress))

    def disturbance_at(self, step: int, total: int) -> Disturbance:
        """Return what is wrong with a step, of so many."""
        return Disturbance()


def _build(classes: int, name: str, **options: Any) -> nn.Module:
    return networks.registry[name](classes, **options)


@cache
def _check(network: str) -> None:
    """Raise what building a network raises; cached, since all runs of an experiment have the same few networks."""
    with torch.device("meta"):
        _build(10, **json.loads(network))

"""The training loop: a step at a time, so that it can stop and go on anywhere."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from npgm import _validate
from npgm.experiments.training import optimizers
from npgm.experiments.training.ensemble import Ensemble
from npgm.experiments.training.images import Images, Order
from npgm.experiments.training.parallel import Single
from npgm.problems import networks

QUANTITIES = ("train_loss", "test_loss", "test_accuracy")


@dataclass(frozen=True)
class Training:
    """What is trained, and how, whatever the optimizer and the seed; see `Images`, `Ensemble` and `Trainer`.

    Args:
        network: the ``name`` of a network in `npgm.problems.networks.registry`, and its options.
        dataset: a name of `npgm.data.registry`.
        batch_size: the images of a minibatch; the last one of an epoch has what is left.
        epochs: the passes through the training images.
        examples: the training images, the first ones, and at most as many test images; all by default.
        preprocessing: ``"unit"`` or ``"standardised"``.
        augment: whether to crop and flip the training images at random.
        precision: ``"float32"``, or ``"bfloat16"`` for matrix products and convolutions in it.
        compiled: whether to compile the network.
    """

    network: dict[str, Any]
    dataset: str
    batch_size: int
    epochs: int
    examples: int | None = None
    preprocessing: str = "unit"
    augment: bool = False
    precision: str = "float32"
    compiled: bool = False

    def __post_init__(self) -> None:
        _validate.choice("network", self.network.get("name"), networks.registry)
        _validate.choice("preprocessing", self.preprocessing, ("unit", "standardised"))
        _validate.choice("precision", self.precision, ("float32", "bfloat16"))
        _validate.count("batch_size", self.batch_size, least=1)
        _validate.count("epochs", self.epochs, least=1)
        if self.examples is not None:
            _validate.count("examples", self.examples, least=1)
        _check(json.dumps(self.network))

    def build(self, classes: int) -> nn.Module:
        """Return a network, initialised from torch's global generator."""
        return _build(classes, **self.network)


def _build(classes: int, name: str, **options: Any) -> nn.Module:
    return networks.registry[name](classes, **options)


@cache
def _check(network: str) -> None:
    """Raise what building a network raises; cached, since all runs of an experiment have the same few networks."""
    with torch.device("meta"):
        _build(10, **json.loads(network))


class Trainer:
    """Trains the networks of some seeds with one method.

    After each epoch, `history` has a row: the quantities of each seed, and the seconds spent in training steps so far.
    ``train_loss`` is the mean loss of the epoch's minibatches, each at the time of its step; the test images are
    evaluated at the end of the epoch.

    Each seed has a generator of its own on the CPU, so that its numbers depend neither on the device nor on the other
    seeds, up to rounding.

    Args:
        training: what is trained.
        method: a name of `optimizers.registry`.
        arguments: its options.
        seeds: one for each network.
        device: where to compute.
        ranks: the processes that train together, of which each calls the same methods.

    Raises:
        ValueError: if some rank would have no image of the smallest minibatch.
    """

    def __init__(
        self,
        training: Training,
        method: str,
        arguments: dict[str, Any],
        seeds: Sequence[int],
        device: str | torch.device = "cpu",
        ranks: Single | None = None,
    ) -> None:
        self.training = training
        self.ranks = ranks or Single()
        self.device = torch.device(device)
        self.images = Images(training.dataset, training.preprocessing, training.examples, device)
        self.ensemble = Ensemble(
            partial(training.build, self.images.classes), seeds, device, compiled=training.compiled, ranks=self.ranks
        )
        self.optimizers = [optimizers.build(method, member, arguments) for member in self.ensemble.members]
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        number = len(self.images.train)
        if (smallest := number % training.batch_size or training.batch_size) < self.ranks.size:
            raise ValueError(f"the smallest minibatch has {smallest} images, too few for {self.ranks.size} ranks")
        self.steps_per_epoch = math.ceil(number / training.batch_size)
        self.total = self.steps_per_epoch * training.epochs
        self.steps = 0
        self.seconds = 0.0
        self.history: list[dict[str, Any]] = []
        self._losses = torch.zeros(len(seeds), dtype=torch.float64, device=self.device)
        self._begin()

    @property
    def done(self) -> bool:
        """Whether all epochs are over, or every seed has diverged."""
        diverged = bool(self.history) and not any(map(math.isfinite, self.history[-1]["train_loss"]))
        return self.steps == self.total or diverged

    def step(self) -> None:
        """Take one minibatch, and evaluate if it was the last one of an epoch."""
        clock = time.perf_counter()
        start = self.steps % self.steps_per_epoch * self.training.batch_size
        stop = min(start + self.training.batch_size, len(self.images.train))
        images, labels = self.images.batch(self._order, self.ranks.share(start, stop))
        losses = self._cross_entropies(images, labels).sum(1)
        self.ensemble.backward(losses / (stop - start))
        for optimizer in self.optimizers:
            optimizer.step()
        self._losses += self.ranks.sum(losses.detach().double())
        self.steps += 1
        if self.steps % self.steps_per_epoch:
            self.seconds += time.perf_counter() - clock
            return
        train_losses = (self._losses / len(self.images.train)).tolist()  # waits for the device
        self.seconds += time.perf_counter() - clock
        self.history.append({"seconds": self.seconds, "train_loss": train_losses, **self.evaluate()})
        self._begin()

    @torch.no_grad()
    def evaluate(self) -> dict[str, list[float]]:
        """Return the mean loss and the accuracy of each seed on the test images."""
        self.ensemble.train(False)
        sums = torch.zeros(2, len(self.generators), dtype=torch.float64, device=self.device)
        number, size = len(self.images.test), max(1000 // len(self.generators), self.training.batch_size)
        for start in range(0, number, size):
            images, labels = self.images.test_batch(self.ranks.share(start, min(start + size, number)))
            images, labels = (t.expand(len(self.generators), *t.shape) for t in (images, labels))
            logits = self._logits(images)
            sums[0] += cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels).sum(1)
            sums[1] += (logits.argmax(-1) == labels).sum(1)
        self.ensemble.train(True)
        loss, accuracy = (self.ranks.sum(sums) / number).tolist()
        return {"test_loss": loss, "test_accuracy": accuracy}

    def state_dict(self) -> dict[str, Any]:
        """Return all that the rest of the training depends on, whatever the number of ranks."""
        return {
            "ensemble": self.ensemble.state_dict(),
            "optimizers": [self.ranks.whole(optimizer.state_dict()) for optimizer in self.optimizers],
            "generators": self._epoch_generators,
            "losses": self._losses,
            "steps": self.steps,
            "seconds": self.seconds,
            "history": self.history,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.ensemble.load_state_dict(state["ensemble"])
        for optimizer, content in zip(self.optimizers, state["optimizers"], strict=True):
            self.ranks.load(optimizer, content)
        for generator, content in zip(self.generators, state["generators"], strict=True):
            generator.set_state(content)
        self._begin()
        self._losses.copy_(state["losses"])
        self.steps, self.seconds, self.history = state["steps"], state["seconds"], state["history"]

    def _begin(self) -> None:
        """Begin an epoch; the generators' states from before it are kept, for they stand for its order."""
        self._epoch_generators = [generator.get_state() for generator in self.generators]
        self._order = Order(self.generators, self.images, augment=self.training.augment)
        self._losses.zero_()

    def _cross_entropies(self, images: Tensor, labels: Tensor) -> Tensor:
        logits = self._logits(images)
        return cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)

    def _logits(self, images: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.training.precision == "bfloat16"):
            return self.ensemble(images).float()

"""The training loop: a step at a time, so that it can stop and go on anywhere."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from npgm.lab.experiments.training import optimizers
from npgm.lab.experiments.training.ensemble import Ensemble
from npgm.lab.experiments.training.parallel import Single
from npgm.lab.experiments.training.task import Training

LAST_STEPS = 100
"""The minibatches at the end of a round that count as late."""
EVALUATED = 250
"""The held-out examples that are evaluated at once, of all seeds: more of them no longer fit into a CPU's caches."""


class Trainer:
    """Trains the networks of some seeds with one method.

    After each round, such as an epoch, `history` has a row: the seconds spent in training steps so far, and each seed's
    ``train_loss``, the mean loss of the round's minibatches, each at the time of its step, ``late_loss``, that of the
    last `LAST_STEPS` ones, and loss and accuracy on each of the held-out parts, such as ``test_loss``. Those of a
    sequence are the means over its places.

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
        ValueError: if some rank would have no example of the smallest minibatch.
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
        self.examples = training.examples_on(device)
        self.ensemble = Ensemble(
            partial(training.build, self.examples.classes), seeds, device, compiled=training.compiled, ranks=self.ranks
        )
        names = self.ensemble.names
        self.optimizers = [
            optimizer
            for member in self.ensemble.members
            for optimizer in optimizers.build(method, dict(zip(names, member, strict=True)), arguments)
        ]
        self._stepsizes = [[group["lr"] for group in optimizer.param_groups] for optimizer in self.optimizers]
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        number = self.examples.number
        if (smallest := number % training.batch_size or training.batch_size) < self.ranks.size:
            raise ValueError(f"the smallest minibatch has {smallest} examples, too few for {self.ranks.size} ranks")
        self.steps_per_round = math.ceil(number / training.batch_size)
        self.total = self.steps_per_round * training.rounds
        self.steps = 0
        self.seconds = 0.0
        self.history: list[dict[str, Any]] = []
        self._sums = torch.zeros(self.steps_per_round, len(seeds), dtype=torch.float64, device=self.device)
        self._begin()

    @property
    def done(self) -> bool:
        """Whether all rounds are over, or every seed has diverged."""
        diverged = bool(self.history) and not any(map(math.isfinite, self.history[-1]["train_loss"]))
        return self.steps == self.total or diverged

    def step(self) -> None:
        """Take one minibatch, and evaluate if it was the last one of a round."""
        clock = time.perf_counter()
        start = self.steps % self.steps_per_round * self.training.batch_size
        stop = min(start + self.training.batch_size, self.examples.number)
        which = self.ranks.share(start, stop)
        inputs, targets = self.examples.batch(self._order, which)
        disturbance = self.training.disturbance_at(self.steps, self.total)
        if disturbance.random_targets:
            drawn = self._random_targets((stop - start, *targets.shape[2:]))
            targets = drawn[which.start - start : which.stop - start].expand_as(targets)
        losses, _ = self._losses(inputs, targets)
        losses = losses.sum(1)
        self.ensemble.backward(disturbance.factor * losses / (stop - start))
        self._set_stepsizes()
        for optimizer in self.optimizers:
            optimizer.step()
        self._sums[self.steps % self.steps_per_round] = self.ranks.sum(losses.detach().double())
        self.steps += 1
        if self.steps % self.steps_per_round:
            self.seconds += time.perf_counter() - clock
            return
        late = self.examples.number - max(0, self.steps_per_round - LAST_STEPS) * self.training.batch_size
        losses_of_round = {
            "train_loss": (self._sums.sum(0) / self.examples.number).tolist(),  # waits for the device
            "late_loss": (self._sums[-LAST_STEPS:].sum(0) / late).tolist(),
        }
        self.seconds += time.perf_counter() - clock
        self.history.append({"seconds": self.seconds, **losses_of_round, **self.evaluate()})
        self._begin()

    @torch.no_grad()
    def evaluate(self) -> dict[str, list[float]]:
        """Return the mean loss and the accuracy of each seed on each of the held-out parts."""
        self.ensemble.train(False)
        seeds, results = len(self.generators), {}
        size = max(EVALUATED // seeds, self.training.batch_size)
        for part, number in self.examples.held_out.items():
            sums = torch.zeros(2, seeds, dtype=torch.float64, device=self.device)
            for start in range(0, number, size):
                which = self.ranks.share(start, min(start + size, number))
                batch = (values.expand(seeds, *values.shape) for values in self.examples.held_out_batch(part, which))
                for total, values in zip(sums, self._losses(*batch), strict=True):
                    total += values.sum(1)
            results[f"{part}_loss"], results[f"{part}_accuracy"] = (self.ranks.sum(sums) / number).tolist()
        self.ensemble.train(True)
        return results

    def state_dict(self) -> dict[str, Any]:
        """Return all that the rest of the training depends on, whatever the number of ranks."""
        return {
            "ensemble": self.ensemble.state_dict(),
            "optimizers": [self.ranks.gathered(optimizer.state_dict()) for optimizer in self.optimizers],
            "generators": self._round_generators,
            "sums": self._sums,
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
        self._sums.copy_(state["sums"])
        self.steps, self.seconds, self.history = state["steps"], state["seconds"], state["history"]

    def _begin(self) -> None:
        """Begin a round; the generators' states from before it are kept, for they stand for its order."""
        self._round_generators = [generator.get_state() for generator in self.generators]
        self._order = self.examples.order(self.generators)
        self._sums.zero_()

    def _set_stepsizes(self) -> None:
        """Set the stepsizes to those that the optimizers were built with, times the factor of the schedule."""
        factor = self.training.stepsize_factor(self.steps / self.total)
        for optimizer, stepsizes in zip(self.optimizers, self._stepsizes, strict=True):
            for group, lr in zip(optimizer.param_groups, stepsizes, strict=True):
                group["lr"] = factor * lr

    def _random_targets(self, shape: tuple[int, ...]) -> Tensor:
        """Draw targets that depend on the step alone, not on the ranks and the seeds."""
        generator = torch.Generator().manual_seed(self.steps)
        return torch.randint(self.examples.classes, shape, generator=generator).to(self.device)

    def _losses(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of each example, and the part of its places that is right, each of shape (seeds, B)."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.training.precision == "bfloat16"):
            logits = self.ensemble(inputs).float()
        losses = cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none")
        right = (logits.detach().argmax(-1) == targets).double()
        shape = (*targets.shape[:2], -1)
        return losses.reshape(shape).mean(-1), right.reshape(shape).mean(-1)

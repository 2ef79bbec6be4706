"""Characters in memory, of which sequences are drawn: each character but the first is the target of those before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from npgm._common import validate
from npgm.lab import data
from npgm.lab.experiments.training.task import Disturbance, Examples, Training

DISTURBANCES = {
    "none": Disturbance(),
    "loss-1e2": Disturbance(1, factor=1e2),
    "loss-1e6": Disturbance(1, factor=1e6),
    "labels": Disturbance(10, random_targets=True),
}
"""What can go wrong in the middle of a training, by name: a loss that is 1e2 or 1e6 times too large in one step, or
targets that are drawn at random in ten steps."""


@dataclass(frozen=True, kw_only=True)
class TextTraining(Training):
    """The training of a network that predicts characters.

    Args:
        length: the characters of a sequence.
        steps: the minibatches.
        every: the steps of a round.
        windows: the sequences of each held-out part that are evaluated.
        disturbance: what goes wrong in the middle, a name of `DISTURBANCES`.
    """

    length: int
    steps: int
    every: int
    windows: int = 256
    disturbance: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.choice("disturbance", self.disturbance, DISTURBANCES)
        for name in ("length", "steps", "every", "windows"):
            validate.count(name, getattr(self, name), least=1)
        if self.steps % self.every:
            raise ValueError(f"steps must be a multiple of every = {self.every}, not {self.steps}")

    @property
    def rounds(self) -> int:
        """How often the held-out parts are evaluated."""
        return self.steps // self.every

    def examples_on(self, device: str | torch.device) -> Text:
        """Return the text."""
        return Text(self.dataset, self.length, self.every * self.batch_size, self.windows, device)

    def disturbance_at(self, step: int, total: int) -> Disturbance:
        """Return what is wrong with a step."""
        disturbance = DISTURBANCES[self.disturbance]
        return disturbance if 0 <= step - total // 2 < disturbance.steps else Disturbance()


class Text(Examples[Tensor]):
    """A text on a device, as bytes.

    Sequences to train on begin anywhere in it, drawn with replacement; those that are evaluated are spread evenly over
    their part.

    Args:
        dataset: a name of `npgm.lab.data.registry`, of a set of characters.
        length: the characters of a sequence.
        number: the sequences of a round.
        windows: the sequences of each held-out part that are evaluated.
        device: where the text is.

    Raises:
        npgm.lab.data.DataError: if the data set cannot be had.
        ValueError: if it holds no text, or a part of it is shorter than a sequence.
    """

    def __init__(
        self, dataset: str, length: int, number: int, windows: int = 256, device: str | torch.device = "cpu"
    ) -> None:
        arrays = data.load(dataset)
        if "symbols" not in arrays:
            raise ValueError(f"the data set {dataset} has no text; it holds {', '.join(sorted(arrays))}")
        self.classes, self.number = len(arrays["symbols"]), number
        parts = {name: torch.from_numpy(arrays[name]).to(device) for name in ("train", "validation", "test")}
        if (shortest := min(map(len, parts.values()))) <= length:
            raise ValueError(f"length must be less than the {shortest} characters of a part of {dataset}, not {length}")
        self._train = parts.pop("train")
        self._span = torch.arange(length + 1, device=device)
        self._held_out = {name: self._spread(text, windows) for name, text in parts.items()}
        self.held_out = {name: len(sequences) for name, sequences in self._held_out.items()}

    def order(self, generators: Sequence[torch.Generator]) -> Tensor:
        """Draw where each seed's sequences begin, of shape (seeds, number)."""
        limit = len(self._train) - len(self._span) + 1
        draws = [torch.randint(limit, (self.number,), generator=generator) for generator in generators]
        return torch.stack(draws).to(self._train.device)

    def batch(self, order: Tensor, which: slice) -> tuple[Tensor, Tensor]:
        """Return characters and the next ones, each of shape (seeds, B, length)."""
        return _pairs(self._train[order[:, which, None] + self._span])

    def held_out_batch(self, part: str, which: slice) -> tuple[Tensor, Tensor]:
        """Return characters of a held-out part and the next ones, each of shape (B, length)."""
        return _pairs(self._held_out[part][which])

    def _spread(self, text: Tensor, windows: int) -> Tensor:
        starts = torch.linspace(0, len(text) - len(self._span), windows, dtype=torch.float64).long()
        return text[starts.to(text.device)[:, None] + self._span]


def _pairs(sequences: Tensor) -> tuple[Tensor, Tensor]:
    sequences = sequences.long()
    return sequences[..., :-1], sequences[..., 1:]

"""Images and labels in memory, with shuffling, cropping and flipping as operations on tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from npgm._common import validate
from npgm.lab import data
from npgm.lab.experiments.training.task import Examples, Training

PADDING = 4
"""The black border in which a random crop moves, in pixels."""


@dataclass(frozen=True, kw_only=True)
class ImageTraining(Training):
    """The training of a network that classifies images.

    Args:
        epochs: the passes through the training images.
        examples: the training images, the first ones, and at most as many test images; all by default.
        preprocessing: ``"unit"`` or ``"standardised"``.
        augment: whether to crop and flip the training images at random.
    """

    epochs: int
    examples: int | None = None
    preprocessing: str = "unit"
    augment: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.choice("preprocessing", self.preprocessing, ("unit", "standardised"))
        validate.count("epochs", self.epochs, least=1)
        if self.examples is not None:
            validate.count("examples", self.examples, least=1)

    @property
    def rounds(self) -> int:
        """The passes through the training images."""
        return self.epochs

    def examples_on(self, device: str | torch.device) -> Images:
        """Return the images."""
        return Images(self.dataset, self.preprocessing, self.examples, device, augment=self.augment)


class Images(Examples["Order"]):
    """A data set on a device, as bytes; batches are made floating-point numbers as they are taken.

    Args:
        dataset: a name of `npgm.lab.data.registry`, of a set with images and labels.
        preprocessing: ``"unit"`` for pixels in [0, 1], or ``"standardised"`` for mean 0 and variance 1 of each channel
            over the training images.
        examples: the training images to keep, the first ones, and at most as many test images; all by default.
        device: where the images are.
        augment: whether to crop and flip the training images at random.

    Raises:
        npgm.lab.data.DataError: if the data set cannot be had.
        ValueError: if it does not hold images and labels.
    """

    def __init__(
        self,
        dataset: str,
        preprocessing: str = "unit",
        examples: int | None = None,
        device: str | torch.device = "cpu",
        *,
        augment: bool = False,
    ) -> None:
        arrays = data.load(dataset)
        if "train_images" not in arrays:
            raise ValueError(f"the data set {dataset} has no images; it holds {', '.join(sorted(arrays))}")
        parts = {name: torch.from_numpy(array[:examples]) for name, array in arrays.items()}
        for part in ("train_images", "test_images"):
            if parts[part].ndim == 3:
                parts[part] = parts[part].unsqueeze(-1)
        pixels = parts["train_images"].flatten(0, -2)
        if validate.choice("preprocessing", preprocessing, ("unit", "standardised")) == "standardised":
            shift, scale = pixels.double().mean(0), pixels.double().std(0, correction=0)
        else:
            shift, scale = torch.zeros(pixels.shape[-1]), torch.full(pixels.shape[-1:], 255.0)
        self.shift, self.scale = shift.float().to(device), scale.float().to(device)
        self.classes = int(arrays["train_labels"].max()) + 1
        self.train, self.test = parts["train_images"].to(device), parts["test_images"].to(device)
        self.number, self.held_out, self.augment = len(self.train), {"test": len(self.test)}, augment
        self.train_labels = parts["train_labels"].long().to(device)
        self.test_labels = parts["test_labels"].long().to(device)

    def order(self, generators: Sequence[torch.Generator]) -> Order:
        """Draw, for each seed, the order of an epoch."""
        return Order(generators, self, augment=self.augment)

    def batch(self, order: Order, which: slice) -> tuple[Tensor, Tensor]:
        """Return the images, of shape (seeds, B, C, H, W), and labels, (seeds, B), of some places of the order."""
        index = order.index[:, which]
        if order.crop is None or order.flip is None:
            images = self.train[index]
        else:
            height, width = self.train.shape[1:3]
            top, left = order.crop[:, which, None].unbind(-1)
            rows = top + torch.arange(height, device=index.device)
            columns = torch.arange(width, device=index.device).expand(*index.shape, width)
            columns = left + torch.where(order.flip[:, which, None], columns.flip(-1), columns)
            images = self._padded[index[..., None, None], rows[..., :, None], columns[..., None, :]]
        return self._floats(images), self.train_labels[index]

    def held_out_batch(self, part: str, which: slice) -> tuple[Tensor, Tensor]:
        """Return some test images, of shape (B, C, H, W), and labels."""
        return self._floats(self.test[which]), self.test_labels[which]

    @cached_property
    def _padded(self) -> Tensor:
        return torch.nn.functional.pad(self.train, (0, 0, PADDING, PADDING, PADDING, PADDING))

    def _floats(self, images: Tensor) -> Tensor:
        """Return (..., H, W, C) bytes as (..., C, H, W) numbers, which stay channels-last in memory."""
        return ((images.float() - self.shift) / self.scale).movedim(-1, -3)


class Order:
    """The order in which each seed goes through the images in an epoch, and where it crops and flips them.

    Attributes:
        index: the images, of shape (seeds, images).
        crop: the corners of the crops, of shape (seeds, images, 2), or None.
        flip: whether to flip, of shape (seeds, images), or None.
    """

    def __init__(self, generators: Sequence[torch.Generator], images: Images, *, augment: bool) -> None:
        number, device = len(images.train), images.train.device
        draws = [torch.randperm(number, generator=g) for g in generators]
        self.index = torch.stack(draws).to(device)
        self.crop = self.flip = None
        if augment:
            corners = [torch.randint(2 * PADDING + 1, (number, 2), generator=g) for g in generators]
            self.crop = torch.stack(corners).to(device)
            self.flip = torch.stack([torch.rand(number, generator=g) < 0.5 for g in generators]).to(device)

"""The fully connected network of the MNIST experiment."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from npgm._common import validate


class MLP(nn.Sequential):
    """A fully connected network with ReLU between its layers, in torch's initialisation of `torch.nn.Linear`.

    Images of shape (B, ...) with ``widths[0]`` pixels give logits of shape (B, classes). The paper's layer
    dimensions are [784, 512, 256]; the last layer, to the classes, is understood.

    Args:
        classes: the number of logits.
        widths: the numbers of inputs and of hidden units.

    Example:
        >>> sum(parameter.numel() for parameter in MLP().parameters())
        535818
    """

    def __init__(self, classes: int = 10, widths: Sequence[int] = (784, 512, 256)) -> None:
        layers: list[nn.Module] = [nn.Flatten()]
        for width in (*widths, classes):
            validate.count("classes and widths", width, least=1)
        for inputs, outputs in pairwise((*widths, classes)):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        super().__init__(*layers[:-2])
        self.add_module("head", layers[-2])

"""Residual networks (He, Zhang, Ren and Sun, 2016), for images of 32×32 or 224×224 pixels."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from npgm._common import validate

_WIDTHS = (64, 128, 256, 512)


class Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut, which is a 1×1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *_convolution(inputs, outputs, 3, stride), nn.ReLU(inplace=True), *_convolution(outputs, outputs, 3, 1)
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Sequential(*_convolution(inputs, outputs, 1, stride))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations of the block."""
        y: Tensor = self.relu(self.residual(x) + self.shortcut(x))
        return y


class ResNet(nn.Sequential):
    """A residual network of stages of `Block`, each half as high and wide as the one before.

    Images of shape (B, 3, H, W) give logits of shape (B, classes). Convolutions are
    initialised as in He et al. (normal, by the fan-out), the rest as torch does.

    Args:
        depths: the blocks of each stage.
        classes: the number of logits.
        stem: ``"cifar"``, one 3×3 convolution, for images of 32×32 pixels, or ``"imagenet"``, a 7×7 convolution and a
            pooling that together divide the resolution by four.
        widths: the channels of each stage.
    """

    def __init__(
        self, depths: Sequence[int], classes: int = 10, stem: str = "cifar", widths: Sequence[int] = _WIDTHS
    ) -> None:
        validate.count("classes", classes, least=1)
        if validate.choice("stem", stem, ("cifar", "imagenet")) == "cifar":
            layers = [*_convolution(3, widths[0], 3, 1), nn.ReLU(inplace=True)]
        else:
            layers = [*_convolution(3, widths[0], 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
        inputs = widths[0]
        for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            for i in range(depth):
                layers.append(Block(inputs, width, stride=2 if stage > 0 and i == 0 else 1))
                inputs = width
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.add_module("head", nn.Linear(inputs, classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def resnet18(classes: int = 10, stem: str = "cifar") -> ResNet:
    """Return a ResNet-18."""
    return ResNet((2, 2, 2, 2), classes, stem)


def resnet34(classes: int = 10, stem: str = "cifar") -> ResNet:
    """Return a ResNet-34."""
    return ResNet((3, 4, 6, 3), classes, stem)


def resnet_cifar(classes: int = 10, blocks: int = 3, width: int = 16) -> ResNet:
    """Return the network of 6n+2 layers that He et al. have for CIFAR-10, with n blocks in each of three stages.

    It is ResNet-20 for three blocks and 16 channels in the first stage. Shortcuts where the shape changes are 1×1
    convolutions, as in the larger networks.
    """
    validate.count("blocks", blocks, least=1)
    validate.count("width", width, least=1)
    return ResNet((blocks,) * 3, classes, "cifar", (width, 2 * width, 4 * width))


def _convolution(inputs: int, outputs: int, size: int, stride: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs)]

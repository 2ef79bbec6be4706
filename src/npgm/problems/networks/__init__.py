"""Networks of the paper's experiments, as plain PyTorch modules that give logits."""

from collections.abc import Callable

from torch import nn

from npgm.problems.networks.mlp import MLP
from npgm.problems.networks.resnet import ResNet, resnet18, resnet34

registry: dict[str, Callable[..., nn.Module]] = {"mlp": MLP, "resnet18": resnet18, "resnet34": resnet34}
"""The networks by name: functions of the number of classes and further options."""

__all__ = ["MLP", "ResNet", "registry", "resnet18", "resnet34"]

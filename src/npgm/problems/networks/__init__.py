"""Networks of the paper's experiments, as plain PyTorch modules that give logits."""

from npgm.problems.networks.mlp import MLP
from npgm.problems.networks.resnet import ResNet, resnet18, resnet34

registry = {"mlp": MLP, "resnet18": resnet18, "resnet34": resnet34}
"""The networks by name: functions of the number of classes and further options."""

__all__ = ["MLP", "ResNet", "registry", "resnet18", "resnet34"]

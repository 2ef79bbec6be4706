"""Networks of the experiments, as plain PyTorch modules that give logits: of images, or of each next character.

Their matrices at the ends, where characters come in and logits go out, are in `embedding`, `positions` and `head`.
"""

from collections.abc import Callable

from torch import nn

from npgm.lab.networks.gpt import GPT
from npgm.lab.networks.mlp import MLP
from npgm.lab.networks.recurrent import LSTM, RNN
from npgm.lab.networks.resnet import ResNet, resnet18, resnet34, resnet_cifar

registry: dict[str, Callable[..., nn.Module]] = {
    "gpt": GPT,
    "lstm": LSTM,
    "mlp": MLP,
    "resnet18": resnet18,
    "resnet34": resnet34,
    "resnet-cifar": resnet_cifar,
    "rnn": RNN,
}
"""The networks by name: functions of the number of classes and further options."""

__all__ = ["GPT", "LSTM", "MLP", "RNN", "ResNet", "registry", "resnet18", "resnet34", "resnet_cifar"]

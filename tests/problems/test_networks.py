from __future__ import annotations

import pytest
import torch

from npgm.problems import networks


def parameters(network):
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize(
    ("name", "options", "number"),
    [
        ("mlp", {}, 535_818),
        ("resnet18", {}, 11_173_962),
        ("resnet34", {"classes": 100}, 21_328_292),
        # as in torchvision
        ("resnet18", {"classes": 1000, "stem": "imagenet"}, 11_689_512),
        ("resnet34", {"classes": 1000, "stem": "imagenet"}, 21_797_672),
    ],
)
def test_numbers_of_parameters(name, options, number):
    with torch.device("meta"):
        assert parameters(networks.registry[name](**options)) == number


@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
def test_shapes_of_resnets(stem):
    network = networks.resnet18(7, stem).eval()
    shapes = []
    for module in network:
        if isinstance(module, torch.nn.MaxPool2d | networks.resnet.Block):
            module.register_forward_hook(lambda *arguments: shapes.append(tuple(arguments[2].shape[1:])))
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 7)
    first = 32 if stem == "cifar" else 8
    assert shapes[0] == (64, first, first)
    assert shapes[-1] == (512, first // 8, first // 8)


def test_the_mlp_is_its_formula():
    network = networks.MLP(classes=4, widths=[6, 5])
    x = torch.randn(3, 1, 2, 3)
    (w1, b1, w2, b2) = network.parameters()
    torch.testing.assert_close(network(x), (x.reshape(3, 6) @ w1.T + b1).relu() @ w2.T + b2)


def test_initialisation_of_convolutions():
    torch.manual_seed(0)
    weight = networks.resnet18()[-4].residual[0].weight  # 512 × 512 × 3 × 3
    assert weight.std().item() == pytest.approx((2 / (512 * 9)) ** 0.5, rel=1e-2)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: networks.MLP(classes=0), "classes and widths must be at least 1, not 0"),
        (lambda: networks.MLP(widths=[-1]), "at least 1, not -1"),
        (lambda: networks.resnet18(0), "classes must be at least 1"),
        (lambda: networks.resnet18(stem="x"), "unknown stem 'x'; accepted: cifar, imagenet"),
    ],
)
def test_errors(build, message):
    with pytest.raises(ValueError, match=message):
        build()

import pytest
import torch

from npgm.lab import networks


def parameters(network):
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize(
    ("name", "options", "number"),
    [
        ("mlp", {}, 535_818),
        ("resnet-cifar", {}, 272_474),  # as in PyTorch's versions with such shortcuts
        ("resnet-cifar", {"blocks": 1}, 78_042),
        ("rnn", {}, 109_140),
        ("lstm", {}, 115_028),
        ("gpt", {}, 812_288),
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


LANGUAGE = {
    "rnn": {"embedding": 5, "hidden": 6},
    "lstm": {"embedding": 5, "hidden": 6},
    "gpt": {"layers": 2, "width": 8, "heads": 2, "length": 9},
}


def test_the_rnn_is_torchs():
    network = networks.RNN(7, **LANGUAGE["rnn"])
    theirs = torch.nn.RNN(5, 6, batch_first=True)
    ours = (network.input.weight, network.recurrence.weight, network.input.bias, torch.zeros(6))
    with torch.no_grad():
        for p, q in zip(theirs.parameters(), ours, strict=True):
            p.copy_(q)
    characters = torch.randint(7, (3, 9))
    states, _ = theirs(network.embedding(characters))
    torch.testing.assert_close(network(characters), network.head(states))
    product = network.recurrence.weight @ network.recurrence.weight.T
    torch.testing.assert_close(product, torch.eye(6), rtol=0, atol=1e-5)


def test_the_lstm_is_torchs():
    network = networks.LSTM(7, **LANGUAGE["lstm"])
    theirs = torch.nn.LSTM(5, 6, batch_first=True)
    ours = (network.input.weight, network.recurrence.weight, network.input.bias, torch.zeros(24))
    with torch.no_grad():
        for p, q in zip(theirs.parameters(), ours, strict=True):
            p.copy_(q)
    characters = torch.randint(7, (3, 9))
    states, _ = theirs(network.embedding(characters))
    torch.testing.assert_close(network(characters), network.head(states))
    assert (network.input.bias[6:12] == 1).all()


def test_a_layer_of_the_gpt_is_torchs():
    """Which has the same form, with its normalisation first, GELU and a causal mask."""
    layer = networks.GPT(7, **LANGUAGE["gpt"]).layers[0]
    theirs = torch.nn.TransformerEncoderLayer(8, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True)
    order = [
        layer.queries_keys_values,
        layer.attended,
        layer.mlp[0],
        layer.mlp[2],
        layer.before_attention,
        layer.before_mlp,
    ]
    with torch.no_grad():
        for p in layer.parameters():
            p.normal_()
        for p, q in zip(theirs.parameters(), [p for part in order for p in part.parameters()], strict=True):
            p.copy_(q)
    x = torch.randn(3, 9, 8)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(9)
    torch.testing.assert_close(layer(x), theirs(x, src_mask=mask, is_causal=True), rtol=1e-4, atol=1e-5)


def test_the_gpt_ties_its_embedding_and_starts_near_uniform():
    torch.manual_seed(0)
    network = networks.GPT(84)
    characters = torch.randint(84, (2, 64))
    loss = torch.nn.functional.cross_entropy(network(characters).flatten(0, 1), characters.roll(1, 1).flatten())
    assert loss.item() == pytest.approx(torch.tensor(84.0).log().item(), abs=0.1)
    assert [name for name, p in network.named_parameters() if 84 in p.shape] == ["embedding.weight"]
    assert network.layers[1].mlp[2].weight.std().item() == pytest.approx(0.02 / 8**0.5, rel=0.05)


@pytest.mark.parametrize("name", LANGUAGE)
def test_logits_see_no_later_character(name):
    network = networks.registry[name](7, **LANGUAGE[name])
    characters = torch.randint(7, (2, 9))
    changed = characters.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % 7
    before, after = network(characters), network(changed)
    assert before.shape == (2, 9, 7)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert (before[:, 5:] != after[:, 5:]).any(-1).all()


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
        (lambda: networks.RNN(hidden=0), "hidden must be at least 1, not 0"),
        (lambda: networks.GPT(layers=0), "layers must be at least 1, not 0"),
        (lambda: networks.GPT(heads=3), "heads must divide the width 128, but 3 does not"),
        (lambda: networks.resnet18(stem="x"), "unknown stem 'x'; accepted: cifar, imagenet"),
    ],
)
def test_errors(build, message):
    with pytest.raises(ValueError, match=message):
        build()

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from npgm.lab.experiments.training import checkpoint, optimizers
from npgm.lab.experiments.training.text import Text, TextTraining
from npgm.lab.experiments.training.trainer import Trainer
from npgm.lab.networks import LSTM, MLP, RNN

NETWORKS = {
    "rnn": {"name": "rnn", "embedding": 6, "hidden": 8},
    "lstm": {"name": "lstm", "embedding": 6, "hidden": 8},
    "gpt": {"name": "gpt", "layers": 1, "width": 8, "heads": 2, "length": 12},
}
CLIPPED = ("sgd", {"lr": 0.3, "momentum": 0.9, "clip": 0.1})
MUON = ("muon", {"lr": 0.01, "rest": {"method": "adamw", "lr": 0.002}})


def training(network="rnn", **options):
    given = {"length": 12, "batch_size": 5, "steps": 6, "every": 3, "windows": 7, "schedule": "cosine", **options}
    return TextTraining(network=NETWORKS[network], dataset="shakespeare", **given)


def trained(what, method, arguments, seeds):
    trainer = Trainer(what, method, arguments, seeds)
    while not trainer.done:
        trainer.step()
    return trainer


def without_clock(history):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in history]


def assert_equal(first, second):
    assert without_clock(first.history) == without_clock(second.history)
    for one, other in zip(first.ensemble.members, second.ensemble.members, strict=True):
        assert all(torch.equal(p, q) for p, q in zip(one, other, strict=True))


def test_the_loop_is_the_plain_one():
    """Clipping and torch's SGD with a cosine, on sequences from the seed's generator."""
    trainer = trained(training(), *CLIPPED, [7])
    text = Text("shakespeare", 12, 15, 7)
    torch.manual_seed(7)
    network = RNN(84, embedding=6, hidden=8)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.3, momentum=0.9)
    generator = torch.Generator().manual_seed(7)
    losses, k = [], 0
    for _ in range(2):
        order = text.order([generator])
        for places in (slice(0, 5), slice(5, 10), slice(10, 15)):
            characters, following = text.batch(order, places)
            loss = cross_entropy(network(characters[0]).flatten(0, 1), following[0].flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 0.1)
            optimizer.param_groups[0]["lr"] = 0.3 * 0.5 * (1 + math.cos(math.pi * k / 6))
            optimizer.step()
            losses.append(loss.item())
            k += 1
    assert trainer.history[1]["train_loss"] == [pytest.approx(sum(losses[3:]) / 3, rel=1e-5)]
    for p, q in zip(trainer.ensemble.members[0], network.parameters(), strict=True):
        torch.testing.assert_close(p.detach(), q.detach(), rtol=1e-4, atol=1e-6)
    for part in ("validation", "test"):
        characters, following = text.held_out_batch(part, slice(7))
        with torch.no_grad():
            logits = network(characters)
        expected = cross_entropy(logits.flatten(0, 1), following.flatten()).item()
        assert trainer.history[1][f"{part}_loss"] == [pytest.approx(expected, rel=1e-5)]
        accuracy = (logits.argmax(-1) == following).double().mean().item()
        assert trainer.history[1][f"{part}_accuracy"] == [pytest.approx(accuracy)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "method", "arguments"),
    [("rnn", *CLIPPED), ("rnn", *MUON), ("lstm", "npgm", {"lr": 0.1, "momentum": 0.9}), ("gpt", *MUON)],
)
def test_seeds_trained_together_are_those_trained_alone(network, method, arguments):
    what = training(network, disturbance="labels")
    together = trained(what, method, arguments, [0, 3])
    for i, seed in enumerate([0, 3]):
        alone = trained(what, method, arguments, [seed])
        for row, one in zip(together.history, alone.history, strict=True):
            for name in ("train_loss", "validation_loss", "test_loss"):
                assert row[name][i] == pytest.approx(one[name][0], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "arguments"), [CLIPPED, MUON])
def test_a_run_resumed_within_a_round_is_the_uninterrupted_one(tmp_path, method, arguments):
    what = training(disturbance="labels")
    stopped, resumed = (Trainer(what, method, arguments, [0, 1]) for _ in range(2))
    for _ in range(4):
        stopped.step()
    checkpoint.save(stopped, tmp_path / "a.checkpoint")
    assert checkpoint.restore(resumed, tmp_path / "a.checkpoint")
    while not resumed.done:
        resumed.step()
    assert_equal(resumed, trained(what, method, arguments, [0, 1]))


def test_sequences_are_of_their_part_and_targets_come_next():
    text = Text("shakespeare", 20, 50, windows=9)
    order = text.order([torch.Generator().manual_seed(seed) for seed in (0, 1)])
    characters, following = text.batch(order, slice(10, 13))
    assert characters.shape == following.shape == (2, 3, 20)
    assert torch.equal(characters[..., 1:], following[..., :-1])
    assert torch.equal(characters[1, 0], text._train[order[1, 10] : order[1, 10] + 20].long())
    assert dict(text.held_out) == {"validation": 9, "test": 9}
    last = text.held_out_batch("test", slice(8, 9))[1]
    assert last[0, -1] == text._held_out["test"][-1, -1]


def test_a_loss_too_large_in_one_step_disturbs_that_step_alone():
    before, after = (Trainer(training(disturbance=name), "sgd", {"lr": 0.1}, [0]) for name in ("none", "loss-1e2"))
    for k in range(6):
        previous = [p.detach().clone() for p in after.ensemble.members[0]]
        before.step()
        after.step()
        same = all(torch.equal(p, q) for p, q in zip(*(t.ensemble.members[0] for t in (before, after)), strict=True))
        assert same == (k < 3)
        if k == 3:
            for p, q, start in zip(*(t.ensemble.members[0] for t in (before, after)), previous, strict=True):
                torch.testing.assert_close(q - start, 100 * (p - start), rtol=1e-2, atol=1e-4)


def test_the_hidden_matrices_are_the_first_optimizers():
    network = RNN(84, embedding=6, hidden=8)
    parameters = dict(network.named_parameters())
    muon, adamw = optimizers.build("muon", parameters, {"lr": 0.01, "rest": {"method": "adamw"}})
    assert isinstance(muon, torch.optim.Muon)
    assert [id(p) for p in muon.param_groups[0]["params"]] == [id(network.input.weight), id(network.recurrence.weight)]
    assert len(adamw.param_groups[0]["params"]) == 4
    assert adamw.param_groups[0]["lr"] == 0.01


def test_the_head_of_an_image_network_is_no_hidden_matrix():
    network = MLP(3, [4, 5, 6])
    muon, rest = optimizers.build("muon", dict(network.named_parameters()), {"lr": 0.01, "rest": {"method": "sgd"}})
    assert [tuple(p.shape) for p in muon.param_groups[0]["params"]] == [(5, 4), (6, 5)]
    assert len(rest.param_groups[0]["params"]) == 4


def test_layers_have_options_of_their_own():
    network = LSTM(84, embedding=6, hidden=8)
    multiple = {"input": 0.5}
    arguments = {"lr": 0.01, "blocks": {"recurrence": 4}, "lr_multiple": multiple, "rest": {"method": "sgd"}}
    spectral, _ = optimizers.build("spectral", dict(network.named_parameters()), arguments)
    plain, gates = spectral.param_groups
    assert (plain["params"], plain["blocks"]) == ([network.input.weight], 1)
    assert (gates["params"], gates["blocks"]) == ([network.recurrence.weight], 4)
    assert (plain["lr_multiple"], gates["lr_multiple"]) == (0.5, 1.0)
    with pytest.raises(ValueError, match="blocks must name layers of the network with matrices, which 'gates' is not"):
        optimizers.build("spectral", dict(network.named_parameters()), arguments | {"blocks": {"gates": 4}})


def test_clipping_is_of_all_parameters_whatever_moves_them():
    network = RNN(84, embedding=6, hidden=8)
    parameters = dict(network.named_parameters())
    built = optimizers.build("sgd", parameters, {"lr": 1.0, "clip": 0.5, "rest": {"method": "sgd"}})
    before = {name: p.detach().clone() for name, p in parameters.items()}
    for parameter in parameters.values():
        parameter.grad = torch.randn_like(parameter)
    for optimizer in built:
        optimizer.step()
    moved = torch.cat([(p.detach() - before[name]).flatten() for name, p in parameters.items()])
    assert moved.norm().item() == pytest.approx(0.5, rel=1e-4)


def test_formulas():
    assert optimizers.update(*CLIPPED).startswith("g ← min(1, c/‖g‖) g; m ← β m")
    before = {"lr": 0.1, "momentum_order": "before", "reference": "spectral-sqrt"}
    assert optimizers.update("npgm", before) == "m ← β m + (1−β) g; x ← x − γ ∇φ*(m)"
    assert optimizers.update(*MUON).endswith("all but the hidden matrices: AdamW (Loshchilov and Hutter, 2019)")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": 0.1, "clip": 0.0}, "clip must be positive and finite, not 0.0"),
        ({"lr": 0.1, "rest": {"lr": 1.0}}, "rest must be a table with a method, not"),
        ({"lr": 0.1, "rest": {"method": "x"}}, "unknown method 'x'"),
    ],
)
def test_errors_of_methods(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        optimizers.update("sgd", arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 7}, "steps must be a multiple of every = 3, not 7"),
        ({"schedule": "x"}, "unknown schedule 'x'; accepted: constant, cosine"),
        ({"disturbance": "x"}, "unknown disturbance 'x'; accepted: labels, loss-1e2, loss-1e6, none"),
        ({"length": 0}, "length must be at least 1, not 0"),
        ({"windows": 0}, "windows must be at least 1, not 0"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        training(**options)


def test_what_is_no_text_or_too_short_is_refused():
    with pytest.raises(ValueError, match="the data set mnist has no text; it holds"):
        Text("mnist", 10, 1)
    with pytest.raises(ValueError, match="length must be less than the 252860 characters of a part of shakespeare"):
        Text("shakespeare", 252_860, 1)

from functools import partial

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.functional import cross_entropy

from npgm.kernels import Cosh
from npgm.lab.experiments.training import checkpoint, optimizers
from npgm.lab.experiments.training import trainer as loop
from npgm.lab.experiments.training.ensemble import Ensemble, stackable
from npgm.lab.experiments.training.images import PADDING, Images, ImageTraining, Order
from npgm.lab.experiments.training.trainer import Trainer
from npgm.lab.networks import MLP, resnet18
from npgm.lab.threads import with_threads
from npgm.references import Isotropic

MNIST = ImageTraining({"name": "mlp", "widths": [784, 16]}, "mnist", batch_size=50, epochs=2, examples=120)
CIFAR = ImageTraining({"name": "resnet-cifar", "blocks": 1, "width": 4}, "cifar10", batch_size=4, epochs=2, examples=7, augment=True,
                 preprocessing="standardised")  # fmt: skip
METHODS = [
    ("npgm", {"lr": 1.0}),
    ("npgm", {"lr": 0.1, "momentum": 0.9, "reference": "separable-cosh"}),
    ("sgd", {"lr": 0.5, "momentum": 0.9}),
    ("adam", {"lr": 0.001}),
    ("npgm", {"lr": 0.01, "momentum": 0.9, "reference": "separable-log", "scale": "auto"}),
    ("npgm", {"lr": 0.05, "momentum": 0.9, "reference": "spectral-sqrt", "scale": "auto", "scale_decay": 0.0,
              "momentum_order": "before"}),
]  # fmt: skip


def trained(training, method, arguments, seeds, **options):
    trainer = Trainer(training, method, arguments, seeds, **options)
    while not trainer.done:
        trainer.step()
    return trainer


def without_clock(history):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in history]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "arguments"), METHODS)
def test_seeds_trained_together_are_those_trained_alone(method, arguments):
    together = trained(MNIST, method, arguments, [0, 3, 1])
    for i, seed in enumerate([0, 3, 1]):
        alone = trained(MNIST, method, arguments, [seed])
        for p, q in zip(together.ensemble.members[i], alone.ensemble.members[0], strict=True):
            torch.testing.assert_close(p, q.detach(), rtol=1e-3, atol=1e-5)
        for row, one in zip(together.history, alone.history, strict=True):
            for name in ("train_loss", "test_loss", "test_accuracy"):
                assert row[name][i] == pytest.approx(one[name][0], rel=1e-4)


def test_the_loop_is_the_plain_one(monkeypatch):
    """iHGD by its formula, on minibatches through the images in the order of the seed's generator."""
    monkeypatch.setattr(loop, "LAST_STEPS", 2)
    trainer = trained(MNIST, "npgm", {"lr": 1.0}, [7])
    images = Images("mnist", examples=120)
    torch.manual_seed(7)
    network = MLP(widths=[784, 16])
    generator = torch.Generator().manual_seed(7)
    for row in trainer.history:
        losses = []
        for index in torch.randperm(120, generator=generator).split(50):
            loss = cross_entropy(network(images.train[index].squeeze(-1) / 255), images.train_labels[index])
            gradients = torch.autograd.grad(loss, list(network.parameters()))
            norm = torch.sqrt(sum(g.square().sum() for g in gradients))
            with torch.no_grad():
                for p, g in zip(network.parameters(), gradients, strict=True):
                    p -= torch.asinh(norm) * g / norm
            losses.append(len(index) * loss.item() / 120)
        assert row["train_loss"] == [pytest.approx(sum(losses), rel=1e-4)]
        assert row["late_loss"] == [pytest.approx(sum(losses[1:]) * 120 / 70, rel=1e-4)]
        with torch.no_grad():
            logits = network(images.test[:, :, :, 0] / 255)
        assert row["test_loss"] == [pytest.approx(cross_entropy(logits, images.test_labels).item(), rel=1e-4)]
        assert row["test_accuracy"] == [(logits.argmax(1) == images.test_labels).double().mean().item()]


@pytest.mark.slow
def test_a_narrow_network_survives_odd_batches_on_threads():
    with with_threads(2):
        assert len(trained(CIFAR, "sgd", {"lr": 0.1}, [0]).history) == 2


def test_a_resnet_learns_and_evaluates_with_running_statistics():
    trainer = trained(CIFAR, "npgm", {"lr": 0.2, "momentum": 0.9}, [0])
    assert len(trainer.history) == 2
    assert trainer.evaluate() == trainer.evaluate()
    buffers = dict(trainer.ensemble._form.named_buffers())
    assert all(buffer.item() == 4 for name, buffer in buffers.items() if name.endswith("num_batches_tracked"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("training", "method", "arguments"),
    [*((MNIST, *METHODS[i]) for i in (1, 3, 4)), (CIFAR, *METHODS[2])],
)
def test_a_run_resumed_within_an_epoch_is_the_uninterrupted_one(tmp_path, training, method, arguments):
    seeds = [0, 1] if training is MNIST else [2]
    whole = trained(training, method, arguments, seeds)
    stopped = Trainer(training, method, arguments, seeds)
    for _ in range(whole.steps_per_round + 1):
        stopped.step()
    checkpoint.save(stopped, tmp_path / "a.checkpoint")
    resumed = Trainer(training, method, arguments, seeds)
    assert checkpoint.restore(resumed, tmp_path / "a.checkpoint")
    assert resumed.steps == stopped.steps
    while not resumed.done:
        resumed.step()
    assert without_clock(resumed.history) == without_clock(whole.history)
    for one, other in zip(resumed.ensemble.members, whole.ensemble.members, strict=True):
        assert all(torch.equal(p, q) for p, q in zip(one, other, strict=True))
    assert [p.name for p in tmp_path.iterdir()] == ["a.checkpoint"]


def test_a_damaged_checkpoint_is_as_good_as_none(tmp_path):
    trainer = Trainer(MNIST, "sgd", {"lr": 0.1}, [0])
    for content in (b"", b"nonsense"):
        (tmp_path / "a").write_bytes(content)
        assert not checkpoint.restore(trainer, tmp_path / "a")
    torch.save({"steps": 3}, tmp_path / "a")
    assert not checkpoint.restore(trainer, tmp_path / "a")
    assert not checkpoint.restore(trainer, tmp_path / "none")
    assert trainer.steps == 0


def test_a_seed_that_diverges_leaves_the_others_alone():
    trainer = Trainer(MNIST, "sgd", {"lr": 0.1}, [0, 1])
    with torch.no_grad():
        trainer.ensemble.members[1][0].fill_(float("nan"))
    while not trainer.done:
        trainer.step()
    alone = trained(MNIST, "sgd", {"lr": 0.1}, [0])
    assert trainer.history[-1]["train_loss"] == [
        pytest.approx(alone.history[-1]["train_loss"][0]), pytest.approx(float("nan"), nan_ok=True)
    ]  # fmt: skip
    overflowing = {"lr": 1.0, "weight_decay": 1e30}  # all parameters are infinite after two steps, on every processor
    assert len(trained(MNIST, "sgd", overflowing, [0]).history) == 1


def test_augmentation_is_cropping_the_padded_image_and_flipping():
    images = Images("cifar10", examples=20)
    order = Order([torch.Generator().manual_seed(seed) for seed in (0, 1)], images, augment=True)
    assert sorted(order.index[1].tolist()) == list(range(20))
    batch, labels = images.batch(order, slice(3, 9))
    padded = torch.nn.functional.pad(images.train.movedim(-1, 1).float() / 255, (PADDING,) * 4)
    for seed in (0, 1):
        for i in range(6):
            top, left = order.crop[seed, 3 + i].tolist()
            expected = padded[order.index[seed, 3 + i], :, top : top + 32, left : left + 32]
            torch.testing.assert_close(batch[seed, i], expected.flip(-1) if order.flip[seed, 3 + i] else expected)
            assert labels[seed, i] == images.train_labels[order.index[seed, 3 + i]]
    assert batch[0].is_contiguous(memory_format=torch.channels_last)
    assert {0, 2 * PADDING} <= set(order.crop.flatten().tolist())
    assert 0 < order.flip.sum() < 40


@pytest.mark.slow
def test_preprocessing():
    unit, standardised = (Images("cifar10", name, examples=100) for name in ("unit", "standardised"))
    order = Order([torch.Generator()], unit, augment=False)
    pixels, _ = unit.batch(order, slice(100))
    assert (pixels.min(), pixels.max()) == (0, 1)
    pixels, _ = standardised.batch(order, slice(100))
    torch.testing.assert_close(pixels.mean((0, 1, 3, 4)), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(pixels.std((0, 1, 3, 4)), torch.ones(3), atol=1e-3, rtol=0)
    assert len(standardised.test) == 100
    assert len(Images("mnist").test) == 10000


def test_a_data_set_without_images_is_refused():
    with pytest.raises(ValueError, match="the data set movielens-100k has no images; it holds"):
        Images("movielens-100k")


@pytest.mark.slow
def test_bfloat16_is_near_float32():
    def loss(precision):
        training = ImageTraining(
            {"name": "mlp", "widths": [784, 16]}, "mnist", 50, epochs=2, examples=120, precision=precision
        )
        return trained(training, "npgm", {"lr": 0.5}, [0, 1]).history[-1]["train_loss"]

    assert loss("bfloat16") == pytest.approx(loss("float32"), rel=0.05)
    assert loss("bfloat16") != loss("float32")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")
def test_a_compiled_network_trains_alike(monkeypatch):
    """Without Inductor, whose C++ takes long to compile and is no part of npgm."""
    counter = CompileCounterWithBackend("aot_eager")
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=counter))

    def loss(compiled):
        training = ImageTraining(
            {"name": "mlp", "widths": [784, 16]}, "mnist", 60, epochs=2, examples=120, compiled=compiled
        )
        return trained(training, "npgm", {"lr": 0.5}, [0, 1]).history[-1]["train_loss"]

    assert loss(False) == pytest.approx(loss(True), rel=1e-4)
    assert counter.frame_count > 0


def test_what_can_be_stacked():
    assert stackable(MLP)
    assert not stackable(resnet18)
    with pytest.raises(ValueError, match="train one at a time"):
        Ensemble(resnet18, [0, 1])


def test_building_a_network_leaves_torchs_generator_alone():
    before = torch.random.get_rng_state()
    Ensemble(MLP, [5])
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_optimizers_momentum_forms():
    """SGD with the stepsize (1-β)γ is NPGM with a linear preconditioner; with the dampening β its first step is not."""
    first, second, third = torch.tensor([1.0]), torch.tensor([1.0]), torch.tensor([1.0])
    gradients = (3.0, 2.0, -1.0)
    arguments = {"lr": 0.1, "momentum": 0.9}
    (sgd,) = optimizers.build("sgd", {"x": first}, {**arguments, "lr": 0.1 * (1 - 0.9)})
    (npgm,) = optimizers.build("npgm", {"x": second}, {**arguments, "reference": "isotropic-quad"})
    for gradient in gradients:
        first.grad = second.grad = torch.tensor([gradient])
        sgd.step()
        npgm.step()
    torch.testing.assert_close(first, second)
    (dampened,) = optimizers.build("sgd", {"x": third}, {**arguments, "dampening": 0.9})
    third.grad = torch.tensor([3.0])
    dampened.step()
    torch.testing.assert_close(third, torch.tensor([1.0 - 0.1 * 3.0]))  # and not 0.01 · 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"network": {"name": "x"}},
            "unknown network 'x'; accepted: gpt, lstm, mlp, resnet-cifar, resnet18, resnet34, rnn",
        ),
        ({"network": {"name": "resnet18", "stem": "x"}}, "unknown stem 'x'"),
        ({"preprocessing": "x"}, "unknown preprocessing 'x'; accepted: standardised, unit"),
        ({"precision": "x"}, "unknown precision 'x'; accepted: bfloat16, float32"),
        ({"batch_size": 0}, "batch_size must be at least 1, not 0"),
        ({"epochs": 0}, "epochs must be at least 1, not 0"),
        ({"examples": 0}, "examples must be at least 1, not 0"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        ImageTraining(**{"network": {"name": "mlp"}, "dataset": "mnist", "batch_size": 1, "epochs": 1, **options})


def test_unknown_optimizer():
    with pytest.raises(ValueError, match="unknown method 'x'; accepted: adam, adamw, muon, npgm, sgd"):
        optimizers.build("x", {"x": torch.zeros(1)}, {})
    arguments = {"lr": 1.0, "reference": Isotropic(Cosh(), 2.0)}
    (built,) = optimizers.build("npgm", {"x": torch.zeros(1)}, arguments)
    assert built.defaults["scale"] == 2.0

import math
import statistics

import pytest
import torch
from torch import nn

import npgm.torch
from npgm.torch import Suggestion, suggest


def quadratic(model, batch):
    return model(batch).square().mean()


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()


@pytest.fixture
def batches():
    generator = torch.Generator().manual_seed(1)
    return [10.0**k * torch.randn(5, 4, generator=generator, dtype=torch.float64) for k in (-1, 0, 1)]


def gradients(model, batch):
    return torch.autograd.grad(quadratic(model, batch), list(model.parameters()))


def test_what_is_measured(model, batches):
    found = suggest(model, quadratic, iter(batches))
    norms = [torch.cat([g.flatten() for g in gradients(model, batch)]).norm().item() for batch in batches]
    assert found.gradient_norm == pytest.approx(statistics.median(norms))
    for name, columns in zip(found.rms, zip(*(gradients(model, batch) for batch in batches), strict=True), strict=True):
        assert found.rms[name] == pytest.approx(statistics.median(g.square().mean().sqrt().item() for g in columns))
    assert list(found.rms) == [name for name, _ in model.named_parameters()]
    assert found.options == found.automatic == {}


def length_of_a_constant_gradients_step(optimizer_of, parameters, values):
    """Return the norm of a step once the momentum has settled."""
    copies = [nn.Parameter(p.detach().clone()) for p in parameters]
    optimizer = optimizer_of(copies)
    for _ in range(400):
        before = torch.cat([p.detach().flatten().clone() for p in copies])
        for p, g in zip(copies, values, strict=True):
            p.grad = g.clone()
        optimizer.step()
    return (torch.cat([p.detach().flatten() for p in copies]) - before).norm().item()


@pytest.mark.slow
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("clip", [1e-3, math.inf])
@pytest.mark.parametrize("name", ["NGD", "IHGD"])
def test_a_step_is_as_long_as_that_of_clipped_sgd(model, batches, momentum, clip, name):
    found = suggest(model, quadratic, batches[:1], sgd_lr=0.01, clip=clip, momentum=momentum)
    values = gradients(model, batches[0])

    def clipped(parameters):
        optimizer = torch.optim.SGD(parameters, lr=0.01, momentum=momentum)

        def clip_first(*_):
            torch.nn.utils.clip_grad_norm_(parameters, clip)

        optimizer.register_step_pre_hook(clip_first)
        return optimizer

    theirs = length_of_a_constant_gradients_step(clipped, model.parameters(), values)
    cls = getattr(npgm.torch, name)
    ours = length_of_a_constant_gradients_step(lambda ps: cls(ps, **found.options[name]), model.parameters(), values)
    assert ours == pytest.approx(theirs, rel=1e-4)
    assert found.options[name]["scale"] == pytest.approx(found.gradient_norm / 10)


@pytest.mark.parametrize("name", ["NGD", "IHGD", "SNGD", "SHGD", "SpectralGD"])
def test_a_step_without_a_scale_is_as_long(name):
    """At the gradient that was measured, of a matrix whose singular values are equal."""
    p = nn.Parameter(torch.zeros(4, 4, dtype=torch.float64))
    g = 0.3 * torch.eye(4, dtype=torch.float64)
    if name in ("SNGD", "SHGD"):
        g = torch.full_like(g, 0.3)
    holder = nn.ParameterList([p])
    found = suggest(holder, lambda model, _: (model[0] * g).sum(), [None], sgd_lr=0.01, adam_lr=0.003)
    p.grad = g.clone()
    getattr(npgm.torch, name)([p], momentum=0.0, **found.automatic[name]).step()
    length = {"NGD": 0.01 * 0.6, "IHGD": 0.01 * 0.6, "SpectralGD": 0.2 * 4 * 0.003 / (1 + 0.03**2) ** 0.5}
    assert p.norm().item() == pytest.approx(length.get(name, 4 * 0.003))


@pytest.mark.parametrize("name", ["SNGD", "SHGD"])
def test_a_typical_entry_moves_by_the_stepsize_of_adam(model, batches, name):
    found = suggest(model, quadratic, batches, adam_lr=0.003)
    entry = found.gradient_norm / math.sqrt(sum(p.numel() for p in model.parameters()))
    p = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    p.grad = torch.full_like(p, entry)
    getattr(npgm.torch, name)([p], **found.options[name]).step()
    assert -p.item() == pytest.approx(0.003)


def test_the_text_is_code_that_runs(model, batches):
    found = suggest(model, quadratic, batches, sgd_lr=0.1, clip=0.5, momentum=0.9, adam_lr=1e-3)
    lines = str(found).splitlines()
    calls = [line for line in lines if "model" in line and "lr=" in line]
    names = ["NGD", "IHGD", "SNGD", "SHGD"]
    assert [call.partition("(")[0] for call in calls] == [*names, *names, "SpectralGD"]
    for call in calls:
        optimizer = eval(call, {**vars(npgm.torch), "model": model})
        assert optimizer.defaults["momentum"] == (0.95 if call.startswith("SpectralGD") else 0.9)
    assert [group["reference"] for group in optimizer.param_groups] == ["spectral-sqrt", "separable-log"]
    assert [group["scale"] for group in optimizer.param_groups] == ["auto", "auto"]
    assert lines[0] == f"median norm of the gradient: {found.gradient_norm:.3g}"
    assert "0.weight" in lines[2]


def test_the_model_is_left_as_it_was(batches):
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).double()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    suggest(model, quadratic, batches)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert (model[0].weight.grad == 1).all()
    assert model[2].weight.grad is None


def test_a_parameter_that_the_loss_does_not_use_has_no_part(model, batches):
    model.register_parameter("unused", nn.Parameter(torch.ones(3, dtype=torch.float64)))
    model[0].bias.requires_grad_(False)
    found = suggest(model, quadratic, batches)
    assert found.rms["unused"] == 0.0
    assert "0.bias" not in found.rms


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sgd_lr": 0.0}, "sgd_lr must be positive and finite, not 0.0"),
        ({"sgd_lr": 0.1, "clip": -1.0}, "clip must be positive and finite, not -1.0"),
        ({"adam_lr": math.nan}, "adam_lr must be positive and finite"),
        ({"momentum": 1.0}, r"momentum must lie in \[0, 1\)"),
    ],
)
def test_errors(model, batches, options, message):
    with pytest.raises(ValueError, match=message):
        suggest(model, quadratic, batches, **options)


def test_what_cannot_be_measured(model, batches):
    with pytest.raises(ValueError, match="batches must contain at least one batch"):
        suggest(model, quadratic, [])
    with pytest.raises(ValueError, match=r"the gradient of 0\.weight is not finite"):
        suggest(model, quadratic, [torch.full((1, 4), math.nan, dtype=torch.float64)])
    with pytest.raises(ValueError, match="the gradients of the batches are zero"):
        suggest(model, lambda model, batch: 0.0 * quadratic(model, batch), batches)
    with pytest.raises(ValueError, match="the model has no parameter to train"):
        suggest(nn.Tanh(), quadratic, batches)


def test_a_huge_gradient_has_a_norm():
    p = nn.Linear(2, 1, bias=False)
    found = suggest(p, lambda model, x: 1e30 * model(x).sum(), [torch.ones(1, 2)])
    assert isinstance(found, Suggestion)
    assert found.gradient_norm == pytest.approx(2**0.5 * 1e30, rel=1e-6)

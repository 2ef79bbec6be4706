"""Options at construction, in groups and between steps."""

import inspect

import numpy as np
import pytest
import torch

import npgm
from npgm.torch import IHGD, NPGM, SpectralGD
from npgm.torch.options import NAMES, defaults
from tensors import NAMED, flat, loss, parameters


@pytest.mark.parametrize("cls", NAMED)
def test_the_named_optimizers_are_npgm_with_a_reference(cls):
    own, general = parameters(), parameters()
    a = cls(own, lr=0.1, momentum=0.5, scale=3.0, weight_decay=0.01, maximize=True)
    b = NPGM(general, 0.1, 0.5, npgm.reference(NAMED[cls], scale=3.0), 0.01, maximize=True)
    assert a.param_groups[0]["reference"] == NAMED[cls]
    for params, optimizer in ((own, a), (general, b)):
        for _ in range(3):
            optimizer.zero_grad()
            loss(params).backward()
            optimizer.step()
    np.testing.assert_array_equal(flat(own), flat(general))


def test_options_of_groups_differ():
    params = parameters()
    optimizer = NPGM(
        [{"params": params[:1], "lr": 0.0}, {"params": params[1:], "reference": npgm.reference("separable-log", scale=4.0)}],
        lr=0.1,
    )  # fmt: skip
    assert [g["reference"] for g in optimizer.param_groups] == ["isotropic-cosh", "separable-log"]
    assert [g["scale"] for g in optimizer.param_groups] == [1.0, 4.0]
    before = [p.detach().clone() for p in params]
    loss(params).backward()
    optimizer.step()
    assert torch.equal(params[0], before[0])
    torch.testing.assert_close(params[2].detach(), before[2] - 0.1 * params[2].grad / (4 + params[2].grad.abs()))


def test_momentum_that_is_switched_on_later_starts_from_zero():
    params = parameters()
    optimizer = IHGD(params, lr=0.1)
    loss(params).backward()
    optimizer.step()
    assert not optimizer.state
    optimizer.param_groups[0]["momentum"] = 0.5
    optimizer.step()
    assert len(optimizer.state) == 3


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"lr": -1.0}, ValueError, "lr must be nonnegative and finite, not -1.0"),
        ({"lr": float("nan")}, ValueError, "lr must be nonnegative and finite, not nan"),
        ({"momentum": 1.0}, ValueError, r"momentum must lie in \[0, 1\), not 1.0"),
        ({"weight_decay": -0.1}, ValueError, "weight_decay must be nonnegative and finite, not -0.1"),
        ({"lr": torch.tensor([0.1, 0.1])}, ValueError, "Tensor lr must be 1-element"),
        ({"lr": torch.tensor(-1.0)}, ValueError, "lr must be nonnegative and finite, not -1.0"),
        ({"lr": torch.tensor(1j)}, TypeError, "lr must be a real number"),
        ({"lr": None}, TypeError, "lr must be a real number, not None"),
        ({"momentum": torch.tensor(0.9)}, TypeError, "momentum must be a real number"),
        ({"momentum": float("nan")}, ValueError, r"momentum must lie in \[0, 1\), not nan"),
        ({"decoupled_weight_decay": None}, TypeError, "decoupled_weight_decay must be a bool, not None"),
        ({"scope": "layer"}, ValueError, "unknown scope 'layer'; accepted: global, group, tensor"),
        ({"nonfinite": "ignore"}, ValueError, "unknown nonfinite 'ignore'; accepted: propagate, raise, skip"),
        (
            {"momentum_dtype": torch.int32},
            TypeError,
            "momentum_dtype must be a real floating-point torch.dtype or None",
        ),
        ({"momentum_dtype": "float32"}, TypeError, "momentum_dtype must be a real floating-point torch.dtype or None"),
        ({"maximize": 1}, TypeError, "maximize must be a bool, not 1"),
        ({"foreach": "yes"}, TypeError, "foreach must be a bool or None, not 'yes'"),
        ({"capturable": 1}, TypeError, "capturable must be a bool, not 1"),
        (
            {"capturable": True, "nonfinite": "raise"},
            ValueError,
            "`capturable` cannot be combined with nonfinite='raise'",
        ),
        (
            {"foreach": True, "differentiable": True},
            ValueError,
            "`foreach` and `differentiable` cannot be `True` together",
        ),
        ({"reference": "cosh"}, ValueError, "unknown reference 'cosh'; accepted: isotropic-"),
        ({"reference": 3}, TypeError, "reference must be a reference function or the name of one, not 3"),
        ({"dampening": 0.9}, TypeError, "unexpected keyword argument 'dampening'"),
    ],
)
def test_bad_options_are_refused_at_construction_and_in_groups(options, error, message):
    with pytest.raises(error, match=message):
        NPGM(parameters(), **{"lr": 0.1, **options})
    if "dampening" not in options:
        with pytest.raises(error, match=message):
            NPGM([{"params": parameters(), **options}], lr=0.1)


def test_differentiable_is_not_an_option_of_a_group():
    with pytest.raises(ValueError, match="differentiable is the same for all groups"):
        IHGD([{"params": parameters(), "differentiable": True}], lr=0.1)


def test_the_docstring_lists_every_option():
    text = inspect.getdoc(NPGM)
    options = text[text.index("Args:") : text.index("Raises:")].splitlines()[1:-1]
    assert {line.partition(":")[0].strip() for line in options if line[4] != " "} == {"params", *NAMES}
    assert all(line.startswith(8 * " ") and line[8] != " " for line in options if line[4] == " ")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("reference", "isotropic-none", "isotropic-none"),
        ("momentum", 1.045, r"momentum must lie in \[0, 1\), not 1.045"),
        ("nonfinite", "skipp", "unknown nonfinite 'skipp'"),
        ("scope", "all", "unknown scope 'all'"),
        ("momentum_order", "first", "unknown momentum_order 'first'"),
        ("lr_like", "adam", "unknown lr_like 'adam'"),
        ("weight_decay", -0.1, "weight_decay must be nonnegative"),
        ("scale", 0.0, "scale must be positive"),
        ("lr", -0.1, "lr must be nonnegative"),
        ("lr", torch.ones(2), "Tensor lr must be 1-element"),
        ("foreach", True, "`fused` and `foreach` cannot be `True` together"),
    ],
)
def test_an_option_that_is_changed_between_steps_is_checked(option, value, message):
    p = torch.ones(3, requires_grad=True)
    optimizer = IHGD([p], lr=0.1, momentum=0.9, lr_like="sgd", fused=True)
    p.grad = torch.ones(3)
    optimizer.step()
    momentum = optimizer.state[p]["momentum_buffer"]
    before = p.detach().clone(), momentum.clone()
    optimizer.param_groups[0][option] = value
    with pytest.raises(ValueError, match=message):
        optimizer.step()
    assert p.equal(before[0])
    assert momentum.equal(before[1])


@pytest.mark.parametrize("make", [NPGM, *NAMED, SpectralGD])
def test_signatures_are_the_table_of_options(make):
    """Whose keyword arguments type checkers see as a TypedDict."""
    parameters = inspect.signature(make).parameters
    hidden = set() if make in (NPGM,) else {"reference", "kernel_parameters"}
    spectral = {"matrix_form", "blocks", "adjust", "nesterov", "product_dtype"}
    hidden |= set() if make in (NPGM, SpectralGD) else spectral
    assert parameters.keys() == {"params", *NAMES} - hidden
    training = {"momentum": 0.95, "momentum_order": "before", "nesterov": True, "adjust": "rms"}
    training |= {"scale": "auto", "relative_scale": 0.03}
    for name, default in (defaults() | (training if make is SpectralGD else {})).items():
        if name in parameters:
            assert parameters[name].default == default
    with pytest.raises(TypeError, match=rf"^{make.__name__}\.__init__\(\) missing 1 required .*'lr'"):
        make([torch.ones(1)])


@pytest.mark.parametrize("options", [
    {},
    {"foreach": False},
    {"foreach": True, "lr_like": "sgd"},
    {"reference": "separable-cosh", "lr": torch.tensor(0.2)},
    {"reference": "spectral-sqrt", "momentum_order": "before"},
], ids=str)  # fmt: skip
def test_a_multiple_of_the_stepsize_is_another_stepsize(options):
    """To the decay as well, and under a schedule that sets the same stepsize in all groups."""
    options = {"lr": 0.2, "momentum": 0.9, "weight_decay": 0.1, "decoupled_weight_decay": True} | options
    start, moved = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), []
    for factor in (1.0, 0.25):
        p = torch.nn.Parameter(start.clone())
        optimizer = NPGM([{"params": [p], "lr_multiple": 0.25 / factor}], **options | {"lr": options["lr"] * factor})
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2.0 * factor, total_steps=5, cycle_momentum=False)
        for _ in range(4):
            p.grad = p.detach() ** 3
            optimizer.step()
            schedule.step()
        moved.append(p.detach())
    torch.testing.assert_close(*moved)

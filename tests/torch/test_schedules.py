"""Learning rate schedulers, averaged models, closures and hooks."""

import copy
from functools import partial

import pytest
import torch
from torch.optim import lr_scheduler, swa_utils
from torch.optim.optimizer import register_optimizer_step_post_hook

from npgm.torch import IHGD, NPGM, SHGD, SpectralGD
from tensors import assert_unchanged, loss, parameters, snapshot


def test_closure_hooks_and_named_parameters():
    model = torch.nn.Linear(3, 2)
    optimizer = IHGD(model.named_parameters(), lr=0.1)
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    calls = []
    handles = [
        optimizer.register_step_pre_hook(lambda opt, args, kwargs: calls.append("pre")),
        optimizer.register_step_post_hook(lambda opt, args, kwargs: calls.append("post")),
        register_optimizer_step_post_hook(lambda opt, args, kwargs: calls.append("global post")),
    ]

    def closure():
        assert torch.is_grad_enabled()
        optimizer.zero_grad()
        value = model(torch.ones(1, 3)).square().sum()
        value.backward()
        return value

    values = [optimizer.step(closure).item() for _ in range(3)]
    assert values[2] < values[0]
    assert calls == 3 * ["pre", "post", "global post"]
    for handle in handles:
        handle.remove()

    def failing():
        raise KeyError("data")

    before = snapshot(optimizer)
    with pytest.raises(KeyError):
        optimizer.step(failing)
    assert_unchanged(optimizer, before)
    assert torch.is_grad_enabled()

    optimizer.param_groups[0]["nonfinite"] = "raise"
    model.bias.grad = torch.full((2,), torch.nan)
    with pytest.raises(RuntimeError, match="the gradient of bias contains NaN"):
        optimizer.step()


SCHEDULERS = {
    "LambdaLR": lambda opt: lr_scheduler.LambdaLR(opt, lambda k: 0.9**k),
    "MultiplicativeLR": lambda opt: lr_scheduler.MultiplicativeLR(opt, lambda k: 0.9),
    "StepLR": lambda opt: lr_scheduler.StepLR(opt, 2),
    "MultiStepLR": lambda opt: lr_scheduler.MultiStepLR(opt, [1, 4]),
    "ConstantLR": lambda opt: lr_scheduler.ConstantLR(opt, 0.5, 3),
    "LinearLR": lambda opt: lr_scheduler.LinearLR(opt, 0.2, total_iters=4),
    "ExponentialLR": lambda opt: lr_scheduler.ExponentialLR(opt, 0.9),
    "PolynomialLR": lambda opt: lr_scheduler.PolynomialLR(opt, 6, 2.0),
    "CosineAnnealingLR": lambda opt: lr_scheduler.CosineAnnealingLR(opt, 5),
    "CosineAnnealingWarmRestarts": lambda opt: lr_scheduler.CosineAnnealingWarmRestarts(opt, 2, 2),
    "CyclicLR": lambda opt: lr_scheduler.CyclicLR(opt, 0.01, 0.3, 2, base_momentum=0.8, max_momentum=0.95),
    "OneCycleLR": lambda opt: lr_scheduler.OneCycleLR(opt, 0.3, total_steps=9),
    "SWALR": lambda opt: swa_utils.SWALR(opt, 0.01, 3),
    "ReduceLROnPlateau": lambda opt: lr_scheduler.ReduceLROnPlateau(opt, patience=1, factor=0.5, min_lr=[0.01, 0.1]),
    "SequentialLR": lambda opt: lr_scheduler.SequentialLR(
        opt, [lr_scheduler.LinearLR(opt), lr_scheduler.ExponentialLR(opt, 0.9)], [3]
    ),
    "ChainedScheduler": lambda opt: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(opt), lr_scheduler.StepLR(opt, 3)]
    ),
}
"""Each scheduler of torch, over two parameter groups."""


def scheduled(make, scheduler):
    """An optimizer with two groups, and its scheduler."""
    groups = [
        {"params": [torch.ones(2, requires_grad=True)]},
        {"params": [torch.ones(3, requires_grad=True)], "lr": 0.5},
    ]
    optimizer = make(groups, lr=0.1, momentum=0.9)
    return optimizer, SCHEDULERS[scheduler](optimizer)


def epochs(optimizer, scheduler, count, name):
    """What the schedule makes of both groups in so many epochs."""
    seen = []
    for _ in range(count):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        scheduler.step(*[1.0] * (name == "ReduceLROnPlateau"))
        seen.append([(float(group["lr"]), group["momentum"]) for group in optimizer.param_groups])
    return seen


@pytest.mark.parametrize(
    "optimizer", [IHGD, partial(NPGM, lr_like="sgd"), partial(SpectralGD, scale=1.0, lr_like="sgd")]
)
@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_does_what_it_does_with_sgd(name, optimizer):
    want = epochs(*scheduled(torch.optim.SGD, name), 8, name)
    ours, scheduler = scheduled(optimizer, name)
    assert epochs(ours, scheduler, 4, name) == want[:4]
    later, resumed = scheduled(optimizer, name)
    later.load_state_dict(ours.state_dict())
    resumed.load_state_dict(copy.deepcopy(scheduler.state_dict()))
    assert epochs(later, resumed, 4, name) == want[4:]


def test_every_scheduler_of_torch_is_tried():
    assert set(lr_scheduler.__all__) - {"LRScheduler"} <= set(SCHEDULERS)


@pytest.mark.parametrize("lr", [0.1, torch.tensor(0.1)], ids=["float", "tensor"])
def test_learning_rate_schedulers(lr):
    makers = [
        lambda opt: lr_scheduler.StepLR(opt, 2),
        lambda opt: lr_scheduler.CosineAnnealingLR(opt, 10),
        lambda opt: lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=10),
        lambda opt: lr_scheduler.CyclicLR(opt, 0.01, 0.1, cycle_momentum=True),
        lambda opt: lr_scheduler.SequentialLR(
            opt, [lr_scheduler.LinearLR(opt), lr_scheduler.ExponentialLR(opt, 0.9)], [3]
        ),
        lambda opt: swa_utils.SWALR(opt, swa_lr=0.01),
    ]
    for make in makers:
        params = parameters()
        optimizer = IHGD(params, lr=lr * 1, momentum=0.9)
        scheduler = make(optimizer)
        before = loss(params).item()
        for _ in range(5):
            optimizer.zero_grad()
            loss(params).backward()
            optimizer.step()
            scheduler.step()
        assert loss(params).item() < before
    # without gradients it has no effect that a momentum is not accepted
    idle, peer = (make([torch.ones(2)], 0.1, 0.9) for make in (partial(IHGD, lr_like="sgd"), torch.optim.SGD))
    cycles = [lr_scheduler.CyclicLR(o, 0.1, 0.5, 2, base_momentum=1.0, max_momentum=5.0) for o in (idle, peer)]
    for _ in range(6):
        for one, cycle in zip((idle, peer), cycles, strict=True):
            one.step()
            cycle.step()
        assert [idle.param_groups[0][key] for key in ("lr", "momentum")] == [
            peer.param_groups[0][key] for key in ("lr", "momentum")
        ]
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    plateau.step(1.0)
    plateau.step(2.0)
    optimizer.step()


def test_averaged_models():
    model = torch.nn.Linear(3, 2)
    average = swa_utils.AveragedModel(model)
    optimizer = SHGD(model.parameters(), lr=0.1)
    seen = []
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        average.update_parameters(model)
        seen.append(model.weight.detach().clone())
    torch.testing.assert_close(average.module.weight.detach(), torch.stack(seen).mean(0))

"""Learning rate schedulers, averaged models, closures and hooks."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.optim import lr_scheduler, swa_utils
from torch.optim.optimizer import register_optimizer_step_post_hook

from npgm.torch import IHGD, SHGD
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
    with pytest.raises(RuntimeError, match="the gradient of bias holds NaN"):
        optimizer.step()


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

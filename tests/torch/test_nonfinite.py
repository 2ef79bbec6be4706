"""NaN and infinity in gradients, and the policies for them."""

import numpy as np
import pytest
import torch

from npgm.torch import IHGD, NPGM, SHGD
from tensors import assert_unchanged, flat, loss, parameters, snapshot


def test_a_nan_is_not_silent():
    params = parameters()
    for p in params:
        p.grad = torch.full_like(p, torch.nan if p.ndim == 0 else 1.0)
    IHGD(params, lr=0.1).step()
    assert all(torch.isnan(p).all() for p in params)


@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-log"])
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("first", [False, True], ids=["later step", "first step"])
def test_policies_for_gradients_that_are_not_finite(name, foreach, value, first):
    for nonfinite in ("propagate", "skip", "raise"):
        params = parameters()
        optimizer = NPGM(params, 0.1, 0.9, name, 0.1, nonfinite=nonfinite, foreach=foreach)
        loss(params).backward()
        if not first:
            optimizer.step()
        before = snapshot(optimizer)
        params[2].grad[3] = value
        if nonfinite == "raise":
            with pytest.raises(RuntimeError, match="the gradient of parameter 2 of group 0 contains NaN or infinity"):
                optimizer.step()
            assert_unchanged(optimizer, before)
            continue
        optimizer.step()
        if nonfinite == "propagate":
            assert not torch.isfinite(params[2][3])
            continue
        for now, then in zip(params, before[1], strict=True):
            assert torch.equal(now, then)
        if not first:
            assert_unchanged(optimizer, before)
        params[2].grad[3] = 1.0
        optimizer.step()
        assert all((p != then).all() for p, then in zip(params, before[1], strict=True))


def test_a_policy_watches_its_own_group():
    watched, other = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    optimizer = SHGD([{"params": [watched], "nonfinite": "skip"}, {"params": [other]}], lr=0.1)
    watched.grad, other.grad = torch.ones(2), torch.tensor([torch.nan, 1.0])
    optimizer.step()
    assert (watched < 1).all()
    assert torch.isnan(other[0])
    watched.grad = torch.tensor([torch.nan, 1.0])
    before = snapshot(optimizer)
    optimizer.step()
    assert torch.equal(watched, before[1][0])
    assert other[1] == before[1][1][1]


@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-cosh"])
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("lr", [0.1, torch.tensor(0.1, dtype=torch.float64)], ids=["float", "tensor"])
def test_gradient_scaler_changes_nothing_and_skips_overflow(name, foreach, unscale, lr):
    plain, scaled = parameters(), parameters()
    optimizers = [NPGM(ps, lr, 0.9, name, 0.1, foreach=foreach) for ps in (plain, scaled)]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for step in range(4):
        for optimizer in optimizers:
            optimizer.zero_grad()
        scaler.scale(loss(scaled)).backward()
        overflow = step == 2
        if overflow:
            scaled[0].grad[0, 0] = torch.inf
            before = snapshot(optimizers[1])
        if unscale:
            scaler.unscale_(optimizers[1])
        scaler.step(optimizers[1])
        scaler.update()
        if overflow:
            assert_unchanged(optimizers[1], before)
            assert scaler.get_scale() == 2.0**9
            continue
        loss(plain).backward()
        optimizers[0].step()
        np.testing.assert_allclose(flat(scaled), flat(plain), rtol=1e-14)


def test_an_overflow_that_a_scaler_found_is_not_raised():
    params = parameters()
    optimizer = IHGD(params, lr=0.1, momentum=0.9, nonfinite="raise")
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(loss(params)).backward()
    params[0].grad[0, 0] = torch.nan
    before = flat(params)
    scaler.step(optimizer)
    np.testing.assert_array_equal(flat(params), before)


@pytest.mark.parametrize("foreach", [None, False, True])
def test_a_skipped_step_has_a_norm_that_is_not_finite(foreach):
    p = torch.ones(3, requires_grad=True)
    optimizer, scaler = IHGD([p], lr=0.1, momentum=0.9, foreach=foreach), torch.amp.GradScaler("cpu")
    scaler.scale(1e38 * p.sum()).backward()
    scaler.step(optimizer)
    assert p.equal(torch.ones(3))
    assert not optimizer.last_grad_norm.isfinite()

from __future__ import annotations

import copy
import io

import numpy as np
import pytest

import npgm
import torch
from npgm import references
from npgm.torch import IHGD, NGD, NPGM, SHGD, SNGD

NAMED = {IHGD: "isotropic-cosh", SHGD: "separable-cosh", NGD: "isotropic-log", SNGD: "separable-log"}


def parameters(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, dtype=dtype, generator=generator, requires_grad=True) for shape in ((5, 3), (), (7,))]


def flat(tensors):
    return torch.cat([t.detach().double().flatten() for t in tensors]).numpy()


def loss(tensors):
    return sum((t**4).sum() / 4 - t.cos().sum() for t in tensors)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", references.names())
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_trajectory_is_algorithm_1_over_all_groups(name, momentum, dtype, rtol):
    params = parameters(dtype)
    phi = npgm.reference(name, scale=2.0)
    groups = [{"params": params[:1]}, {"params": params[1:]}]
    optimizer = NPGM(groups, lr=0.05, momentum=momentum, reference=phi, weight_decay=0.1)
    x, m = flat(params), 0.0
    for _ in range(100):
        optimizer.zero_grad()
        optimizer.step(lambda: (value := loss(params)).backward() or value)
        m = momentum * m + (1 - momentum) * phi.precondition(x**3 + np.sin(x) + 0.1 * x)
        x = x - 0.05 * m
    np.testing.assert_allclose(flat(params), x, rtol=rtol, atol=rtol)


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


def test_checkpoints_copies_and_zero_gradients():
    params = parameters()
    optimizer = IHGD(params, lr=0.1, momentum=0.9, scale=2.0)
    loss(params).backward()
    optimizer.step()
    buffer = io.BytesIO()
    torch.save(optimizer.state_dict(), buffer)
    buffer.seek(0)
    others = [p.detach().clone().requires_grad_() for p in params]
    loaded = IHGD(others, lr=1.0)
    loaded.load_state_dict(torch.load(buffer, weights_only=True))
    copied = copy.deepcopy(optimizer)
    for ps, opt in ((params, optimizer), (others, loaded), (copied.param_groups[0]["params"], copied)):
        opt.zero_grad()
        loss(ps).backward()
        opt.step()
        np.testing.assert_array_equal(flat(ps), flat(params))

    fresh = parameters()
    zero = IHGD(fresh, lr=0.1, momentum=0.9)
    before = flat(fresh)
    zero.step()  # no gradients at all
    for p in fresh:
        p.grad = torch.zeros_like(p)
    zero.step()
    np.testing.assert_array_equal(flat(fresh), before)


@pytest.mark.parametrize("cls", NAMED)
@pytest.mark.parametrize(("dtype", "size"), [(torch.bfloat16, 3e38), (torch.float16, 6e4), (torch.float32, 3e38)])
def test_the_largest_gradients_give_finite_steps(cls, dtype, size):
    p = torch.zeros(10, dtype=dtype, requires_grad=True)
    p.grad = torch.full_like(p, size)
    cls([p], lr=1.0).step()
    assert torch.isfinite(p).all()
    assert (p < 0).all()


def test_a_nan_is_not_silent():
    params = parameters()
    for p in params:
        p.grad = torch.full_like(p, torch.nan if p.ndim == 0 else 1.0)
    IHGD(params, lr=0.1).step()
    assert all(torch.isnan(p).all() for p in params)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"lr": -1.0}, ValueError, "lr must be nonnegative and finite, not -1.0"),
        ({"lr": float("nan")}, ValueError, "lr must be nonnegative and finite, not nan"),
        ({"momentum": 1.0}, ValueError, r"momentum must lie in \[0, 1\), not 1.0"),
        ({"weight_decay": -0.1}, ValueError, "weight_decay must be nonnegative and finite, not -0.1"),
        ({"maximize": 1}, TypeError, "maximize must be a bool, not 1"),
        ({"reference": "cosh"}, ValueError, "unknown reference 'cosh'; accepted: isotropic-cosh"),
        ({"reference": 3}, TypeError, "reference must be a reference function or the name of one, not 3"),
        ({"nesterov": True}, TypeError, "unexpected keyword argument 'nesterov'"),
    ],
)
def test_bad_options_are_refused_at_construction_and_in_groups(options, error, message):
    with pytest.raises(error, match=message):
        NPGM(parameters(), **{"lr": 0.1, **options})
    if "nesterov" not in options:
        with pytest.raises(error, match=message):
            NPGM([{"params": parameters(), **options}], lr=0.1)


def test_gradients_that_are_not_supported_are_refused():
    sparse = torch.zeros(3, requires_grad=True)
    sparse.grad = torch.sparse_coo_tensor([[0]], [1.0], (3,), check_invariants=True)
    complex_ = torch.zeros(3, dtype=torch.complex64, requires_grad=True)
    complex_.grad = torch.ones_like(complex_)
    for p, kind in ((sparse, "sparse"), (complex_, "complex")):
        with pytest.raises(ValueError, match=f"IHGD does not support {kind} gradients"):
            IHGD([p], lr=0.1).step()


def test_an_unregistered_kernel_is_refused():
    class Mine(npgm.Cosh):
        pass

    with pytest.raises(ValueError, match="is not registered; decorate its class"):
        NPGM(parameters(), lr=0.1, reference=npgm.Isotropic(Mine()))

import copy
import subprocess
import sys

import pytest
import torch

from npgm.torch import IHGD, NGD, NPGM, SHGD
from tensors import NAMED, NoSynchronisation, each_way, loss, parameters


@pytest.mark.parametrize("cls", NAMED)
@pytest.mark.parametrize(("dtype", "size"), [(torch.bfloat16, 3e38), (torch.float16, 6e4), (torch.float32, 3e38)])
def test_the_largest_gradients_give_finite_steps(cls, dtype, size):
    p = torch.zeros(10, dtype=dtype, requires_grad=True)
    p.grad = torch.full_like(p, size)
    cls([p], lr=1.0).step()
    assert torch.isfinite(p).all()
    assert (p < 0).all()


@pytest.mark.parametrize("foreach", [False, True])
def test_tensors_of_every_dtype_make_one_norm_without_overflow(foreach):
    sizes = {torch.float64: 1e100, torch.float32: 3e38, torch.bfloat16: 3e38, torch.float16: 6e4}
    params = [torch.zeros(2, dtype=dtype, requires_grad=True) for dtype in [*sizes, torch.complex64]]
    for p in params:
        p.grad = torch.full_like(p, sizes.get(p.dtype, 1e30))
    NGD(params, lr=1.0, foreach=foreach).step()
    assert all(torch.isfinite(p).all() for p in params)
    torch.testing.assert_close(params[0].detach(), torch.full((2,), -(0.5**0.5), dtype=torch.float64))

    for p in params:  # the largest entry is beyond what the narrower dtypes hold, at the other end
        p.data.zero_()
        p.grad = torch.zeros_like(p)
    params[0].grad = torch.full((2,), 1e-60, dtype=torch.float64)
    NGD(params, lr=1.0, foreach=foreach, scale=1e-60).step()
    torch.testing.assert_close(params[0].detach(), torch.full((2,), -1 / (1 + 2**0.5), dtype=torch.float64))
    assert all((p == 0).all() for p in params[1:])


@pytest.mark.parametrize("scale", [1e-44, 1e-38, 1e38])
@pytest.mark.parametrize("foreach", [False, True])
def test_zero_gradients_leave_parameters_at_extreme_scales(scale, foreach):
    p = torch.ones(3, requires_grad=True)
    p.grad = torch.tensor([0.0, 0.0, 0.0])
    IHGD([p], lr=1.0, scale=scale, foreach=foreach).step()
    assert (p == 1).all()
    p.grad = torch.tensor([0.0, 1e-30, 1.0])
    IHGD([p], lr=1.0, scale=scale, foreach=foreach).step()
    assert torch.isfinite(p).all()
    assert p[0] == 1


def test_groups_without_gradients_or_parameters():
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    for foreach in (False, True):
        optimizer = IHGD([{"params": [a]}, {"params": []}, {"params": [b]}], lr=0.1, foreach=foreach, nonfinite="skip")
        a.grad = torch.ones(2)
        optimizer.step()
        optimizer.add_param_group({"params": torch.zeros(0, requires_grad=True), "lr": 0.5})
        optimizer.step()
    assert (b == 1).all()


@each_way
def test_a_gradient_that_is_its_parameter_is_like_any_other(path):
    a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    a.grad, b.grad = torch.ones(3), b.data
    IHGD([{"params": [a]}, {"params": [b]}], lr=0.1, momentum=0.9, **path).step()
    assert (a < 1).all()
    torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-cosh", "isotropic-root"])
@each_way
@pytest.mark.parametrize("nonfinite", ["propagate", "skip", "raise"])
def test_the_default_device_of_the_caller_has_no_part_in_a_step(name, path, nonfinite):
    p = torch.ones(3, requires_grad=True)
    p.grad = torch.ones(3)
    optimizer = NPGM([p], 0.1, 0.9, name, nonfinite=nonfinite, **path)
    with torch.device("meta"):
        optimizer.step()
        assert optimizer.last_grad_norm is None or optimizer.last_grad_norm.device.type == "cpu"
    assert (p < 1).all()


@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-cosh"])
@each_way
def test_a_step_under_autocast_is_the_one_without(name, path):
    results = []
    for enabled in (False, True):
        p = torch.zeros(200_000, requires_grad=True)
        p.grad = torch.linspace(-1, 1, 200_000)
        optimizer = NPGM([p], 0.1, 0.9, name, **path)
        with torch.autocast("cpu", torch.float16, enabled=enabled):
            optimizer.step()
            assert torch.is_autocast_enabled("cpu") == enabled
        results.append(p.detach())
    assert torch.equal(*results)


@pytest.mark.parametrize("scope", ["global", "group", "tensor"])
@each_way
@pytest.mark.parametrize("order", ["after", "before"])
def test_the_last_norm_is_that_of_clipping(scope, path, order):
    params = parameters()
    groups = [{"params": params[:1]}, {"params": params[1:], "weight_decay": 0.5, "decoupled_weight_decay": True}]
    optimizer = IHGD(groups, lr=0.1, momentum=0.9, scope=scope, momentum_order=order, **path)
    assert optimizer.last_grad_norm is None
    seen = 0.0
    for step in range(3):
        for p in params:
            p.grad = torch.full_like(p, 10.0**step)
        optimizer.step()
        seen = 0.1 * 10.0**step + 0.9 * seen if order == "before" else 10.0**step
        norm = optimizer.last_grad_norm
        assert norm.shape == ()
        torch.testing.assert_close(norm, torch.tensor(seen * 23**0.5, dtype=torch.float64))
    with NoSynchronisation():
        optimizer.last_grad_norm  # noqa: B018


def test_a_step_that_takes_no_norm_has_none_to_tell():
    params = parameters()
    loss(params).backward()
    optimizer = SHGD(params, lr=0.1, nonfinite="skip")
    optimizer.step()
    assert optimizer.last_grad_norm is None
    assert copy.deepcopy(optimizer).last_grad_norm is None


def python(code):
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)


def test_without_torch_the_extra_is_named():
    code = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Without())
import npgm.torch
"""
    done = python(code)
    assert "npgm.torch needs PyTorch: pip install 'npgm[torch]'" in done.stderr


@pytest.mark.slow
def test_what_torch_keeps_beyond_the_end_is_no_warning():
    code = """
import sys, torch
del torch.optim.Optimizer._cuda_graph_capture_health_check  # which is deprecated
from npgm.torch import SHGD
p = torch.ones(3, requires_grad=True)
p.grad = torch.ones(3)
SHGD([p], lr=0.1).step()
for name in [name for name in sys.modules if name.startswith("npgm")]:
    del sys.modules[name]
del SHGD
"""
    assert not python(code).stderr


@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-log", "spectral-sqrt"])
@pytest.mark.parametrize("foreach", [None, False, True])
def test_gradients_may_have_other_dtypes_than_their_parameters(name, foreach):
    params = [torch.ones(3, 2, requires_grad=True) for _ in range(3)]
    params[1].grad_dtype = torch.bfloat16
    for p in params:
        p.grad = torch.full_like(p, 2.0, dtype=p.grad_dtype)
    NPGM(params, 0.1, 0.9, name, foreach=foreach, **({"scope": "tensor"} if name[0] == "i" else {})).step()
    assert params[0].lt(1.0).all()
    torch.testing.assert_close(params[1], params[0])

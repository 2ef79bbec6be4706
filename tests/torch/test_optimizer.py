from __future__ import annotations

import copy
import importlib
import inspect
import io
import itertools
import pickle
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.optim import lr_scheduler, swa_utils
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import npgm
from npgm import references
from npgm._array import elementwise
from npgm.kernels import register, registry
from npgm.torch import IHGD, NGD, NPGM, SHGD, SNGD, SpectralGD, options
from npgm.torch.options import NAMES

NAMED = {IHGD: "isotropic-cosh", SHGD: "separable-cosh", NGD: "isotropic-log", SNGD: "separable-log"}


TWO = ["isotropic-cosh", "separable-log"]
"""Of each lift one, where what is tested is not the kernel."""


def parameters(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, dtype=dtype, generator=generator, requires_grad=True) for shape in ((5, 3), (), (7,))]


def flat(tensors):
    return torch.cat([t.detach().double().flatten() for t in tensors]).numpy()


def loss(tensors):
    return sum((t**4).sum() / 4 - t.cos().sum() for t in tensors)


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
    loaded = IHGD(others, lr=1.0, scale=2.0)
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


# What cannot read a value on the host


class NoSynchronisation(TorchDispatchMode):
    """Fails where a value is read on the host, which on an accelerator is where a step waits."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func not in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default), func
        return func(*args, **(kwargs or {}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "scope", "nonfinite", "foreach", "scale"),
    [(name, None, "skip", True, 1.0) for name in references.names("isotropic", "separable")]
    + list(itertools.product(TWO, ["global", "tensor"], ["propagate", "skip"], [False, True], ["auto"]))
    + list(itertools.product(TWO[:1], ["tensor"], ["propagate", "skip"], [False, True], [1.0]))
    + list(itertools.product(TWO, [None], ["propagate", "skip"], [False, True], [1.0])),
)
def test_a_step_reads_nothing_on_the_host(name, foreach, scope, nonfinite, scale):
    params = parameters()
    options = {"foreach": foreach, "scope": scope, "nonfinite": nonfinite, "weight_decay": 0.1, "capturable": True}
    optimizer = NPGM(params, torch.tensor(0.1), 0.9, name, scale=scale, **options)
    optimizer.found_inf = torch.tensor(0.0)
    optimizer.grad_scale = torch.tensor(2.0)
    loss(params).backward()
    before = flat(params)
    with NoSynchronisation():
        optimizer.step()
    assert (flat(params) != before).all()

    with pytest.raises(AssertionError), NoSynchronisation():  # the check itself
        params[0].sum().item()


class NoHost(TorchDispatchMode):
    """Fails where a tensor on the CPU takes part, which on an accelerator would have to be copied."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs, result)) if isinstance(x, torch.Tensor)]
        assert all(x.device.type != "cpu" for x in tensors), func
        return result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "scope", "scale", "foreach"),
    [(name, None, 0.5, True) for name in references.names("isotropic", "separable")]
    + list(itertools.product(TWO, ["global", "tensor"], ["auto"], [False, True]))
    + list(itertools.product(TWO[:1], ["tensor"], [0.5, 2.0], [False, True]))
    + list(itertools.product(TWO, [None], [0.5, 2.0], [False, True])),
)
def test_a_step_copies_nothing_from_the_host(name, foreach, scope, scale):
    params = [torch.ones(3, 2, device="meta", requires_grad=True) for _ in range(2)]
    optimizer = NPGM(params, 0.1, 0.9, name, 0.1, scale=scale, foreach=foreach, scope=scope, nonfinite="skip")
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.param_groups[0]["lr"] = torch.ones(1, device="meta")
    with NoHost():
        optimizer.step()


class Launches(TorchDispatchMode):
    """Counts the operations that are not views."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "scope", "dtype", "scale"),
    list(itertools.product(TWO, ["global", "tensor"], [torch.float32, torch.bfloat16], ["auto"]))
    + list(itertools.product(TWO[:1], ["tensor"], [torch.float32, torch.bfloat16], [1.0]))
    + list(itertools.product(TWO, [None], [torch.float32, torch.bfloat16], [1.0])),
)
def test_foreach_launches_as_much_for_many_tensors_as_for_few(name, scope, dtype, scale):
    counts = []
    for n in (2, 200):
        params = [torch.ones(3, 2, dtype=dtype, requires_grad=True) for _ in range(n)]
        options = {"foreach": True, "scope": scope, "nonfinite": "skip", "weight_decay": 0.1, "scale": scale}
        optimizer = NPGM(params, torch.tensor(0.1), 0.9, name, **options)
        for p in params:
            p.grad = torch.ones_like(p)
        optimizer.step()
        with Launches() as launches:
            optimizer.step()
        counts.append(launches.count)
    assert counts[0] == counts[1] < 200


@pytest.mark.parametrize("foreach", [False, True])
def test_parameters_on_several_devices(foreach):
    # "meta" has no values to read, so this shows too that none is; a norm of both devices cannot leave it
    params = [torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True, device="meta")]
    optimizer = IHGD(params, lr=torch.tensor(0.1), momentum=0.9, foreach=foreach, scope="tensor")
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert (params[0] < 1).all()
    assert [optimizer.state[p]["momentum_buffer"].device.type for p in params] == ["cpu", "meta"]


# Policies for what is not finite


def snapshot(optimizer):
    return copy.deepcopy(optimizer.state_dict()), [
        p.detach().clone() for g in optimizer.param_groups for p in g["params"]
    ]


def assert_unchanged(optimizer, before):
    (state, params), (state_now, params_now) = before, snapshot(optimizer)
    assert state_now["state"].keys() == state["state"].keys()
    for key, entry in state["state"].items():
        torch.testing.assert_close(state_now["state"][key], entry, rtol=0, atol=0, equal_nan=True)
    for now, then in zip(params_now, params, strict=True):
        torch.testing.assert_close(now, then, rtol=0, atol=0)


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
            with pytest.raises(RuntimeError, match="the gradient of parameter 2 of group 0 holds NaN or infinity"):
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


# Mixed precision


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


def test_an_overflow_that_a_scaler_found_is_skipped_and_not_raised():
    params = parameters()
    optimizer = IHGD(params, lr=0.1, momentum=0.9, nonfinite="raise")
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(loss(params)).backward()
    params[0].grad[0, 0] = torch.nan
    before = flat(params)
    scaler.step(optimizer)
    np.testing.assert_array_equal(flat(params), before)


@pytest.mark.parametrize("foreach", [False, True])
def test_float32_momentum_of_bfloat16_parameters_survives_a_checkpoint(foreach):
    p = torch.ones(8, dtype=torch.bfloat16, requires_grad=True)
    optimizer = IHGD([p], lr=0.1, momentum=0.99, momentum_dtype=torch.float32, foreach=foreach)
    p.grad = torch.linspace(0.1, 1, 8).bfloat16()
    optimizer.step()
    momentum = optimizer.state[p]["momentum_buffer"]
    assert momentum.dtype == torch.float32
    assert (momentum != momentum.bfloat16()).any()

    q = p.detach().clone().requires_grad_()
    loaded = IHGD([q], lr=1.0)  # the option comes with the checkpoint
    seen = []
    loaded.register_load_state_dict_pre_hook(
        lambda opt, state: {**state, "param_groups": [{**state["param_groups"][0], "lr": 0.5}]}
    )
    loaded.register_load_state_dict_post_hook(lambda opt: seen.append(opt.state[q]["momentum_buffer"].dtype))
    loaded.load_state_dict(through_file(optimizer.state_dict()))
    assert torch.equal(loaded.state[q]["momentum_buffer"], momentum)
    assert seen == [torch.float32]
    assert loaded.param_groups[0]["lr"] == 0.5
    assert len(loaded._optimizer_load_state_dict_pre_hooks) == len(loaded._optimizer_load_state_dict_post_hooks) == 1


def test_momentum_has_the_dtype_that_is_asked_for():
    params = [torch.ones(2, dtype=d, requires_grad=True) for d in (torch.float32, torch.complex64, torch.bfloat16)]
    for dtype, want in [
        (None, [torch.float32, torch.complex64, torch.bfloat16]),
        (torch.float64, [torch.float64, torch.complex128, torch.float64]),
    ]:
        for foreach in (False, True):
            optimizer = SHGD(params, lr=0.1, momentum=0.9, momentum_dtype=dtype, foreach=foreach)
            for p in params:
                p.grad = torch.ones_like(p)
            optimizer.step()
            assert [optimizer.state[p]["momentum_buffer"].dtype for p in params] == want


# State


def through_file(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@register
@dataclass(frozen=True)
class Stretched(npgm.Quadratic):
    """h = factor x²/2, a kernel of a user with a parameter."""

    key = "stretched-for-tests"
    factor: float = 2.0

    @elementwise
    def precondition(self, xp, y):
        return y / self.factor


registry.pop("stretched-for-tests")  # other tests go over the registry


@pytest.fixture
def stretched(monkeypatch):
    monkeypatch.setitem(registry, Stretched.key, Stretched)


@pytest.mark.parametrize("way", ["state_dict", "pickle", "deepcopy"])
@pytest.mark.parametrize("lr", [0.1, torch.tensor(0.1)], ids=["float", "tensor"])
def test_every_option_survives_a_round_trip(way, lr, stretched):
    params = parameters()
    options = {"decoupled_weight_decay": True, "nonfinite": "skip", "momentum_dtype": torch.float64}
    options |= {"maximize": True, "foreach": True, "capturable": True}
    phi = npgm.Separable(Stretched(4.0), scale=3.0)
    optimizer = NPGM([{"params": params[:1], "lr": lr * 1}, {"params": params[1:]}], lr, 0.9, phi, 0.01, **options)
    params[0].grad, params[1].grad = torch.ones_like(params[0]), torch.ones_like(params[1])  # and none for the last
    optimizer.step()
    if way == "state_dict":
        others = [p.detach().clone().requires_grad_() for p in params]
        loaded = NPGM([{"params": others[:1]}, {"params": others[1:]}], 1.0, reference=phi)
        loaded.load_state_dict(through_file(optimizer.state_dict()))
    else:
        loaded = copy.deepcopy(optimizer) if way == "deepcopy" else pickle.loads(pickle.dumps(optimizer))
        others = [p for group in loaded.param_groups for p in group["params"]]
        assert loaded.defaults == optimizer.defaults
    for group, other in zip(optimizer.param_groups, loaded.param_groups, strict=True):
        assert {k: v for k, v in group.items() if k != "params"} == {k: v for k, v in other.items() if k != "params"}
    assert loaded.param_groups[0]["kernel_parameters"] == {"factor": 4.0}
    assert loaded._step_supports_amp_scaling
    for ps, opt in ((params, optimizer), (others, loaded)):
        for p in ps:
            p.grad = torch.ones_like(p)
        opt.step()
    np.testing.assert_array_equal(flat(others), flat(params))


def test_numbers_of_numpy_are_stored_as_plain_floats():
    params = parameters()
    number = np.float32(0.5)
    group = {"params": params, "lr": number, "momentum": number, "weight_decay": number, "scale": np.float64(2)}
    optimizer = NPGM([group], lr=1)
    through_file(optimizer.state_dict())  # which refuses what is not plain
    stored = optimizer.param_groups[0]
    assert [type(stored[key]) for key in ("lr", "momentum", "weight_decay", "scale")] == 4 * [float]


def test_a_checkpoint_with_an_unknown_kernel_says_so_and_changes_nothing(stretched, monkeypatch):
    params = parameters()
    optimizer = NPGM(params, 0.1, 0.9, npgm.Isotropic(Stretched()))
    state = optimizer.state_dict()
    loaded = IHGD(params, lr=1.0)
    monkeypatch.delitem(registry, Stretched.key)
    with pytest.raises(ValueError, match="unknown reference 'isotropic-stretched-for-tests'; accepted: "):
        loaded.load_state_dict(state)
    assert loaded.param_groups[0]["reference"] == "isotropic-cosh"
    assert loaded.param_groups[0]["lr"] == 1.0
    assert not loaded._optimizer_load_state_dict_pre_hooks


def test_the_state_of_another_optimizer_is_refused():
    params = parameters()
    with pytest.raises(ValueError, match="the state is of another optimizer"):
        IHGD(params, lr=0.1).load_state_dict(torch.optim.SGD(params, lr=0.1).state_dict())


def test_torch_may_be_built_without_distributed(monkeypatch):
    monkeypatch.delattr(torch.distributed, "ReduceOp")
    params = parameters()
    loss(params).backward()
    before = flat(params)
    IHGD(params, lr=0.1, nonfinite="skip").step()
    assert (flat(params) != before).all()


def test_groups_inherit_the_kernel_with_its_parameters(stretched):
    params = parameters()
    phi = npgm.Separable(Stretched(4.0), scale=3.0)
    groups = [
        {"params": params[:1]},
        {"params": params[1:2], "scale": 5.0},
        {"params": params[2:], "reference": "separable-stretched-for-tests"},
    ]
    optimizer = NPGM(groups, 0.1, reference=phi)
    stored = [(g["scale"], g["kernel_parameters"]) for g in optimizer.param_groups]
    assert stored == [(3.0, {"factor": 4.0}), (5.0, {"factor": 4.0}), (3.0, {"factor": 2.0})]
    assert "kernel_parameters" not in groups[0]  # the caller's
    with pytest.raises(ValueError, match="scale is given by the reference"):
        optimizer.add_param_group({"params": [torch.ones(1)], "reference": phi, "scale": 1.0})
    with pytest.raises(TypeError, match="has no parameter 'p'"):
        optimizer.add_param_group({"params": [torch.ones(1)], "kernel_parameters": {"p": 1.0}})
    assert len(optimizer.param_groups) == 3


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("flatten", [False, True])
def test_distributed_checkpoint_keeps_options_and_float32_momentum(tmp_path, flatten, stretched):
    options = StateDictOptions(flatten_optimizer_state_dict=flatten)
    models = [torch.nn.Linear(3, 2).bfloat16() for _ in range(2)]
    phi = npgm.Isotropic(Stretched(4.0), scale=3.0)
    first, second = (NPGM(m.parameters(), 0.1, 0.9, phi, 0.1, momentum_dtype=torch.float32) for m in models)
    models[0](torch.ones(1, 3).bfloat16()).sum().backward()
    first.step()
    dcp.save({"optimizer": get_optimizer_state_dict(models[0], first, options=options)}, checkpoint_id=tmp_path)
    state = {"optimizer": get_optimizer_state_dict(models[1], second, options=options)}
    dcp.load(state, checkpoint_id=tmp_path)
    set_optimizer_state_dict(models[1], second, state["optimizer"], options=options)
    assert second.param_groups[0]["kernel_parameters"] == {"factor": 4.0}
    assert second.param_groups[0]["lr"] == 0.1
    for p, q in zip(*(m.parameters() for m in models), strict=True):
        assert second.state[q]["momentum_buffer"].dtype == torch.float32
        assert torch.equal(first.state[p]["momentum_buffer"], second.state[q]["momentum_buffer"])


def test_a_checkpoint_of_the_first_version_loads():
    params = parameters()
    optimizer = IHGD(params, lr=0.1, momentum=0.9)
    loss(params).backward()
    optimizer.step()
    state = optimizer.state_dict()
    kept = ("lr", "momentum", "weight_decay", "maximize", "reference", "scale", "params")
    state["param_groups"] = [{key: group[key] for key in kept} for group in state["param_groups"]]
    others = [p.detach().clone().requires_grad_() for p in params]
    loaded = IHGD(others, lr=0.1)
    loaded.load_state_dict(through_file(state))
    for ps, opt in ((params, optimizer), (others, loaded)):
        opt.zero_grad()
        loss(ps).backward()
        opt.step()
    np.testing.assert_array_equal(flat(others), flat(params))


def test_momentum_that_is_switched_on_later_starts_from_zero():
    params = parameters()
    optimizer = IHGD(params, lr=0.1)
    loss(params).backward()
    optimizer.step()
    assert not optimizer.state
    optimizer.param_groups[0]["momentum"] = 0.5
    optimizer.step()
    assert len(optimizer.state) == 3


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_distributed_checkpoint_may_have_an_empty_group(momentum):
    model = torch.nn.Linear(3, 2)
    optimizer = IHGD([{"params": [], "lr": 0.5}, {"params": model.parameters()}], lr=0.1, momentum=momentum)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = get_optimizer_state_dict(model, optimizer)
    optimizer.param_groups[1]["lr"] = 0.2
    set_optimizer_state_dict(model, optimizer, state)
    assert optimizer.param_groups[1]["lr"] == 0.1
    assert optimizer.param_groups[0]["reference"] == "isotropic-cosh"
    optimizer.step()


def test_a_state_with_another_reference_function_is_loaded_with_a_warning():
    params = parameters()
    state = IHGD(params, lr=0.1, scale=2.0).state_dict()
    for other in (SHGD(params, lr=0.1, scale=2.0), IHGD(params, lr=0.1)):
        with pytest.warns(
            UserWarning, match=r"reference function of the state, Isotropic\(kernel=Cosh\(\), scale=2.0\)"
        ):
            other.load_state_dict(state)
        assert (other.param_groups[0]["reference"], other.param_groups[0]["scale"]) == ("isotropic-cosh", 2.0)
        other.load_state_dict(state)  # the same now


# The rest of the contract of torch.optim


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


def test_groups_without_gradients_or_parameters():
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    for foreach in (False, True):
        optimizer = IHGD([{"params": [a]}, {"params": []}, {"params": [b]}], lr=0.1, foreach=foreach, nonfinite="skip")
        a.grad = torch.ones(2)
        optimizer.step()
        optimizer.add_param_group({"params": torch.zeros(0, requires_grad=True), "lr": 0.5})
        optimizer.step()
    assert (b == 1).all()


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *itertools.product(TWO, [{}, {"decoupled_weight_decay": True}, {"nonfinite": "skip"}]),
        (TWO[0], {"scope": "tensor"}),
        (TWO[0], {"momentum_order": "before"}),
        (TWO[1], {"momentum_order": "before", "nonfinite": "skip"}),
        ("spectral-sqrt", {"decoupled_weight_decay": True}),
        ("spectral-sqrt", {"momentum_order": "before", "nesterov": True, "adjust": "rms"}),
    ],
    ids=str,
)
def test_autograd_goes_through_two_steps(name, options):
    def steps(x, y, first, second, momentum, lr):
        points = [x.clone(), y.clone()]
        optimizer = NPGM(points, lr, 0.7, name, 0.1, differentiable=True, **options)
        optimizer.state[points[0]]["momentum_buffer"] = momentum.clone()
        for gradient in (first, second):
            points[0].grad, points[1].grad = gradient * 2, gradient[0] * 3
            optimizer.step()
        return tuple(points)

    generator = torch.Generator().manual_seed(0)
    shapes = [(3,), (), (3,), (3,), (3,)]
    inputs = [torch.randn(s, dtype=torch.float64, generator=generator, requires_grad=True) for s in shapes]
    assert torch.autograd.gradcheck(steps, (*inputs, torch.tensor(0.3, dtype=torch.float64, requires_grad=True)))


# at mu = 0 there is no derivative
@pytest.mark.parametrize(
    "name", [name for name in references.names("isotropic", "separable") if npgm.reference(name).mu > 0]
)
def test_autograd_at_a_zero_gradient(name):
    phi = npgm.reference(name, scale=2.0)
    point, gradient = (torch.zeros(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    moved = point.clone()
    optimizer = NPGM([moved], 0.5, reference=phi, differentiable=True)
    moved.grad = gradient * 1
    optimizer.step()
    (derivative,) = torch.autograd.grad(moved.sum(), gradient)
    jacobian = torch.autograd.functional.jacobian(phi.precondition, torch.zeros_like(gradient))
    torch.testing.assert_close(derivative, -0.5 * jacobian.sum(0))


def test_capture_without_capturable_is_refused(monkeypatch):
    class Stream:
        def is_capturing(self):
            return True

    params = parameters()
    loss(params).backward()
    optimizer = IHGD(params, lr=0.1)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "current_stream", Stream)
    with pytest.raises(RuntimeError, match=r"Attempting CUDA graph capture of step.* capturable is False"):
        optimizer.step()
    optimizer.param_groups[0]["capturable"] = True
    optimizer.step()


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
        ({"capturable": True, "nonfinite": "raise"}, ValueError, "`capturable` does not go with nonfinite='raise'"),
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


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_gradients_that_are_not_supported_are_refused_before_anything_has_changed():
    first = torch.ones(2, requires_grad=True)
    bad = torch.sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 1.0], (2, 2), check_invariants=True, requires_grad=True)
    optimizer = SHGD([{"params": [first]}, {"params": [bad]}], lr=0.1, momentum=0.9)
    first.grad = torch.ones(2)
    bad.grad = bad.detach().clone()
    with pytest.raises(RuntimeError, match=r"parameter 0 of group 1 has the layout torch\.sparse_csr"):
        optimizer.step()
    assert (first == 1).all()
    assert not optimizer.state

    flat_parameter = torch.ones(2, requires_grad=True)
    flat_parameter._is_flat_param = True  # as FSDP1 marks its shards
    flat_parameter.grad = torch.ones(2)
    with pytest.raises(RuntimeError, match="is a shard of FSDP1"):
        IHGD([flat_parameter], lr=0.1).step()
    SHGD([flat_parameter], lr=0.1).step()


def wrong_states():
    def of_another_shape(p, optimizer):
        optimizer.state[p]["momentum_buffer"] = torch.zeros(5)

    def of_another_device(p, optimizer):
        optimizer.state[p]["momentum_buffer"] = torch.zeros(3, device="meta")

    def shared(p, optimizer):
        optimizer.state[p]["momentum_buffer"] = p.data

    def expanded(p, optimizer):
        p.data = torch.ones(1).expand(3)

    def reshaped(p, optimizer):
        p.data = torch.ones(4)

    return [of_another_shape, of_another_device, shared, expanded, reshaped]


@pytest.mark.parametrize("wrong", wrong_states(), ids=lambda f: f.__name__)
@pytest.mark.parametrize("path", [{}, {"fused": False}, {"foreach": True}], ids=str)
@pytest.mark.parametrize("apart", ["groups", "dtypes"])
def test_what_is_wrong_is_found_before_anything_has_moved(wrong, path, apart):
    a = torch.ones(3, dtype=torch.float64 if apart == "dtypes" else torch.float32, requires_grad=True)
    b = torch.ones(3, requires_grad=True)
    groups = [a, b] if apart == "dtypes" else [{"params": [a]}, {"params": [b]}]
    optimizer = IHGD(groups, lr=0.1, momentum=0.9, **path)
    for p in (a, b):
        p.grad = torch.ones_like(p)
    optimizer.step()
    before, momentum = a.detach().clone(), optimizer.state[a]["momentum_buffer"].clone()
    wrong(b, optimizer)
    with pytest.raises(RuntimeError, match=r"parameter 1 of group 0 |parameter 0 of group 1 "):
        optimizer.step()
    assert torch.equal(a, before)
    assert torch.equal(optimizer.state[a]["momentum_buffer"], momentum)


@pytest.mark.parametrize("path", [{}, {"fused": False}, {"foreach": True}], ids=str)
def test_a_gradient_that_is_its_parameter_is_a_gradient_as_any_other(path):
    a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    a.grad, b.grad = torch.ones(3), b.data
    IHGD([{"params": [a]}, {"params": [b]}], lr=0.1, momentum=0.9, **path).step()
    assert (a < 1).all()
    torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-cosh", "isotropic-root"])
@pytest.mark.parametrize("path", [{}, {"fused": False}, {"foreach": True}], ids=str)
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
@pytest.mark.parametrize("path", [{}, {"fused": False}, {"foreach": True}], ids=str)
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


# What is seen of the norm


@pytest.mark.parametrize("scope", ["global", "group", "tensor"])
@pytest.mark.parametrize("path", [{}, {"fused": False}, {"foreach": True}], ids=str)
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


@pytest.mark.parametrize("foreach", [None, False, True])
def test_a_step_that_a_scaler_skips_has_a_norm_that_is_not_finite(foreach):
    p = torch.ones(3, requires_grad=True)
    optimizer, scaler = IHGD([p], lr=0.1, momentum=0.9, foreach=foreach), torch.amp.GradScaler("cpu")
    scaler.scale(1e38 * p.sum()).backward()
    scaler.step(optimizer)
    assert p.equal(torch.ones(3))
    assert not optimizer.last_grad_norm.isfinite()


def test_a_step_that_takes_no_norm_has_none_to_tell():
    params = parameters()
    loss(params).backward()
    optimizer = SHGD(params, lr=0.1, nonfinite="skip")
    optimizer.step()
    assert optimizer.last_grad_norm is None
    assert copy.deepcopy(optimizer).last_grad_norm is None


class Here:
    """A remote reference to what is here."""

    def __init__(self, parameter):
        self.local_value = lambda: parameter


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_the_norm_of_what_is_on_several_workers_is_refused():
    module = importlib.import_module("torch.distributed.optim.optimizer")
    worker = module._LocalOptimizer  # of DistributedOptimizer, on each of them
    p = torch.ones(3, requires_grad=True)
    for options in ({}, {"scope": "group"}, {"nonfinite": "skip", "scope": "tensor"}):
        with pytest.raises(RuntimeError, match="DistributedOptimizer steps each worker's parameters by themselves"):
            worker(IHGD, [Here(p)], lr=0.1, **options)
    worker(IHGD, [Here(p)], lr=0.1, scope="tensor")
    worker(SHGD, [Here(p)], lr=0.1)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_the_norm_of_all_is_refused_in_the_backward_pass():
    apply = importlib.import_module("torch.distributed.optim.apply_optimizer_in_backward")._apply_optimizer_in_backward
    net = torch.nn.Linear(2, 1)
    with pytest.raises(RuntimeError, match="an optimizer in the backward pass steps each parameter by itself"):
        apply(IHGD, net.parameters(), {"lr": 0.1})
    apply(SHGD, net.parameters(), {"lr": 0.1})
    before = net.weight.detach().clone()
    net(torch.ones(1, 2)).sum().backward()
    torch.testing.assert_close(net.weight.detach(), before - 0.1 * torch.ones(1, 2).asinh())


@pytest.mark.parametrize(
    ("module", "refused"),
    [("zero.stage_1_and_2", True), ("zero.stage3", True), ("bf16_optimizer", True), ("engine", False)],
)
def test_a_step_of_parts_that_deepspeed_has_flattened_is_refused(module, refused):
    scope = {"__name__": f"deepspeed.runtime.{module}"}
    exec("def step(optimizer): optimizer.step()", scope)
    p = torch.ones(3, requires_grad=True)
    p.grad = torch.ones(3)
    expected = pytest.raises(RuntimeError, match="DeepSpeed's flattened parameters") if refused else nullcontext()
    for make in (IHGD, partial(SHGD, scale="auto")):
        with expected:
            scope["step"](make([p], lr=0.1))
        assert p.equal(torch.ones(3)) == refused
    scope["step"](SHGD([p], lr=0.1))


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
def test_what_torch_keeps_beyond_the_end_and_what_it_drops_in_a_later_release_is_no_warning():
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


def test_the_docstring_lists_every_option():
    text = inspect.getdoc(NPGM)
    options = text[text.index("Args:") : text.index("Raises:")].splitlines()[1:-1]
    assert {line.partition(":")[0].strip() for line in options if line[4] != " "} == {"params", *NAMES}
    assert all(line.startswith(8 * " ") and line[8] != " " for line in options if line[4] == " ")


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


def test_a_tensor_without_entries_has_none_in_common():
    p = torch.empty(0, 2).as_strided((0, 2), (0, 0)).requires_grad_()
    p.grad = torch.zeros_like(p)
    IHGD([p], lr=0.1, momentum=0.9).step()


def test_an_unregistered_kernel_is_refused():
    class Mine(npgm.Cosh):
        pass

    with pytest.raises(ValueError, match="is not registered; decorate its class"):
        NPGM(parameters(), lr=0.1, reference=npgm.Isotropic(Mine()))


def test_a_parameter_of_no_entries_may_have_any_strides():
    p = torch.empty(0, 2).as_strided((0, 2), (0, 0)).requires_grad_()
    p.grad = torch.zeros(0, 2)
    IHGD([p], lr=0.1, momentum=0.9).step()


@pytest.mark.parametrize("make", [NPGM, *NAMED, SpectralGD])
def test_signatures_are_the_table_of_options(make):
    """Whose keyword arguments type checkers see as a TypedDict."""
    parameters = inspect.signature(make).parameters
    hidden = set() if make in (NPGM,) else {"reference", "kernel_parameters"}
    hidden |= set() if make in (NPGM, SpectralGD) else {"matrix_form", "adjust", "nesterov", "product_dtype"}
    assert parameters.keys() == {"params", *NAMES} - hidden
    for name, default in options.defaults().items():
        if name in parameters:
            assert parameters[name].default == default
    with pytest.raises(TypeError, match=rf"^{make.__name__}\.__init__\(\) missing 1 required .*'lr'"):
        make([torch.ones(1)])


def test_a_step_enters_at_most_five_files():
    params = parameters(torch.float32)
    loss(params).backward()
    optimizer, entered = IHGD(params, 0.1, 0.9), set()
    optimizer.step()
    own = str(Path(npgm.__file__).parent)
    sys.setprofile(lambda frame, event, argument: entered.add(frame.f_code.co_filename))
    try:
        optimizer.step()
    finally:
        sys.setprofile(None)
    assert 2 <= len({name for name in entered if name.startswith(own)}) <= 5

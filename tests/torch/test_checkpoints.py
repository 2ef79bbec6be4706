"""States saved and loaded, copied and pickled, by this release and earlier ones."""

import copy
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict

import npgm
from npgm._common.array import elementwise
from npgm.kernels import register, registry
from npgm.torch import IHGD, NPGM, SHGD
from tensors import flat, loss, parameters, through_file


def test_checkpoints_copies_and_zero_gradients():
    params = parameters()
    optimizer = IHGD(params, lr=0.1, momentum=0.9, scale=2.0)
    loss(params).backward()
    optimizer.step()
    others = [p.detach().clone().requires_grad_() for p in params]
    loaded = IHGD(others, lr=1.0, scale=2.0)
    loaded.load_state_dict(through_file(optimizer.state_dict()))
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


@pytest.mark.parametrize("foreach", [False, True])
def test_float32_momentum_of_bfloat16_survives_a_checkpoint(foreach):
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


def test_a_checkpoint_with_an_unknown_kernel_says_so(stretched, monkeypatch):
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
    with pytest.raises(ValueError, match="scale is already given by the reference"):
        optimizer.add_param_group({"params": [torch.ones(1)], "reference": phi, "scale": 1.0})
    with pytest.raises(TypeError, match="has no parameter 'p'"):
        optimizer.add_param_group({"params": [torch.ones(1)], "kernel_parameters": {"p": 1.0}})
    assert len(optimizer.param_groups) == 3


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("flatten", [False, True])
def test_distributed_checkpoint_keeps_options_and_momentum(tmp_path, flatten, stretched):
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


def test_a_state_with_another_reference_loads_with_a_warning():
    params = parameters()
    state = IHGD(params, lr=0.1, scale=2.0).state_dict()
    for other in (SHGD(params, lr=0.1, scale=2.0), IHGD(params, lr=0.1)):
        with pytest.warns(
            UserWarning, match=r"reference function of the state, Isotropic\(kernel=Cosh\(\), scale=2.0\)"
        ):
            other.load_state_dict(state)
        assert (other.param_groups[0]["reference"], other.param_groups[0]["scale"]) == ("isotropic-cosh", 2.0)
        other.load_state_dict(state)  # the same now


def test_an_unregistered_kernel_is_refused():
    class Mine(npgm.Cosh):
        pass

    with pytest.raises(ValueError, match=r"is not registered; decorate its class .*register\(Mine\) in a worker"):
        NPGM(parameters(), lr=0.1, reference=npgm.Isotropic(Mine()))

"""The checks of torch's own optimizer tests, on an entry for ours in torch's database of optimizers.

The database is internal to torch; these tests follow the names that its own test file gives to its checks.
"""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch.nn import Parameter
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

from npgm.proximal import Box
from npgm.torch import IHGD, NPGM, SHGD
from tensors import through_file

database = pytest.importorskip("torch.testing._internal.common_optimizers", exc_type=ImportError)

DEFAULTS = {"lr": 1e-2}  # torch's optimizers have a default learning rate


def inputs(device, dtype=None):
    kwargs = {
        "default": {},
        "tensor lr": {"lr": torch.tensor(0.001)},
        "decoupled weight_decay": {"weight_decay": 0.1, "decoupled_weight_decay": True},
        "maximize": {"maximize": True, "weight_decay": 0.1},
        "capturable": {"capturable": True, "momentum": 0.9, "lr": torch.tensor(0.001)},
        "separable": {"reference": "separable-cosh", "momentum": 0.9, "weight_decay": 0.1},
        "bounded": {"reference": "separable-log"},
        "tensor scope": {"scope": "tensor", "momentum": 0.9},
        "skip": {"nonfinite": "skip", "momentum": 0.9},
        "float32 momentum": {"momentum": 0.9, "momentum_dtype": torch.float32},
        "multiple": {"momentum": 0.9, "lr_multiple": 0.5},
        "auto scale": {"scale": "auto", "momentum": 0.9},
        "limit": {"limit": 2.0, "momentum": 0.9},
        "track": {"track": True, "momentum": 0.9},
        "prox": {"prox": Box(-2.5, 2.5), "momentum": 0.9},
    }
    return [database.OptimizerInput(None, DEFAULTS | values, desc) for desc, values in kwargs.items()]


INFO = database.OptimizerInfo(
    NPGM,
    optim_inputs_func=inputs,
    scheduler_inputs=([lambda opt: StepLR(opt, gamma=0.9, step_size=10)], [lambda opt: ReduceLROnPlateau(opt)]),
    optim_error_inputs_func=database.get_error_inputs_for_all_optims,
    supported_impls=("foreach", "differentiable"),
    not_og_supported_flags=("foreach", "differentiable", "capturable"),
    supports_sparse=True,
    has_capturable_arg=True,
)
DIFFERENTIABLE = [
    item
    for item in database._get_optim_inputs_including_global_cliquey_kwargs("cpu", torch.float32, INFO)
    if item.kwargs["differentiable"] and not {"scale", "limit", "prox"} & item.kwargs.keys()  # which are refused
]
LOOP = [database.OptimizerInput(None, i.kwargs | {"foreach": False}, i.desc) for i in inputs("cpu")]
# on the CPU torch's helper leaves foreach out, which works there
FOREACH = [database.OptimizerInput(None, i.kwargs | {"foreach": True}, f"{i.desc} & foreach") for i in inputs("cpu")]
NOT_DIFFERENTIABLE = LOOP + FOREACH
ALL = NOT_DIFFERENTIABLE + DIFFERENTIABLE
ERRORS = INFO.optim_error_inputs_func("cpu", torch.float32)


def each(items, name="item"):
    return pytest.mark.parametrize(name, items, ids=[i.desc if hasattr(i, "desc") else None for i in items])


def kwargs_of(item):
    return copy.deepcopy(item.kwargs)


def run(params, optimizer, steps=7, seed=0):
    torch.manual_seed(seed)
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn_like(p)
        optimizer.step()


@pytest.mark.parametrize("error", ERRORS, ids=[e.optimizer_error_input.desc for e in ERRORS])
def test_errors(error):
    assert error.error_on is database.OptimizerErrorEnum.CONSTRUCTION_ERROR
    item = error.optimizer_error_input
    params = item.params if item.params is not None else [Parameter(torch.randn(1, 1))]
    check = pytest.warns if issubclass(error.error_type, Warning) else pytest.raises
    with check(error.error_type, match=error.error_regex):
        NPGM(params, **DEFAULTS | item.kwargs)


@each(LOOP)
def test_foreach_matches_forloop(item):
    results = []
    for foreach in (False, True):
        torch.manual_seed(1)
        params = [Parameter(torch.randn(shape)) for shape in ((10, 5), (10,), (), (0,), (3, 2, 4, 4))]
        params[4] = Parameter(params[4].detach().to(memory_format=torch.channels_last))
        params.append(Parameter(torch.randn(4, 6).t()))
        optimizer = NPGM(params, **kwargs_of(item) | {"foreach": foreach})
        run(params, optimizer)
        results.append([*params, *(v for s in optimizer.state.values() for v in s.values())])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()


@pytest.mark.slow
@each(LOOP)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.complex64], ids=str)
def test_mixed_dtype(item, dtype):
    if dtype.is_complex and "prox" in item.kwargs:
        pytest.skip("complex numbers have no proximal step")
    results = []
    for foreach in (False, True):
        torch.manual_seed(1)
        params = [Parameter(torch.randn(5, 2).to(d)) for d in (torch.float32, dtype, torch.float32)]
        run(params, NPGM(params, **kwargs_of(item) | {"foreach": foreach}))
        results.append(params)
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.slow
@each(NOT_DIFFERENTIABLE)
def test_forloop_goes_right_direction(item):
    for shape in ((10, 5), (5, 10)):  # contiguous, and a view that is not
        torch.manual_seed(0)
        weight = Parameter(torch.randn(shape) if shape == (10, 5) else torch.randn(shape).t())
        bias, x = Parameter(torch.randn(10)), torch.randn(5)
        optimizer = NPGM([weight, bias], **kwargs_of(item))

        def closure(weight=weight, bias=bias, x=x, optimizer=optimizer):
            optimizer.zero_grad()
            value = (weight.mv(x) + bias).pow(2).sum()
            value.backward()
            return value

        first = closure().item()
        for _ in range(20):
            optimizer.step(closure)
        assert (closure().item() > first) == item.kwargs.get("maximize", False)


@pytest.mark.slow
@each(NOT_DIFFERENTIABLE)
@pytest.mark.parametrize("schedulers", INFO.scheduler_inputs, ids=["StepLR", "ReduceLROnPlateau"])
def test_param_group_with_lrscheduler_goes_right_direction(item, schedulers):
    torch.manual_seed(0)
    weight, bias, x = Parameter(torch.randn(10, 5)), Parameter(torch.randn(10)), torch.randn(5)
    optimizer = NPGM([{"params": [weight]}, {"params": [bias], "lr": 0.01}], **kwargs_of(item))
    active = [make(optimizer) for make in schedulers]

    def closure():
        optimizer.zero_grad()
        value = (weight.mv(x) + bias).pow(2).sum()
        value.backward()
        return value

    first = closure().item()
    for _ in range(20):
        value = optimizer.step(closure)
        for scheduler in active:
            scheduler.step(*([value.detach()] if isinstance(scheduler, ReduceLROnPlateau) else []))
    assert (closure().item() > first) == item.kwargs.get("maximize", False)


@each(LOOP)
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("one_element", [False, True])
def test_tensor_lr(item, foreach, one_element):
    results = []
    lr = float(item.kwargs["lr"])
    for rate in (lr, torch.tensor([lr] if one_element else lr, dtype=torch.float64)):
        torch.manual_seed(1)
        params = [Parameter(torch.randn(10, 5)), Parameter(torch.randn(()))]
        optimizer = NPGM(params, **kwargs_of(item) | {"lr": rate, "foreach": foreach})
        run(params, optimizer)
        assert optimizer.param_groups[0]["lr"] is rate
        results.append(params)
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)
        assert a.shape == b.shape


@pytest.mark.slow
@each(NOT_DIFFERENTIABLE)
@pytest.mark.parametrize("option", ["lr", "weight_decay"])
def test_param_groups(item, option):
    torch.manual_seed(0)
    weight, bias, x = Parameter(torch.randn(10, 5)), Parameter(torch.randn(10)), torch.randn(5)
    weight.grad = bias.grad = None
    options = kwargs_of(item) | {"maximize": False}
    optimizer = NPGM([{"params": [weight], option: 0.02}, {"params": [bias]}], **options)
    values = []
    for _ in range(20):
        optimizer.zero_grad()
        value = (weight.mv(x) + bias).pow(2).sum()
        value.backward()
        values.append(value.item())
        optimizer.step()
    assert values[-1] < values[0]


@each(NOT_DIFFERENTIABLE)
@pytest.mark.parametrize("with_lr", [False, True])
def test_step_is_noop_for_zero_grads(item, with_lr):
    options = kwargs_of(item) | {"weight_decay": 0.0}
    param = torch.randn((5, 1), requires_grad=True)
    old = param.detach().clone()
    param.grad = torch.zeros_like(param)
    NPGM([param], **options | ({} if with_lr else {"lr": 0.0})).step()
    assert torch.equal(param, old)


@each(ALL)
def test_step_is_noop_when_params_have_no_grad(item):
    params = [torch.randn(2, 3), torch.randn(2, 3)]
    old = [p.clone() for p in params]
    optimizer = NPGM(params, **kwargs_of(item))
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(params, old, strict=True))
    assert not optimizer.state


@pytest.mark.slow
@each(ALL)
@pytest.mark.parametrize("named", [False, True])
def test_state_dict_deterministic_and_weights_only(item, named):
    torch.manual_seed(0)
    tensors = [torch.randn(2, 3), torch.randn(3)]
    params = [t.clone() for t in tensors]
    optimizer = NPGM([("a", params[0]), ("b", params[1])] if named else params, **kwargs_of(item))
    with torch.no_grad():
        run(params, optimizer, 3)
    state = optimizer.state_dict()
    others = [p.detach().clone() for p in params]
    loaded = NPGM(others, **kwargs_of(item))
    loaded.load_state_dict(through_file(state))
    with torch.no_grad():
        run(params, optimizer, 3, seed=5)
        run(others, loaded, 3, seed=5)
    for a, b in zip(params, others, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert optimizer.state_dict()["state"].keys() == loaded.state_dict()["state"].keys()


@each(LOOP)
def test_can_load_older_state_dict(item):
    options = kwargs_of(item)
    params = [Parameter(torch.randn(2, 3))]
    optimizer = NPGM(params, **options)
    run(params, optimizer)
    state = copy.deepcopy(optimizer.state_dict())
    for flag in INFO.not_og_supported_flags:
        for group in state["param_groups"]:
            del group[flag]
    optimizer.load_state_dict(state)
    run(params, optimizer)


@pytest.mark.slow
@each(LOOP)
@pytest.mark.parametrize("to", [torch.float64, torch.bfloat16], ids=str)
def test_load_state_dict_to_another_dtype_and_device(item, to):
    params = [Parameter(torch.randn(2, 3))]
    optimizer = NPGM(params, **kwargs_of(item))
    run(params, optimizer)
    for device in ("cpu", "meta"):
        other = [Parameter(params[0].detach().to(to).to(device))]
        loaded = NPGM(other, **kwargs_of(item))
        loaded.load_state_dict(through_file(optimizer.state_dict()))
        for state in loaded.state.values():
            assert state["momentum_buffer"].dtype == (item.kwargs.get("momentum_dtype") or to)
            assert state["momentum_buffer"].device.type == device


@each(ALL)
def test_deepcopy_copies_all_public_attrs(item):
    params = [torch.randn(2, 3), torch.randn(2, 3)]
    optimizer = NPGM(params, **kwargs_of(item))
    copied = copy.deepcopy(optimizer)

    def public(o):
        return {k for k in o.__dict__ if not k.startswith("_")}

    assert public(optimizer) == public(copied)
    assert repr(optimizer) == repr(copied)


def test_a_copy_that_would_lose_its_processes_is_refused():
    optimizer = NPGM([torch.randn(2)], lr=0.1)
    optimizer.process_group = object()
    with pytest.raises(RuntimeError, match="cannot be copied or pickled"):
        copy.deepcopy(optimizer)


# of one tensor here and of two there, and complex numbers have no proximal step
@each([item for item in LOOP if item.kwargs.get("scope") != "tensor" and "prox" not in item.kwargs])
@pytest.mark.parametrize("foreach", [False, True])
def test_complex_2d(item, foreach):
    torch.manual_seed(0)
    a1 = torch.randn(2, dtype=torch.complex64, requires_grad=True)
    real, imag = (part.detach().clone().requires_grad_() for part in (a1.real, a1.imag))
    options = kwargs_of(item) | {"foreach": foreach}
    optimizers = [NPGM([a1], **copy.deepcopy(options)), NPGM([real, imag], **copy.deepcopy(options))]

    def rosenbrock(x):
        return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2

    for _ in range(3):
        a2 = torch.complex(real, imag)
        for x in (a1, a2):
            rosenbrock(x).abs().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        torch.testing.assert_close(a1.detach(), torch.complex(real, imag).detach())


@each(NOT_DIFFERENTIABLE)
def test_sparse_rosenbrock(item):
    """Sparse gradients of one coordinate after the other, against the same as dense ones."""
    results = []
    for sparse in (False, True):
        param = Parameter(torch.tensor([1.5, 1.5]))
        optimizer = NPGM([param], **kwargs_of(item))
        for step in range(8):
            optimizer.zero_grad()
            x, y = param.detach().clone().requires_grad_(), 1 - step % 2
            ((1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2).backward()
            grad = torch.zeros(2)
            grad[y] = x.grad[y]
            param.grad = grad.to_sparse() if sparse else grad
            optimizer.step()
        results.append(param.detach())
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("make", [IHGD, SHGD])
def test_a_wrapper_subclass_is_watched(make):
    """Whose memory is that of others: `tolist` and all that reads memory is refused."""
    two_tensor = pytest.importorskip("torch.testing._internal.two_tensor").TwoTensor
    param = Parameter(two_tensor(torch.ones(2, 3), torch.ones(2, 3)))
    optimizer = make([param], 0.1, 0.9, nonfinite="raise")
    for value in (1.0, torch.nan):
        before = param.a.detach().clone()
        param.grad = two_tensor(*(torch.full((2, 3), value) for _ in range(2)))
        with pytest.raises(RuntimeError, match="contains NaN or infinity") if value != 1.0 else nullcontext():
            optimizer.step()
        assert torch.equal(param.a, before) == (value != 1.0)


def test_foreach_large_number_of_tensors():
    params = [Parameter(torch.ones(3)) for _ in range(2000)]
    optimizer = SHGD(params, lr=0.1, momentum=0.5, foreach=True)
    for p in params:
        p.grad = torch.ones(3)
    optimizer.step()
    assert all(torch.equal(p, params[0]) for p in params)


def test_defaults_changed_to_foreach(monkeypatch):
    """Where torch's rule says foreach, as on an accelerator, it is used."""
    from npgm.torch import gather
    from npgm.torch.paths import foreach

    made, apply_step = [], foreach.apply_step
    monkeypatch.setattr(gather, "_default_to_fused_or_foreach", lambda params, differentiable: (False, True))
    monkeypatch.setattr(foreach, "apply_step", lambda *a: (made.append(1), apply_step(*a)))
    param = Parameter(torch.ones(2))
    param.grad = torch.ones(2)
    NPGM([param], 0.1, fused=False).step()
    assert made

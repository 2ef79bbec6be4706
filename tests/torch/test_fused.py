"""The fused path against the loop over tensors, and what it refuses."""

import copy
import itertools
import threading

import pytest
import torch

import npgm
from fused_steps import FUSED, TOLERANCE, Calls, assert_close, parameters, set_gradients, trajectory
from npgm import _native
from npgm.kernels import registry
from npgm.torch import IHGD, NPGM, SHGD
from npgm.torch.rule import Rule
from steps import check_step_of_extreme_size
from tensors import TWO

if not _native.available():
    pytest.skip("npgm was built without its native module", allow_module_level=True)


OPTIONS = [
    {"momentum": 0.0},
    {"weight_decay": 0.1},
    {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True},
    {"weight_decay": 0.1, "maximize": True},
    {"lr": torch.tensor([0.05], dtype=torch.float64)},
    {"nonfinite": "skip"},
    {"momentum_order": "before", "weight_decay": 0.1},
]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("name", "options"),
    [(name, {}) for name in FUSED]
    + [(name, each) for name in TWO for each in OPTIONS]
    + [(TWO[0], {"scope": scope, "weight_decay": 0.1, "maximize": True}) for scope in ("group", "tensor")],
    ids=str,
)
def test_steps_are_those_of_the_loop(name, dtype, options):
    got, want = (trajectory({"fused": fused}, dtype, 5, name, **options) for fused in (True, False))
    size = max(float(p.detach().abs().max()) for p in want[0] if p.numel())
    assert_close(got[0] + got[1], want[0] + want[1], dtype, TOLERANCE[dtype] * size)


@pytest.mark.parametrize(
    ("name", "dtype", "momentum_dtype", "order"),
    [(name, torch.bfloat16, None, "after") for name in FUSED]
    + list(itertools.product(TWO, [torch.bfloat16, torch.float16], [None, torch.float32], ["after", "before"])),
    ids=str,
)
def test_low_precision_is_that_of_the_loop_up_to_one_rounding(name, dtype, momentum_dtype, order):
    # later steps go on from a number that was rounded the other way
    options = {"momentum_dtype": momentum_dtype, "momentum_order": order, "weight_decay": 0.1}
    got, want = (trajectory({"fused": fused}, dtype, 1, name, **options) for fused in (True, False))
    for a, b in zip(got[0] + got[1], want[0] + want[1], strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=torch.finfo(a.dtype).eps, atol=1e-6)


def test_it_is_chosen_where_it_can_be():
    for fused, foreach, once in [(None, None, True), (True, None, True), (True, False, True), (False, None, False), (None, False, False), (None, True, False)]:  # fmt: skip
        params = parameters()
        set_gradients(params, 0)
        with Calls() as calls:
            IHGD(params, lr=0.1, momentum=0.9, fused=fused, foreach=foreach).step()
        assert (calls.native, calls.tensors) == ((1, len(params)) if once else (0, 0))
        assert (calls.other == 0) == (once or foreach is True)


@pytest.mark.parametrize("fused", [None, True])
@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-cosh"])
def test_memory_in_another_order_goes_by_the_loop(fused, name):
    def build(path):
        torch.manual_seed(0)
        params = [torch.randn(6, 5).t().requires_grad_(), torch.randn(6, 5).requires_grad_()]
        params.append(torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_())
        optimizer = NPGM(params, 0.1, 0.9, name, **path)
        params[0].grad = torch.randn(6, 5).t()  # as its parameter
        params[1].grad = torch.randn(5, 6).t()
        params[2].grad = torch.randn(2, 3, 4, 5)
        with Calls() as calls:
            optimizer.step()
        return params, calls.tensors

    (got, moved), (want, none) = build({"fused": fused}), build({"fused": False})
    assert (moved, none) == (1, 0)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("parameter", "dense"),
    [
        (torch.ones(4, 6)[:, ::2], False),
        (torch.ones(4, 6)[1:, :4], False),
        (torch.ones(4, 6)[1:], True),
        (torch.ones(4, 6).permute(1, 0), True),
        (torch.ones(8).as_strided((2, 2, 2), (1, 3, 3)), False),
        (torch.ones(3, 1).expand(3, 4), False),
        (torch.ones(0, 3), True),
        (torch.ones(2, dtype=torch.complex64), True),
        (torch.ones(2, device="meta"), False),
        (torch.nn.Buffer(torch.ones(2)).as_subclass(torch.nn.Buffer), True),
    ],
    ids=lambda value: str(value) if isinstance(value, bool) else f"{tuple(value.shape)}{value.stride()}{value.device}",
)
def test_parameters_that_it_cannot_move_are_refused(parameter, dense):
    parameter = parameter.detach().requires_grad_()
    if dense:
        SHGD([parameter], lr=0.1, fused=True)
        return
    with pytest.raises(ValueError, match="requires all the params to be dense floating point Tensors on the CPU"):
        SHGD([parameter], lr=0.1, fused=True)
    optimizer = SHGD([torch.ones(2)], lr=0.1, fused=True)
    with pytest.raises(ValueError, match="requires all the params"):
        optimizer.add_param_group({"params": [parameter]})
    assert len(optimizer.param_groups) == 1
    SHGD([parameter], lr=0.1)


def test_options_that_it_cannot_meet_are_refused_at_construction(monkeypatch):
    class Mine(npgm.Quadratic):
        key = "mine-for-tests"

    monkeypatch.setitem(registry, Mine.key, Mine)
    params = parameters()
    for options, message in [
        ({"foreach": True}, "`fused` and `foreach` cannot be `True` together"),
        ({"differentiable": True}, "`fused` does not support `differentiable`"),
        (
            {"reference": npgm.Separable(Mine())},
            "has no step for Separable.*, and separable φ with the kernels artanh, cosh, ",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            NPGM(params, 0.1, fused=True, **options)
    with pytest.raises(TypeError, match="fused must be a bool or None, not 1"):
        NPGM(params, 0.1, fused=1)

    # which an isotropic φ does not need, and which is not asked for by default
    for options, count in [({"reference": npgm.Isotropic(Mine()), "fused": True}, 1), ({"reference": npgm.Separable(Mine())}, 0)]:  # fmt: skip
        set_gradients(params, 0)
        with Calls() as calls:
            NPGM(params, 0.1, **options).step()
        assert calls.native == count


def test_sparse_gradients_are_refused_by_name():
    p = torch.zeros(3, requires_grad=True)
    p.grad = torch.sparse_coo_tensor([[0]], [1.0], (3,), check_invariants=True)
    with pytest.raises(RuntimeError, match="parameter 0 of group 0 has a sparse gradient, which `fused=True`"):
        SHGD([p], lr=0.1, fused=True).step()
    SHGD([p], lr=0.1).step()
    assert p[0] < 0


def test_parameters_that_share_memory_move_as_in_the_loop():
    outcomes = []
    for fused in (None, False):
        memory = torch.linspace(1, 2, 10)
        params = [memory[:6].requires_grad_(), memory[4:].requires_grad_()]
        for p in params:
            p.grad = torch.ones_like(p)
        SHGD(params, lr=0.1, weight_decay=0.5, fused=fused).step()
        outcomes.append(memory)
    torch.testing.assert_close(*outcomes)
    for fused in (None, True):
        p = torch.ones(3, requires_grad=True)
        p.grad = p.detach()
        SHGD([p], lr=0.1, fused=fused).step()
        torch.testing.assert_close(p.detach(), 1 - 0.1 * torch.ones(3).asinh())


def test_threads_change_no_bit():
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            for name in ("isotropic-cosh", "separable-cosh"):
                torch.manual_seed(0)
                params = [torch.randn(n, requires_grad=True) for n in (400_000, 3, 90_001)]
                optimizer = NPGM(params, 0.1, 0.9, name, fused=True)
                for _ in range(2):
                    for p in params:
                        p.grad = torch.randn_like(p)
                    optimizer.step()
                results.append(torch.cat([p.detach() for p in params]))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(results, results[2:], strict=False))
    assert not torch.equal(results[0], results[1])


def test_other_threads_run_during_a_step():
    torch.manual_seed(0)
    p = torch.randn(20_000_000, requires_grad=True)
    p.grad = torch.ones_like(p)
    optimizer = SHGD([p], lr=0.1, momentum=0.9, fused=True)
    optimizer.step()
    stop, counted = threading.Event(), []

    def count():
        n = 0
        while not stop.is_set():
            n += 1
        counted.append(n)

    # the arguments are unpacked with the lock held, in far less than what the steps take
    thread = threading.Thread(target=count)
    thread.start()
    for _ in range(5):
        optimizer.step()
    stop.set()
    thread.join()
    assert counted[0] > 0


def test_autograd_knows_that_the_parameters_have_changed():
    p = torch.ones(3, requires_grad=True)
    loss = (p * p).sum()
    p.grad = torch.ones(3)
    SHGD([p], lr=0.1, momentum=0.9, fused=True).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("before", [False, True])
def test_the_operators_meet_the_contract_of_torch(before):
    params, gradients, momentum = ([torch.randn(4), torch.randn(2, 3)] for _ in range(3))
    rule = Rule("pow", (4.0,), False, True, before, 2.0, 0.9, 0.1, 0.0, True)
    told = rule.arguments()
    assert Rule.of_arguments(**told) == rule
    torch.library.opcheck(torch.ops.npgm.measure, (params, gradients, momentum, None), told)
    lr = torch.tensor(0.1, dtype=torch.float64)
    torch.library.opcheck(
        torch.ops.npgm.apply_step_, (params, gradients, momentum, None, lr, torch.tensor(2.0), None), told
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method. is deprecated")  # of torch's own import of inductor
@pytest.mark.filterwarnings("ignore:.*functools.lru_cache.-wrapped")  # of array_api_compat
@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-pow"])
def test_compiled_steps_keep_the_operators(name):
    eager, compiled = parameters(), parameters()
    optimizers = [NPGM(params, 0.1, 0.9, name, 0.01) for params in (eager, compiled)]
    graphs = []

    def backend(graph, inputs):
        graphs.append([str(node.target) for node in graph.graph.nodes])
        return graph

    step = torch.compile(optimizers[1].step, backend=backend)
    for i in range(3):
        for params in (eager, compiled):
            set_gradients(params, i)
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + i)
        optimizers[0].step()
        step()
    for a, b in zip(eager, compiled, strict=True):
        torch.testing.assert_close(a, b)
    assert len(graphs) <= 2, "a float lr is compiled once more, and not for each of its values"
    assert all(sum("npgm" in target and "apply_step_" in target for target in targets) == 1 for targets in graphs)


@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-cosh"])
def test_checkpoints_and_copies_keep_the_option(name):
    params = parameters()
    optimizer = NPGM(params, 0.1, 0.9, name, fused=True)
    set_gradients(params, 0)
    optimizer.step()
    copied = copy.deepcopy(optimizer)
    others = parameters(seed=1)
    loaded = NPGM(others, 0.1, reference=name)
    loaded.load_state_dict(optimizer.state_dict())
    assert copied.param_groups[0]["fused"] is loaded.param_groups[0]["fused"] is True


@pytest.mark.parametrize("name", ["isotropic-cosh", *(name for name in FUSED if name.startswith("separable"))])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_does_what_it_does_in_the_loop(name, value):
    outcomes = []
    for fused in (True, False):
        params = parameters()
        set_gradients(params, 0)
        params[3].grad[7] = value
        NPGM(params, 0.1, 0.9, name, fused=fused).step()
        outcomes.append(torch.cat([p.detach().flatten() for p in params]))
    torch.testing.assert_close(outcomes[0], outcomes[1], equal_nan=True)
    bounded = npgm.reference(name).precondition(torch.tensor([value])).isfinite().all()
    assert torch.isfinite(outcomes[0]).all() == bounded


@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-cosh"])
@pytest.mark.parametrize("scale", [1e-44, 1e-38, 1.0, 1e38])
@pytest.mark.parametrize("size", [0.0, 1e-37, 1e-30, 1.0, 3e38])
def test_extreme_sizes_are_no_exception(name, scale, size):
    check_step_of_extreme_size(name, scale, size, "cpu")

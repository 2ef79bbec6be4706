"""The fused path against the loop over tensors, and what it refuses."""

from __future__ import annotations

import copy
import ctypes
import itertools
import threading

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import npgm
from npgm import _native, references
from npgm.kernels import registry
from npgm.torch import IHGD, NPGM, SHGD
from npgm.torch import fused as fused_path
from npgm.torch.options import Rule
from npgm.torch.paths import native
from steps import check_step_of_extreme_size

if not _native.available():
    pytest.skip("npgm was built without its native module", allow_module_level=True)

FUSED = [name for name in references.names() if fused_path.accepts(npgm.reference(name))]
TWO = ["isotropic-cosh", "separable-log"]
"""Of each lift one, where what is tested is not the kernel."""
SHAPES = [(3, 4), (), (0, 2), (1000,), (2, 3, 4, 4), (30, 67)]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}  # each path may be off by half of it


class Calls(TorchDispatchMode):
    """Counts the native steps, and the operations that a step by torch would take."""

    def __init__(self):
        super().__init__()
        self.native, self.tensors, self.other = 0, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.npgm.move_.default:
            self.native += 1
            self.tensors += len(args[0])
        if func.__name__ in ("lerp_.Scalar", "lerp_.Tensor", "sub_.Tensor", "add_.Tensor"):
            self.other += 1
        return func(*args, **(kwargs or {}))


def parameters(dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype) for shape in SHAPES]
    tensors[4] = tensors[4].to(memory_format=torch.channels_last)
    return [tensor.requires_grad_() for tensor in tensors]


def set_gradients(params, step):
    generator = torch.Generator().manual_seed(step)
    for p in params:
        noise = torch.randn(p.shape, dtype=torch.float64, generator=generator)
        p.grad = torch.empty_like(p).copy_(10.0 ** (step % 5 - 2) * (noise + p.detach().double().tanh()))


def trajectory(path, dtype, steps, name, **options):
    params = parameters(dtype)
    groups = [{"params": params[:3]}, {"params": params[3:], "scale": 2.5, "lr": 0.02}]
    optimizer = NPGM(groups, **{"lr": 0.05, "momentum": 0.9, "reference": name, **path, **options})
    for step in range(steps):
        set_gradients(params, step)
        optimizer.step()
    return params, [optimizer.state[p].get("momentum_buffer") for p in params]


def assert_close(got, want, dtype, atol):
    for a, b in zip(got, want, strict=True):
        if b is not None:
            torch.testing.assert_close(a, b, rtol=TOLERANCE.get(dtype, 0), atol=atol)


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
def test_parameters_that_it_cannot_move_are_refused_at_construction(parameter, dense):
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
        ({"reference": npgm.Separable(Mine())}, "has no step for Separable.*, and separable ones of: artanh, cosh, "),
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


@pytest.mark.parametrize(
    ("parameter", "gradient", "momentum", "together"),
    [
        (torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 3), True),
        (torch.ones(2, 3), torch.ones(2, 3), None, True),
        (torch.ones(0, 3), torch.ones(0, 3), torch.ones(0, 3), True),
        (torch.ones(3, 0), torch.ones(3, 0), None, True),
        (torch.ones(()), torch.ones(()), torch.ones(()), True),
        (torch.ones(3, 2).t(), torch.ones(3, 2).t(), torch.ones(3, 2).t(), True),
        (torch.ones(2, 1, 3)[:, 0], torch.ones(2, 3), None, True),
        (torch.ones(3, 2).t(), torch.ones(2, 3), None, False),
        (torch.ones(2, 3), torch.ones(3, 2).t(), None, False),
        (torch.ones(2, 3), torch.ones(2, 3), torch.ones(3, 2).t(), False),
        (torch.ones(2, 6)[:, ::2], torch.ones(2, 6)[:, ::2], None, False),
        (torch.ones(6), torch.ones(6), torch.ones(5), False),  # as a checkpoint may bring it
        (torch.ones(2, 3), torch.ones(2, 3), torch.ones(6), False),
        (torch.ones(2), torch.ones(2).double(), None, False),
        (torch.ones(2), torch.ones(2), torch.ones(2).double(), False),
        (torch.ones(2).half(), torch.ones(2).half(), torch.ones(2), True),
        (torch.ones(2).half(), torch.ones(2).half(), torch.ones(2).bfloat16(), False),
        (torch.ones(2), torch.ones(2).to_sparse(), None, False),
        (torch.ones(2), torch.ones(2, device="meta"), None, False),
        (torch.ones(2), torch._neg_view(torch.ones(2)), None, False),
        (torch.ones(2), torch.ones(2), torch._neg_view(torch.ones(2)), False),
        (torch._neg_view(torch.ones(2)), torch.ones(2), None, False),
        (torch.ones(2), torch._efficientzerotensor(2), None, False),
        (torch.ones(2), torch._to_functional_tensor(torch.ones(2)), None, False),
        (torch.ones(2, dtype=torch.complex64), torch.ones(2, dtype=torch.complex64), None, False),
        (torch.ones(2, dtype=torch.int32), torch.ones(2, dtype=torch.int32), None, False),
    ],
)
def test_what_can_be_gone_through_together(parameter, gradient, momentum, together):
    momentum = [] if momentum is None else [momentum]
    assert (native._EXCHANGE.tensors([parameter], [gradient], momentum) is not None) == together
    # and after one that can be
    other = torch.ones(2, dtype=parameter.dtype)
    others = [torch.ones(2, dtype=m.dtype) for m in momentum]
    if other.dtype in fused_path.DTYPES:
        groups = ([other, parameter], [other.clone(), gradient], others + momentum)
        assert (native._EXCHANGE.tensors(*groups) is not None) == together


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("make", [IHGD, SHGD])
def test_what_has_no_memory_of_its_own_is_for_torch(make, momentum):
    """Zeros that are only implied, and views that negate: as gradients of the default path, and as parameters."""
    for parameter, gradient in [
        (torch.ones(4), torch._efficientzerotensor(4)),
        (torch._neg_view(torch.ones(4)), torch.ones(4)),
    ]:
        plain = parameter.clone()
        for p, g in ((parameter, gradient), (plain, gradient.clone())):
            p.grad = g
            make([p], 0.1, momentum, weight_decay=0.1).step()
        torch.testing.assert_close(parameter, plain)
    conjugates = torch.ones(2, dtype=torch.complex64).conj()
    conjugates.grad = torch.ones(2, dtype=torch.complex64)
    with pytest.raises(RuntimeError, match=r"parameter 0 of group 0 is a view that conjugates; .*resolve_conj"):
        make([conjugates], 0.1, momentum).step()


def test_subclasses_and_lists_that_do_not_match_are_not_taken():
    class Mine(torch.Tensor):
        pass

    x = torch.ones(2)
    mine = x.as_subclass(Mine)
    for tensors in ([mine], [x], []), ([x], [mine], []), ([x], [x], [mine]):
        assert native._EXCHANGE.tensors(*tensors) is None
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
        assert native._EXCHANGE.tensors([fake], [fake], []) is None
    assert native._EXCHANGE.tensors([], [], []) is None


def test_what_is_not_a_tensor_is_not_read():
    exchange, x = native._EXCHANGE, torch.ones(2)
    assert exchange.tensors([x, x], [x], []) is None
    assert exchange.tensors([x], [x], [x, x]) is None
    assert exchange.tensors([x], [None], []) is None
    assert exchange.tensors([3.0], [x], []) is None
    with pytest.raises(TypeError):
        exchange.tensors((x,), [x], [])


def test_tables_of_functions_of_other_versions_are_passed_over():
    class Table(ctypes.Structure):
        _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("earlier", ctypes.c_void_p), ("functions", ctypes.c_void_p * 5)]  # fmt: skip

    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    lends = (ctypes.c_void_p * 5)(*[1] * 5)
    earlier, without = Table(1, 3, None, lends), Table(1, 0, None, (ctypes.c_void_p * 5)())
    for table, known in [
        (earlier, True),
        (without, False),
        (Table(2, 0, None, lends), False),
        (Table(2, 0, ctypes.addressof(earlier), lends), True),
    ]:
        given = capsule(ctypes.addressof(table), b"dlpack_exchange_api", None)
        assert (_native.core().Exchange.of(given, (torch.Tensor,)) is not None) == known
    with pytest.raises(ValueError, match="at least one type"):
        _native.core().Exchange.of(given, ())
    with pytest.raises(ValueError, match="incorrect name"):
        _native.core().Exchange.of(capsule(ctypes.addressof(earlier), b"another", None), (torch.Tensor,))


@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-cosh"])
def test_tensors_may_be_replaced_between_steps(name):
    outcomes = []
    for fused in (True, False):
        params = parameters()
        optimizer = NPGM(params, 0.05, 0.9, name, fused=fused)
        for step in range(5):
            set_gradients(params, step)
            if step == 1:  # other memory, and the former freed
                params[0].data = params[0].data.clone() + 1
            if step == 2:
                params[3].data = torch.arange(2000.0)[::2]
                params[3].grad = None
            if step == 3:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            if step == 4:
                optimizer.state[params[5]]["momentum_buffer"] = torch.ones(SHAPES[5])
            optimizer.step()
        outcomes.append(params + [optimizer.state[p]["momentum_buffer"] for p in params])
    assert_close(*outcomes, torch.float32, 1e-4)


def test_momentum_of_another_shape_is_an_error_and_no_step_outside_of_its_memory():
    p = torch.ones(1000, requires_grad=True)
    p.grad = torch.ones(1000)
    optimizer = SHGD([p], lr=0.1, momentum=0.9, fused=True)
    optimizer.state[p]["momentum_buffer"] = torch.zeros(3)
    with pytest.raises(RuntimeError):
        optimizer.step()


def test_lazy_negation_and_conjugation_of_gradients_are_resolved():
    for fused in (True, False):
        z = torch.tensor([1 + 2j, 3 - 4j], requires_grad=True)
        z.grad = torch.tensor([1 + 2j, 3 - 4j]).conj()
        SHGD([z], lr=1.0, fused=fused).step()
        torch.testing.assert_close(torch.view_as_real(z.detach()), torch.tensor([[1.0, 2], [3, -4]]) - torch.tensor([[1.0, -2], [3, 4]]).asinh())  # fmt: skip
        p = torch.zeros(2, requires_grad=True)
        p.grad = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
        assert p.grad.is_neg()
        SHGD([p], lr=1.0, fused=fused).step()
        torch.testing.assert_close(p.detach(), -torch.tensor([-2.0, 4]).asinh())


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
    torch.library.opcheck(torch.ops.npgm.move_, (params, gradients, momentum, None, lr, torch.tensor(2.0), None), told)


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
    assert all(sum("npgm" in target and "move_" in target for target in targets) == 1 for targets in graphs)


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

"""The steps in Triton: on a CUDA device where there is one, and by Triton's interpreter on the CPU elsewhere."""

import importlib.util
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import npgm
from npgm.kernels import registry
from npgm.torch import IHGD, NPGM, SHGD, fused
from npgm.torch.rule import Rule
from steps import check_step_of_extreme_size

pytest.importorskip("triton")

from npgm.torch.triton import driver, loops

ON_DEVICE = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_DEVICE else "cpu")
KERNELS = [registry[key] for key in sorted(driver.KERNELS)]
BLOCK = driver.BLOCK
SHAPES = [(3, 4), (), (0, 2), (2, 3, 4, 4), (30, 67), (BLOCK + 5,)]
FEW = [(3, 4), (0, 2), (30, 7)]
"""Of which the interpreter makes a step in a third of the time."""
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
# the interpreter cuts bfloat16 off where a device rounds
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 2**-7, torch.float16: 2**-10}


@pytest.fixture(autouse=True)
def _steps(monkeypatch):
    """Let the operators be those in Triton, for tensors on the CPU as well where it is interpreted."""
    if ON_DEVICE:
        fused.load([DEVICE])
        yield
        return
    monkeypatch.setitem(fused.KERNELS, "cpu", driver.KERNELS)
    monkeypatch.setattr(fused, "is_direct", lambda: False)
    monkeypatch.setattr(driver, "ARGUMENTS", 32)  # which the interpreter writes one by one
    with torch.library._scoped_library("npgm", "IMPL") as library, np.errstate(all="ignore"):
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # that there is one already
            library.impl("measure", driver.measure, "CPU", allow_override=True)
            library.impl("apply_step_", driver.apply_step, "CPU", allow_override=True)
        yield


class Launches:
    """Stands for a function of Triton and counts how often it is launched."""

    def __init__(self, function):
        self.function, self.count = function, 0

    def __getitem__(self, grid):
        self.count += 1
        return self.function[grid]


@pytest.fixture
def launches(monkeypatch):
    counters = {name: Launches(getattr(loops, name)) for name in ("write", "apply_step", "measure", "combine")}
    for name, counter in counters.items():
        monkeypatch.setattr(loops, name, counter)
    return lambda: {name: counter.count for name, counter in counters.items()}


def tensors(shapes, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, dtype=torch.float64, generator=generator).to(DEVICE, dtype) for shape in shapes]


def run(name, starts, path, dtype=None, steps=2, **options):
    """Step from ``starts``, in another dtype if given; return the parameters and the momentum."""
    scaler = options.pop("scaler", {})
    params = [start.to(dtype or start.dtype, copy=True).requires_grad_() for start in starts]
    half = len(params) // 2
    groups = [{"params": params[:half]}, {"params": params[half:], "scale": 2.5, "lr": 0.02}]
    optimizer = NPGM(groups, **{"lr": 0.05, "momentum": 0.9, "reference": name, **path, **options})
    for key, value in scaler.items():
        setattr(optimizer, key, torch.tensor(value, device=DEVICE))
    for step in range(steps):
        for i, (p, start) in enumerate(zip(params, starts, strict=True)):
            p.grad = 10.0 ** (2 * step - 1) * tensors([p.shape], start.dtype, 100 * step + i)[0].to(p.dtype)
        optimizer.step()
    momentum = [optimizer.state[p]["momentum_buffer"] for p in params if "momentum_buffer" in optimizer.state[p]]
    return [p.detach() for p in params], momentum


def told(kernel="cosh", **changes):
    """A rule as the operators are told it."""
    rule = Rule(kernel, (), False, False, False, 1.0, 0.0, 0.0, 0.0, False)._replace(**changes)
    return rule.arguments()


def assert_close(got, want, dtype):
    size = max(float(w.abs().max()) for w in want if w.numel())
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(
            a.double(), b.double(), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * min(size, 1.0)
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype", "shapes"),
    [("isotropic-pow", torch.float32, FEW)]
    + [(name, dtype, SHAPES) for name in ("isotropic-cosh", "separable-log") for dtype in DTYPES],
    ids=str,
)
def test_steps_are_those_of_the_loop_in_double_precision(name, dtype, shapes, launches):
    # each step of a low precision starts from a number that was rounded
    steps = 1 if dtype.itemsize == 2 else 2
    starts = tensors(shapes, dtype)
    got = run(name, starts, {"fused": True}, steps=steps, weight_decay=0.1)
    assert launches()["apply_step"] == 2 * steps
    want = run(name, starts, {"fused": False, "foreach": False}, torch.float64, steps=steps, weight_decay=0.1)
    for a, b in zip(got, want, strict=True):
        assert {t.dtype for t in a} == {dtype}
        assert_close(a, b, dtype)


OF_EITHER = [
    {"momentum": 0.0, "weight_decay": 0.1, "maximize": True},
    {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True},
    {"nonfinite": "skip"},
    {"scale": "auto", "scope": "tensor", "momentum_order": "before", "weight_decay": 0.1},
    {"scale": "auto", "scope": "global", "nonfinite": "skip"},
    {"scaler": {"grad_scale": 1024.0, "found_inf": 0.0}, "weight_decay": 0.1, "maximize": True},
    {"scaler": {"found_inf": 1.0}, "weight_decay": 0.1, "decoupled_weight_decay": True},
    {"limit": 1.01, "scope": "tensor", "scaler": {"grad_scale": 4.0, "found_inf": 0.0}, "weight_decay": 0.1},
    {"limit": 1.01, "scope": "global", "momentum_order": "before"},
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, options) for name in ("isotropic-cosh", "separable-cosh") for options in OF_EITHER),
        ("isotropic-cosh", {"momentum_order": "before", "scope": "tensor", "weight_decay": 0.1, "maximize": True}),
        ("isotropic-cosh", {"scope": "tensor", "weight_decay": 0.1, "maximize": True}),
        ("isotropic-cosh", {"scope": "group", "weight_decay": 0.1}),
        ("isotropic-cosh", {"lr": torch.tensor([0.05])}),
        ("separable-cosh", {"lr": torch.tensor(0.05, dtype=torch.float64, device=DEVICE)}),
        ("separable-cosh", {"momentum_order": "before"}),
    ],
    ids=str,
)
def test_steps_with_each_option_are_those_of_the_loop(name, options, launches):
    starts = tensors(FEW, torch.float64)
    got, want = (run(name, starts, path, **options) for path in ({"fused": True}, {"fused": False, "foreach": False}))
    assert launches()["apply_step"] == 4
    for a, b in zip(got, want, strict=True):
        if a:
            assert_close(a, b, torch.float64)
    if "found_inf" in options.get("scaler", {}) and options["scaler"]["found_inf"]:
        assert all(torch.equal(a, b) for a, b in zip(got[0], starts, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_momentum_may_be_of_float32(dtype):
    starts = tensors(FEW, dtype)
    got = run("separable-cosh", starts, {"fused": True}, steps=1, momentum_dtype=torch.float32)
    want = run("separable-cosh", starts, {"fused": False, "foreach": False}, steps=1, momentum_dtype=torch.float32)
    assert_close(got[0], want[0], dtype)
    assert {m.dtype for m in got[1]} == {torch.float32}
    assert_close(got[1], want[1], torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("isotropic-cosh", torch.float32),
        ("isotropic-cosh", torch.float16),
        ("separable-cosh", torch.float64),
        ("separable-cosh", torch.bfloat16),
    ],
)
def test_every_size_and_place_in_memory(name, dtype):
    strip = 32 * driver.WARPS * 16 // dtype.itemsize
    sizes = [1, strip - 1, strip, strip + 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + strip + 3]
    for offset in (0, 1):
        memory = torch.zeros(sum(sizes) + 32 * len(sizes), dtype=dtype, device=DEVICE)
        at, xs = 0, []
        for size in sizes:
            xs.append(memory[at + offset : at + offset + size])
            at += -(-(size + offset) // 16) * 16
        gs, ms = tensors([(size,) for size in sizes], dtype), tensors([(size,) for size in sizes], dtype, 1)
        before = memory.clone()
        factors = torch.arange(1.0, 1 + len(sizes), dtype=torch.float64, device=DEVICE) if name[0] == "i" else None
        lr = torch.tensor(0.5, dtype=torch.float64, device=DEVICE)
        want = []
        for i, (g, m) in enumerate(zip(gs, ms, strict=True)):
            u = g.double() * (1 + i) if factors is not None else g.double().asinh()
            want.append(-0.5 * (m.double() + 0.5 * (u - m.double())))
        torch.ops.npgm.apply_step_(
            xs, gs, ms, factors, lr, None, None, **told("cosh", isotropic=name[0] == "i", momentum=0.5)
        )
        assert_close(xs, want, dtype)
        for x in xs:
            x.zero_()
        assert torch.equal(memory, before), "nothing outside of the tensors is written"


def test_many_tensors_are_one_launch_and_one_table(launches, monkeypatch):
    monkeypatch.setattr(driver, "ARGUMENTS", 32)  # on a device, too: fewer than the entries of a table
    shapes = [(1 + i,) for i in range(7)]
    params = [p.requires_grad_() for p in tensors(shapes, torch.float32)]
    for p in params:
        p.grad = torch.ones_like(p)
    driver._kept.cache_clear()
    optimizer = IHGD(params, lr=0.1, momentum=0.9, fused=True)
    optimizer.step()
    tables = loops.RULE.value + 5 * len(shapes) + 1
    written = 2 * -(-tables // driver.ARGUMENTS)
    assert launches() == {"write": written, "apply_step": 1, "measure": 1, "combine": 1}
    optimizer.step()
    assert launches() == {"write": written, "apply_step": 2, "measure": 2, "combine": 2}
    grads = [torch.ones_like(p) for p in params]
    for p, g in zip(params, grads, strict=True):
        p.grad = g
    optimizer.step()
    assert launches()["write"] == 2 * written
    if not ON_DEVICE:
        other = [p.requires_grad_() for p in tensors(shapes, torch.float64)]
        for p in other:
            p.grad = torch.ones_like(p)
        loop = IHGD(other, lr=0.1, momentum=0.9, fused=False)
        for _ in range(3):
            loop.step()
        assert_close([p.detach() for p in params], [p.detach() for p in other], torch.float32)


class NothingIsRead(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func.__name__ not in ("_local_scalar_dense.default", "is_nonzero.default", "equal.default")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-log"])
@pytest.mark.parametrize("nonfinite", ["propagate", "skip"])
def test_nothing_is_read_on_the_host(name, nonfinite):
    params = [p.requires_grad_() for p in tensors(SHAPES[:3], torch.float32)]
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer = NPGM(params, 0.1, 0.9, name, 0.1, nonfinite=nonfinite, fused=True)
    optimizer.grad_scale, optimizer.found_inf = (torch.tensor(v, device=DEVICE) for v in (2.0, 0.0))
    with NothingIsRead():
        optimizer.step()


def samples(dtype):
    """Magnitudes of every size."""
    rng = np.random.default_rng(0)
    numbers = torch.finfo(dtype)
    smallest, largest = np.log10(float(numbers.smallest_normal)), np.log10(float(numbers.max))
    a = np.concatenate(
        [10 ** rng.uniform(smallest, largest, 1500), 10 ** rng.uniform(-4, 3, 1500), rng.uniform(0, 3, 500)]
    )
    special = [0.0, numbers.smallest_normal * numbers.eps, numbers.smallest_normal, numbers.max]
    return torch.tensor(np.concatenate([a, special]), dtype=dtype, device=DEVICE)


def precondition(kernel, y, scale=1.0):
    u = torch.zeros_like(y)
    lr = torch.tensor(-1.0, dtype=torch.float64, device=DEVICE)
    torch.ops.npgm.apply_step_([u], [y], [], None, lr, None, None, **told(kernel.key, scale=scale))
    return u


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_preconditioners_are_within_five_units_in_the_last_place(kernel, dtype):
    a = samples(dtype)
    exact = kernel().precondition(a.double().cpu().numpy())  # of which float64 has at most two wrong
    numbers = np.finfo(str(dtype).removeprefix("torch."))
    _, exponent = np.frexp(exact)
    unit = np.ldexp(1.0, np.maximum(exponent - 1, numbers.minexp) - numbers.nmant)
    for y in (a, -a):
        error = np.abs(precondition(kernel, y).double().cpu().numpy() - np.sign(y.cpu().numpy()) * exact) / unit
        assert error.max() <= 5.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "dtype"), [*((kernel, torch.float32) for kernel in KERNELS), (npgm.Cosh, torch.float64)]
)
def test_special_values_and_scales(kernel, dtype):
    numbers = torch.finfo(dtype)
    largest = numbers.max
    y = torch.tensor([0.0, 1.5, -2.5, numbers.tiny, largest, -largest, torch.inf, -torch.inf, torch.nan], dtype=dtype)
    for scale in (3.0, 1e-3, numbers.tiny, largest / 4):
        got = precondition(kernel, y.to(DEVICE), scale).cpu()
        want = npgm.Separable(kernel(), scale=scale).precondition(y)
        torch.testing.assert_close(
            got, want, rtol=16 * numbers.eps, atol=8 * numbers.tiny * numbers.eps, equal_nan=True
        )
    for beyond in (1e300, 1e-320):  # of float32 no number, or zero
        assert torch.isfinite(precondition(kernel, y[:3].to(DEVICE), beyond)).all()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("size", "decay"), [(1.0, 0.0), (1.0, 0.25), ("tiny", 0.0), ("huge", 0.25)])
def test_norms_are_the_definition_at_any_size(dtype, size, decay):
    numbers = torch.finfo(dtype)
    factor = {"tiny": numbers.tiny * 4, "huge": numbers.max / 32}.get(size, 1.0)
    if size == "tiny" and dtype == torch.bfloat16 and not ON_DEVICE:
        factor *= 2.0**30  # the interpreter misreads subnormal numbers of bfloat16
    shapes = [(0,), (5,), (33,), (2 * BLOCK + 7,), (BLOCK,)]
    gs, xs = ([(factor * t.clamp(-4, 4)).to(dtype) for t in tensors(shapes, torch.float64, seed)] for seed in (0, 1))
    working = torch.float64 if dtype == torch.float64 else torch.float32
    scale = torch.tensor(2.0, device=DEVICE)
    exact = [-0.5 * (g.double() / factor) + decay * (x.double() / factor) for g, x in zip(gs, xs, strict=True)]
    for per_tensor, vectors in ((True, exact), (False, [torch.cat(exact)])):
        largest, ratio = torch.ops.npgm.measure(
            xs, gs, [], scale, **told(maximize=True, coupled_decay=decay, per_tensor=per_tensor)
        )
        for m, q, y in zip(largest, ratio, vectors, strict=True):
            if y.numel() == 0:
                assert m == q == 0
                continue
            tolerance = 32 * torch.finfo(working).eps
            torch.testing.assert_close(m / factor, y.abs().max(), rtol=tolerance, atol=0)
            torch.testing.assert_close(q, torch.linalg.vector_norm(y / y.abs().max()), rtol=tolerance, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_norms_of_what_is_not_finite_and_of_very_different_sizes(dtype):
    def norms(gs):
        return torch.ops.npgm.measure(gs, gs, [], None, **told())[:, 0].tolist()

    for bad in (torch.nan, torch.inf, -torch.inf):
        gs = [t.to(dtype) for t in tensors([(BLOCK + 9,), (100,), (3,)], torch.float32)]
        gs[1][40] = bad
        largest, ratio = norms(gs)
        assert np.isnan(bad) == np.isnan(largest) == np.isnan(ratio)
        assert np.isinf(bad) == np.isinf(largest) == np.isinf(ratio)
        gs[0][-1] = torch.nan
        assert np.isnan(norms(gs)).all()
    big, small = torch.finfo(dtype).max, torch.finfo(dtype).tiny
    size = BLOCK + 100
    filled = [torch.full((size,), value, dtype=dtype, device=DEVICE) for value in (small, big, 0.0)]
    assert norms(filled) == [big, pytest.approx(np.sqrt(size), rel=1e-6)]
    assert norms(filled[:1]) == [small, pytest.approx(np.sqrt(size), rel=1e-6)]
    assert norms(filled[2:]) == [0.0, 0.0]
    subnormal = torch.tensor([small * torch.finfo(dtype).eps], dtype=dtype, device=DEVICE)
    assert norms([subnormal]) == [subnormal.item(), 1.0]


@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-log"])
@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
@pytest.mark.parametrize("nonfinite", ["propagate", "skip"])
def test_what_is_not_finite_does_what_it_does_in_the_loop(name, value, nonfinite):
    outcomes = []
    for path in ({"fused": True}, {"fused": False, "foreach": False}):
        params = [p.requires_grad_() for p in tensors(FEW, torch.float32)]
        for i, p in enumerate(params):
            p.grad = tensors([p.shape], torch.float32, i)[0]
        params[2].grad[1, 1] = value
        NPGM(params, 0.1, 0.9, name, nonfinite=nonfinite, **path).step()
        outcomes.append(torch.cat([p.detach().flatten() for p in params]))
    torch.testing.assert_close(outcomes[0], outcomes[1], equal_nan=True)
    assert torch.isfinite(outcomes[0]).all() == (nonfinite == "skip")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-cosh"])
@pytest.mark.parametrize("scale", [1e-44, 1e-38, 1.0, 1e38])
@pytest.mark.parametrize("size", [0.0, 1e-37, 1e-30, 1.0, 3e38])
def test_extreme_sizes_are_no_exception(name, scale, size):
    check_step_of_extreme_size(name, scale, size, DEVICE)


def test_parameters_that_share_memory_move_as_in_the_loop(launches):
    outcomes = []
    for path in ({"fused": True}, {"fused": False, "foreach": False}):
        memory = torch.linspace(1, 2, 10, device=DEVICE)
        params = [memory[:6].requires_grad_(), memory[4:].requires_grad_()]
        for p in params:
            p.grad = torch.ones_like(p)
        NPGM(params, 0.1, 0.0, "isotropic-cosh", 0.5, scope="tensor", **path).step()
        outcomes.append(memory)
    assert launches()["apply_step"] == 2
    torch.testing.assert_close(*outcomes)
    p, other = torch.ones(3, device=DEVICE, requires_grad=True), torch.ones(3, device=DEVICE, requires_grad=True)
    p.grad, other.grad = p.detach(), torch.ones_like(other)  # which goes by the loop
    SHGD([other, p], lr=0.1, fused=True).step()
    assert launches()["apply_step"] == 3
    torch.testing.assert_close(p, other)
    other.grad = p.grad = torch.ones_like(p)  # gradients are only read
    SHGD([other, p], lr=0.1, fused=True).step()
    assert launches()["apply_step"] == 4


def test_autograd_knows_that_the_parameters_have_changed():
    p = torch.ones(3, device=DEVICE, requires_grad=True)
    loss = (p * p).sum()
    p.grad = torch.ones_like(p)
    SHGD([p], lr=0.1, momentum=0.9, fused=True).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_nothing_at_all_is_a_step_too(launches):
    p = torch.ones(0, device=DEVICE, requires_grad=True)
    p.grad = torch.ones_like(p)
    for optimizer in (IHGD, SHGD):
        optimizer([p], lr=0.1, momentum=0.9, fused=True).step()
    assert launches()["apply_step"] == launches()["measure"] == 0
    assert launches()["combine"] == 1


@pytest.mark.slow
def test_the_operators_meet_the_contract_of_torch():
    params, gradients, momentum = (tensors([(4,), (2, 3)], torch.float32, seed) for seed in range(3))
    rule = told(before=True, per_tensor=True, momentum=0.9, scale=2.0, coupled_decay=0.1, maximize=True)
    torch.library.opcheck(torch.ops.npgm.measure, (params, gradients, momentum, None), rule)
    lr, scale = torch.tensor(0.1, dtype=torch.float64, device=DEVICE), torch.tensor(2.0, device=DEVICE)
    torch.library.opcheck(torch.ops.npgm.apply_step_, (params, gradients, momentum, None, lr, scale, None), rule)


@pytest.mark.parametrize(
    ("found", "version", "programs", "message"),
    [
        (False, "3.7.1", True, "on a CUDA device needs Triton: install it by `pip install triton`"),
        (True, "3.6.0", True, "on a CUDA device needs Triton: 3.7 or later, not 3.6.0"),
        (True, "3.10.0+git", False, "on a CUDA device needs Triton: install gcc or clang"),
        (True, "3.10.0", True, "on a CUDA device needs Triton: it does not know devices of compute capability 6.1"),
    ],
)
def test_without_triton_it_says_how_to_get_it(found, version, programs, message, monkeypatch):
    monkeypatch.setattr("triton.__version__", version)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: find(name) if found or name != "triton" else None)
    monkeypatch.setattr("shutil.which", lambda name: "/bin/true" if programs else None)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (6, 1))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delitem(fused.KERNELS, "cuda", raising=False)
    monkeypatch.setattr(fused, "missing", fused.missing.__wrapped__)  # what is found out once for a device
    with torch._subclasses.FakeTensorMode():
        p = torch.nn.Parameter(torch.ones(3, device="cuda"))
        with pytest.raises(RuntimeError, match=message):
            SHGD([p], lr=0.1, fused=True)
        SHGD([p], lr=0.1)
    assert "cuda" not in fused.KERNELS


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """What the compiler makes of each launch, for a device that need not be there."""
    script = Path(__file__).parents[1] / "support" / "compile_triton.py"
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_the_compiler_accepts_all_that_is_launched(compiled):
    assert {launch["case"] for launch in compiled if launch["function"] == "apply_step"} >= driver.KERNELS
    assert {launch["function"] for launch in compiled} == {"write", "measure", "combine", "apply_step"}


@pytest.mark.slow
def test_whole_vectors_are_moved_and_registers_suffice(compiled):
    for launch in compiled:
        if launch["function"] in ("apply_step", "measure"):
            assert launch["vector_loads"] > 0, launch
            assert launch["vector_stores"] > 0 or launch["function"] == "measure", launch
        assert launch["stack"] <= 64, launch

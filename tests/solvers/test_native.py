"""The native steps of `minimize` against the methods' own, and whose memory is whose."""

from __future__ import annotations

import itertools
import tracemalloc
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import npgm
from backends import without_native
from npgm import _native, proximal
from npgm.solvers import Status, registry
from npgm.solvers.method import build
from npgm.solvers.methods.auto import method as auto
from npgm.solvers.methods.auto import quasi_newton
from npgm.solvers.methods.auto.quasi_newton import QuasiNewton
from npgm.solvers.native import stepper
from npgm.solvers.objective import Objective

if not _native.available():
    pytest.skip("npgm was built without its native module", allow_module_level=True)

KERNELS = [npgm.kernels.registry[key]() for key in _native.core().kernels] + [npgm.Power(3.0), npgm.Huber(0.1)]
RULES = {
    "gd": [{}],
    "gdm": [{"momentum": 0.9}],
    "clipped_gd": [{}, {"max_step": 0.2}, {"max_step": 0.2, "momentum": 0.9, "nu": 0.7}, {"nu": 1.0}],
    "adgd": [{}],
    "adgd_accel": [{}],
    "npgm": [
        {"momentum": momentum, "reference": lift(kernel, scale=0.3)}
        for lift, momentum in ((npgm.Isotropic, 0.0), (npgm.Separable, 0.9))
        for kernel in KERNELS
    ],
}
AUTO = [
    ("auto", {}),
    ("auto", {"reference": "isotropic-quad", "scale": 2.0, "memory": 3}),
    ("gd", {"lr": "auto"}),
    ("gdm", {"lr": "auto"}),
    ("npgm", {"lr": "auto"}),
    ("npgm", {"lr": "auto", "reference": "isotropic-cosh", "scale": 0.3, "momentum": 0.5}),
]
CASES = [(key, options) for key, each in RULES.items() for options in each]
ENTRYWISE = {
    "l1": proximal.L1(2.0),
    "weighted l1": proximal.L1(np.linspace(0.0, 5.0, 22)),
    "elastic net": proximal.ElasticNet(1.0, np.linspace(0.0, 3.0, 22)),
    "box": proximal.Box(-0.9, 0.7),
    "bounds": proximal.Box(np.linspace(-2.0, 0.0, 22), np.repeat([0.5, np.inf], 11)),
    "nonnegative": proximal.Nonnegative(),
    "no bounds": proximal.Box(),
}


def fun(x):
    return np.sum(x**4 / 4 + np.cos(x), axis=-1), x**3 - np.sin(x)


def objective(x0, batch=False):
    return Objective(fun, True, (), x0, batch)


def points(rows, n, dtype=np.float64):
    return np.random.default_rng(n).uniform(-2.0, 2.0, (rows, n)).astype(dtype)


@pytest.mark.parametrize(("key", "options"), CASES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_native_step_is_the_methods(key, options, dtype):
    x0 = points(2, 77, dtype)
    kwargs = {"method": key, "lr": 1e-2, "maxiter": 6, "tol": 0.0, "batch": True, "history": True, **options}
    assert stepper(objective(x0, batch=True), build(key, {"lr": 1e-2, **options})) is not None
    got = npgm.minimize(fun, x0, **kwargs)
    with without_native():
        want = npgm.minimize(fun, x0, **kwargs)
    # a difference of gradients, by which adgd divides, has lost some digits
    tolerance = (1e4 if "adgd" in key else 64) * float(np.finfo(dtype).eps)
    assert got.x.dtype == got.jac.dtype == dtype
    np.testing.assert_allclose(got.x, want.x, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(got.jac, want.jac, rtol=tolerance, atol=4 * tolerance)
    for name in ("fun", "grad_norm", "stationarity"):
        np.testing.assert_allclose(got.history[name], want.history[name], rtol=4 * tolerance, atol=4 * tolerance)


@pytest.mark.parametrize(("key", "options"), CASES, ids=str)
def test_a_run_in_a_batch_is_that_alone_to_the_last_bit(key, options):
    x0 = points(3, 77)
    kwargs = {"method": key, "lr": 1e-2, "maxiter": 6, "tol": 0.0, **options}
    batch = npgm.minimize(fun, x0, batch=True, **kwargs)
    for row, start in zip(batch.x, x0, strict=True):
        np.testing.assert_array_equal(row, npgm.minimize(fun, start, **kwargs).x)


def valley(x):
    """Rosenbrock's function, but wider, of pairs of entries."""
    assert np.isfinite(x).all()  # the solvers' points
    a, b = 1.0 - x[..., 0::2], x[..., 1::2] - x[..., 0::2] ** 2
    grad = np.stack([-2.0 * a - 40.0 * x[..., 0::2] * b, 20.0 * b], axis=-1)
    return np.sum(a**2 + 10.0 * b**2, axis=-1), np.reshape(grad, x.shape)


@pytest.mark.parametrize(("key", "options"), AUTO, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_native_rule_makes_the_same_steps(key, options, dtype):
    """Over both modes of "auto", with steps that are rejected, until rounding drives the two apart."""
    x0 = np.stack([np.tile([-1.2, 1.0], 11), np.tile([0.5, 3.0], 11)]).astype(dtype)
    kwargs = {"method": key, "maxiter": 60, "tol": 0.0, "batch": True, "history": True, **options}
    assert stepper(objective(x0, batch=True), build(key, options)) is not None
    got = npgm.minimize(valley, x0, **kwargs)
    with without_native():
        want = npgm.minimize(valley, x0, **kwargs)
    assert got.x.dtype == dtype
    steps = min(len(got.history["fun"]), len(want.history["fun"]), 16 if dtype is np.float64 else 12)
    np.testing.assert_array_equal(got.history["taken"][:steps], want.history["taken"][:steps])
    tolerance = 1e-6 if dtype is np.float64 else 1e-2
    for name in ("fun", "grad_norm", "stationarity", "lr"):
        np.testing.assert_allclose(got.history[name][:steps], want.history[name][:steps], rtol=tolerance)
    if key == "auto" and dtype is np.float64:
        assert not got.history["taken"][:-1].all()


@pytest.mark.parametrize("name", ENTRYWISE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_native_steps_for_f_plus_g_are_the_same(name, dtype):
    """In all that the history has, until rounding drives the two apart."""
    g = ENTRYWISE[name]
    x0 = g.prox(np.stack([np.tile([-1.2, 1.0], 11), np.linspace(-3.0, 3.0, 22)]).astype(dtype), 1.0, (1,))
    kwargs = {"prox": g, "maxiter": 60, "tol": 0.0, "batch": True, "history": True}
    assert stepper(objective(x0, batch=True), build("proximal_lbfgs", {"prox": g})) is not None
    got = npgm.minimize(valley, x0, **kwargs)
    with without_native():
        want = npgm.minimize(valley, x0, **kwargs)
    assert got.x.dtype == got.jac.dtype == dtype
    assert got.history.keys() == want.history.keys()
    steps = min(len(got.history["fun"]), len(want.history["fun"]), 12 if dtype is np.float64 else 8)
    np.testing.assert_array_equal(got.history["taken"][:steps], want.history["taken"][:steps])
    tolerance = 1e-6 if dtype is np.float64 else 1e-2
    for field in got.history.keys() - {"taken", "seconds"}:
        ours, theirs = got.history[field][:steps], want.history[field][:steps]
        # of a difference of values, rounding leaves as much as it does of them
        rest = tolerance * np.abs(want.history["fun"][0]).max() * 1e-3 if field == "decrease" else 0.0
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=rest, err_msg=field)


@pytest.mark.parametrize("name", ["l1", "bounds"])
def test_native_steps_forget_what_is_spoilt_alike(name, monkeypatch):
    """With directions that are refused at a smaller angle to r."""
    forgotten = []
    forget = QuasiNewton.forget

    def recorded(xp, where, state):
        forgotten.append(np.asarray(where).sum())
        return forget(xp, where, state)

    monkeypatch.setattr(quasi_newton, "STRAIGHT", 0.9)
    monkeypatch.setattr(QuasiNewton, "forget", staticmethod(recorded))
    g = ENTRYWISE[name]
    kwargs = {"prox": g, "maxiter": 30, "tol": 0.0, "history": True}
    got = npgm.minimize(valley, g.prox(np.linspace(-3.0, 3.0, 22), 1.0), **kwargs)
    with without_native():
        want = npgm.minimize(valley, g.prox(np.linspace(-3.0, 3.0, 22), 1.0), **kwargs)
    assert sum(forgotten) >= 3
    for field in ("fun", "grad_norm", "lr"):
        np.testing.assert_allclose(got.history[field][:20], want.history[field][:20], rtol=1e-6)


@pytest.mark.parametrize("name", ENTRYWISE)
def test_a_run_for_f_plus_g_in_a_batch_is_that_alone(name):
    g = ENTRYWISE[name]
    x0 = g.prox(points(3, 22), 1.0, (1,))
    batch = npgm.minimize(valley, x0, prox=g, tol=1e-8, batch=True)
    for i, start in enumerate(x0):
        alone = npgm.minimize(valley, start, prox=g, tol=1e-8)
        np.testing.assert_array_equal(batch.x[i], alone.x)
        np.testing.assert_array_equal(batch.jac[i], alone.jac)
        assert (batch.nit[i], batch.fun[i], batch.message[i]) == (alone.nit, alone.fun, alone.message)


def test_auto_makes_the_same_steps_in_both_modes(monkeypatch):
    """From a start at which f grows like a quartic, with short phases of the heavy ball, and back for any curvature."""
    for name, value in {"BUDGET": 6, "SHARPER": 0.1}.items():
        monkeypatch.setattr(auto, name, value)
    modes = []
    judge = auto.Auto.judge

    def recorded(self, xp, here, there, state):
        modes.append(bool(state.newtons[0, 0]))
        return judge(self, xp, here, there, state)

    monkeypatch.setattr(auto.Auto, "judge", recorded)
    curvatures = np.geomspace(1.0, 2.0, 12)

    def fun(x):
        return np.sum(x**2 * (curvatures + x**2 / 4)), 2.0 * curvatures * x + x**3

    kwargs = {"maxiter": 30, "tol": 0.0, "history": True}
    got = npgm.minimize(fun, np.full(12, 30.0), **kwargs)
    assert not modes
    with without_native():
        want = npgm.minimize(fun, np.full(12, 30.0), **kwargs)
    assert {sum(1 for _ in phase) for newton, phase in itertools.groupby(modes) if not newton} >= {6}
    assert any(modes[k] and not modes[k + 1] for k in range(len(modes) - 1))
    for name in ("fun", "lr"):
        np.testing.assert_allclose(got.history[name], want.history[name], rtol=1e-6)


def test_every_solver_of_the_package_is_native():
    own = {key: cls for key, cls in registry.items() if cls.__module__.startswith("npgm.")}
    assert {*RULES, "auto", "proximal_lbfgs", "nesterov", "proximal"} == set(own)  # but the last two
    for key in ("nesterov", "proximal"):
        del own[key]
    for key, cls in own.items():
        options = cls.options()
        needed = {"lr": 0.1, "prox": proximal.L1()}
        method = build(key, {name: needed[name] for name in needed if options.get(name) is ...})
        assert stepper(objective(np.ones(3)), method) is not None


def test_what_has_no_native_step_goes_the_general_way():
    @dataclass(frozen=True)
    class Other(registry["gd"]):
        def step(self, xp, here, state):
            return here.x - self.lr * xp.sign(here.grad), None

    class Cosh(npgm.Cosh):
        def precondition(self, y):
            return y

    class OtherL1(proximal.L1):
        def prox(self, y, t, axis=None):
            return y

    for g in (proximal.Simplex(), proximal.L2(), OtherL1()):
        assert stepper(objective(np.ones(3)), build("proximal_lbfgs", {"prox": g})) is None
    gd = build("gd", {"lr": 0.1})
    own_kernel = build("npgm", {"lr": 0.1, "reference": npgm.Isotropic(Cosh())})
    assert stepper(objective(np.ones(3)), Other(0.1)) is None
    assert stepper(objective(np.ones(3)), own_kernel) is None
    for x0 in (np.ones(3, np.float16), np.ones(3, np.longdouble), np.ones(3, ">f8"), torch.ones(3)):
        assert stepper(objective(x0), gd) is None
    with without_native():
        assert stepper(objective(np.ones(3)), gd) is None
        assert npgm.minimize(fun, np.ones(3), method="gd", lr=0.1).success


@settings(max_examples=60)
@example(case=("npgm", {"momentum": 0.0, "reference": npgm.Isotropic(npgm.Quadratic(), 0.3)}),
         shape=(100,), runs=0, ended=False, size=(np.float32, 37))  # fmt: skip
@given(
    case=st.sampled_from(CASES),
    shape=st.sampled_from([(), (1,), (2,), (7, 1), (3, 11), (100,)]),
    runs=st.integers(0, 3),
    ended=st.booleans(),
    size=st.sampled_from(
        [(np.float64, exponent) for exponent in (-300, -150, 0, 100, 300)]
        + [(np.float32, exponent) for exponent in (-35, -15, 0, 15, 37)]
    ),
)
def test_the_two_ways_agree_for_any_shape_and_size(case, shape, runs, ended, size):
    """On a quadratic of curvatures 1 to 2, from a start of any size; of a batch, one run may have ended at once."""
    key, options = case
    dtype, exponent = size
    shape = (runs, *shape) if runs else shape
    x0 = (np.random.default_rng(0).uniform(0.5, 1.0, shape) * 10.0**exponent).astype(dtype)
    if runs and ended:
        x0[0] = 0.0
    curvature = np.linspace(1.0, 2.0, x0.size // max(runs, 1), dtype=dtype).reshape(shape[1:] if runs else shape)

    def quadratic(x):
        g = curvature * x
        axes = tuple(range(1, x.ndim)) if runs else None
        return np.sum(np.abs(g) / x.size, axis=axes), g

    kwargs = {"method": key, "lr": 0.125, "maxiter": 5, "tol": 0.0, "batch": bool(runs), **options}
    got = npgm.minimize(quadratic, x0, **kwargs)
    with without_native():
        want = npgm.minimize(quadratic, x0, **kwargs)
    tolerance = (1e6 if "adgd" in key else 1e3) * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(got.x, want.x, rtol=tolerance, atol=tolerance * float(np.max(np.abs(x0))))
    for name in ("nit", "status", "nfev", "success"):
        np.testing.assert_array_equal(got[name], want[name])
    assert got.message == want.message
    assert np.shape(got.x) == np.shape(got.jac) == shape


@pytest.mark.parametrize("instructions", _native.core().instruction_sets())
def test_every_instruction_set_takes_the_step(instructions):
    core = _native.core()
    kwargs = {"lr": 1e-2, "momentum": 0.5, "reference": npgm.reference("separable-cosh"), "maxiter": 5, "tol": 0.0}
    want = npgm.minimize(fun, points(1, 300)[0], **kwargs)
    core.use_instruction_set(instructions)
    try:
        got = npgm.minimize(fun, points(1, 300)[0], **kwargs)
    finally:
        core.use_instruction_set(core.instruction_sets()[0])
    np.testing.assert_allclose(got.x, want.x, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_norms_neither_overflow_nor_underflow(dtype):
    fine = np.finfo(dtype)
    tiny, large = float(fine.smallest_subnormal), float(fine.max)
    direction = np.array([3.0, -4.0, 0.0])
    kwargs = {"method": "gd", "lr": 0.5, "maxiter": 0, "tol": 0.0, "history": True}
    for size in (tiny, 8 * float(fine.tiny), 1e-30, 1.0, 1e30, large / 8):
        g = (direction * size).astype(dtype)
        res = npgm.minimize(lambda x, g=g: (0.0, g), np.ones(3, dtype), **kwargs)
        np.testing.assert_allclose(res.history["grad_norm"], 5.0 * size, rtol=2 * float(fine.eps))
    for bad in ([large] * 4, [1.0, np.inf, 0.0, 0.0], [0.0, 0.0, np.nan, 1.0]):
        g = np.array(bad, dtype)
        with pytest.raises(ValueError, match="fun or its gradient is not finite at x0"):
            npgm.minimize(lambda x, g=g: (0.0, g), np.ones(4, dtype), **kwargs)


KEPT = {
    "itself": lambda x: x,
    "a part": lambda x: x[:],
    "another shape": lambda x: x.reshape(1, -1),
    "a buffer": memoryview,
    "a tensor": torch.from_numpy,
}


@pytest.mark.parametrize("how", KEPT)
def test_points_that_a_function_keeps_stay_as_they_were(how):
    kept, copies = [], []

    def keeping(x):
        kept.append(KEPT[how](x))
        copies.append(x.copy())
        return fun(x)

    res = npgm.minimize(keeping, points(1, 5)[0], lr=1e-2, maxiter=30, tol=0.0)
    assert res.nit == 30
    for point, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(np.ravel(np.asarray(point)), copy)
    assert len(np.unique(copies, axis=0)) == 31


def test_points_that_nobody_keeps_take_turns_in_two_arrays():
    addresses = set()

    def watching(x):
        addresses.add(x.ctypes.data)
        return fun(x)

    npgm.minimize(watching, points(1, 5)[0], lr=1e-2, maxiter=30, tol=0.0)
    assert len(addresses) == 2


def test_the_last_point_may_be_kept_as_caches_do():
    last = [None, None]
    calls = []

    def value(x):
        evaluate(x)
        return last[1][0]

    def evaluate(x):
        if x is not last[0]:
            calls.append(x.copy())
            last[:] = x, fun(x)

    def gradient(x):
        evaluate(x)
        return last[1][1]

    got = npgm.minimize(value, points(1, 5)[0], jac=gradient, lr=1e-2, maxiter=30, tol=0.0)
    want = npgm.minimize(fun, points(1, 5)[0], lr=1e-2, maxiter=30, tol=0.0)
    np.testing.assert_array_equal(got.x, want.x)
    assert len(calls) == 31


def test_a_divergence_takes_back_one_run_alone():
    kept, copies = [], []

    def holed(x):
        kept.append(x)
        copies.append(x.copy())
        f = 0.5 * np.sum(x * x, axis=-1)
        return np.where(f < 1.0, np.nan, f), x

    starts = np.array([[4.0, 0.0], [64.0, 0.0], [0.0, 32.0]])
    res = npgm.minimize(holed, starts, method="gd", lr=0.5, batch=True, maxiter=4, tol=0.0, history=True)
    np.testing.assert_array_equal(res.status, [Status.DIVERGED, Status.MAXITER, Status.MAXITER])
    np.testing.assert_array_equal(res.nit, [2, 4, 4])
    np.testing.assert_array_equal(res.x, [[2.0, 0.0], [4.0, 0.0], [0.0, 2.0]])
    np.testing.assert_array_equal(res.jac, res.x)
    np.testing.assert_array_equal(res.fun, [2.0, 8.0, 2.0])
    assert np.isfinite(res.history["fun"]).all()
    for point, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(point, copy)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "options"),
    [(key, {"lr": 0.1, **each[-1]}) for key, each in RULES.items()]
    + [("proximal_lbfgs", {"prox": proximal.L1(0.5)}), ("proximal_lbfgs", {"prox": proximal.Box(0.5, 2.0)})],
    ids=str,
)
def test_no_memory_of_the_size_of_x_is_allocated_after_a_step(key, options):
    n = 200_000
    gradient = np.empty(n)
    curvature, slope = np.linspace(1.0, 2.0, n), np.linspace(-3.0, 3.0, n)
    peaks = []

    def watched(x):
        np.multiply(curvature, x, out=gradient)
        np.add(gradient, slope, out=gradient)
        peaks.append(tracemalloc.get_traced_memory())
        tracemalloc.reset_peak()
        return 0.5 * float(gradient @ x + slope @ x), gradient

    tracemalloc.start()
    try:
        npgm.minimize(watched, np.ones(n), method=key, maxiter=6, tol=0.0, **options)
    finally:
        tracemalloc.stop()
    # what was held at most between two evaluations, above what was held at the first of them
    growth = [peak - before for (before, _), (_, peak) in pairwise(peaks[1:])]
    assert len(growth) >= 4
    assert max(growth) < n * 8 / 10


def test_a_stepper_that_does_not_exist_is_refused():
    core, phi = _native.core(), {"scale": 1.0, "isotropic": True}
    with pytest.raises(ValueError, match="step in float32 and float64"):
        core.adgd(1, 3, "float16", lr=0.1)
    with pytest.raises(ValueError, match="no fused step for the kernel sine"):
        core.heavy_ball(1, 3, "float64", lr=0.1, momentum=0.0, kernel="sine", kernel_parameters=[], **phi)
    with pytest.raises(ValueError, match="no fused step for the kernel huber with 0 parameters"):
        core.heavy_ball(1, 3, "float64", lr=0.1, momentum=0.0, kernel="huber", kernel_parameters=[], **phi)

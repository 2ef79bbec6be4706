"""The loops in C++ against the definition, for every instruction set of this machine."""

from __future__ import annotations

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import npgm
from native_calls import (
    DTYPES,
    KERNELS,
    MOMENTUM,
    core,
    measure,
    named,
    precondition,
    rule,
    step,
    tensors,
    update,
)
from npgm import _native, kernels

if not _native.available():
    pytest.skip("npgm was built without its native module", allow_module_level=True)


def reference_step(x, g, m, kernel, a, decay, scale, weight, shrink, lr, factor):
    """In the working precision of the loops but for the last digits, from stored numbers to stored numbers."""
    working = np.promote_types(np.float32, x.dtype) if x.dtype != DTYPES["bfloat16"] else np.dtype(np.float32)
    x_, g_ = x.astype(np.float64), g.astype(np.float64)
    y = a * g_ + decay * x_
    u = factor * y if kernel is None else npgm.Separable(kernel, scale=scale).precondition(y)
    if m is not None:
        u = m.astype(np.float64) + weight * (u - m.astype(np.float64))
    return shrink * x_ - lr * u, u, working


@pytest.mark.parametrize(
    ("kernel", "dtype", "momentum"),
    [(kernel, "float32", "float32") for kernel in KERNELS]
    + [(kernel, *dtypes) for kernel in (kernels.Cosh(), None) for dtypes in MOMENTUM],  # None: the isotropic step
    ids=repr,
)
@pytest.mark.parametrize("options", [(1.0, 0.0, 1.0), (-0.25, 0.125, 0.75)], ids=["plain", "all options"])
def test_a_step_is_the_definition(kernel, dtype, momentum, options):
    rng = np.random.default_rng(0)
    sizes = [0, 1, 7, 64, 1000, 40_000]
    xs, gs = ([3 * rng.standard_normal(n).astype(DTYPES[dtype]) for n in sizes] for _ in range(2))
    xs, gs = ([v.astype(DTYPES[dtype]) for v in vs] for vs in (xs, gs))
    ms = [rng.standard_normal(n).astype(DTYPES[momentum]) for n in sizes] if momentum else []
    a, decay, shrink = options
    factors = [0.5 + i for i in range(len(sizes))] if kernel is None else []
    want = [
        reference_step(x, g, m, kernel, a, decay, 2.0, 0.1, shrink, 0.3, f)
        for x, g, m, f in zip(xs, gs, ms or [None] * len(xs), factors or [0.0] * len(xs), strict=True)
    ]
    update(
        xs,
        gs,
        ms,
        **({} if kernel is None else named(kernel)),
        factors=factors,
        gradient_factor=a,
        coupled_decay=decay,
        scale=2.0,
        weight=0.1,
        shrink=shrink,
        lr=0.3,
    )
    for i, (x_want, m_want, working) in enumerate(want):
        for got, exact in [(xs[i], x_want)] + ([(ms[i], m_want)] if ms else []):
            # one rounding to the stored dtype, and a few of the working one before
            own = ml_dtypes.finfo(got.dtype)
            size = np.max(np.abs(exact), initial=0)
            tolerance = 20 * float(np.finfo(working).eps) * size
            error = np.abs(got.astype(np.float64) - exact)
            assert (error <= float(own.eps) / 2 * np.abs(exact) + tolerance + float(own.smallest_subnormal)).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_every_short_number_is_read_and_rounded_as_it_should(dtype):
    every = np.arange(2**16, dtype=np.uint16).view(DTYPES[dtype])
    wide = np.zeros(every.size, np.float32)
    x, m = np.zeros_like(every), wide
    update([x], [every], [m], factors=[1.0], lr=-1.0)
    np.testing.assert_array_equal(m, every.astype(np.float32))
    numbers = ~np.isnan(every.astype(np.float32))
    np.testing.assert_array_equal(x.view(np.uint16)[numbers & (m != 0)], every.view(np.uint16)[numbers & (m != 0)])
    assert np.isnan(x.astype(np.float32)[~numbers]).all()

    # halfway between neighbours, and just beside that
    finite = np.sort(np.unique(every.astype(np.float32)[np.isfinite(every.astype(np.float32))]))
    middle = (finite[1:].astype(np.float64) + finite[:-1]) / 2
    middle = np.append(middle, float(finite[-1]) + float(finite[-1] - finite[-2]) / 2).astype(np.float32)
    values = np.concatenate([middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(0))])
    x, g, m = np.zeros(values.size, DTYPES[dtype]), np.zeros(values.size, DTYPES[dtype]), values.copy()
    update([x], [g], [m], factors=[0.0], weight=0.0, lr=-1.0)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(x.astype(np.float32), values.astype(DTYPES[dtype]).astype(np.float32))

    # a NaN of all ones, as memory that nobody has written may hold, is not rounded to zero
    m = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFF800001, 0x7FC00000], np.uint32).view(np.float32)
    x, g = np.zeros(m.size, DTYPES[dtype]), np.zeros(m.size, DTYPES[dtype])
    update([x], [g], [m], factors=[0.0], weight=0.0, lr=-1.0)
    assert np.isnan(x.astype(np.float32)).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1.0, "tiny", "huge"])
def test_norms_are_the_definition_at_any_size(dtype, size):
    rng = np.random.default_rng(0)
    fine = ml_dtypes.finfo(DTYPES[dtype])
    factor = {"tiny": float(fine.tiny) * 4, "huge": float(fine.max) / 8}.get(size, 1.0)
    gs = [(factor * rng.uniform(-4, 4, n)).astype(DTYPES[dtype]) for n in (0, 5, 33, 50_000)]
    exact = [g.astype(np.float64) / factor for g in gs]
    largest, ratio = measure(gs, per_tensor=True)
    np.testing.assert_array_equal(largest, [np.max(np.abs(g.astype(np.float64)), initial=0) for g in gs])
    assert ratio[0] == 0
    want = [np.linalg.norm(e) / np.max(np.abs(e)) for e in exact[1:]]
    np.testing.assert_allclose(ratio[1:], want, rtol=1e-13)
    together = np.concatenate(exact)
    (largest,), (ratio,) = measure(gs)
    np.testing.assert_allclose([largest / factor, ratio], [abs(together).max(), np.linalg.norm(together) / abs(together).max()], rtol=1e-13)  # fmt: skip

    xs = [rng.standard_normal(g.size).astype(DTYPES[dtype]) for g in gs]
    working = np.float64 if dtype == "float64" else np.float32
    ys = np.concatenate(
        [-0.5 * g.astype(np.float64) + 0.25 * x.astype(np.float64) for g, x in zip(gs, xs, strict=True)]
    )
    (largest,), (ratio,) = measure(gs, xs, gradient_factor=-0.5, coupled_decay=0.25)
    np.testing.assert_allclose(largest, abs(ys).max(), rtol=2 * np.finfo(working).eps)
    np.testing.assert_allclose(ratio, np.linalg.norm(ys / abs(ys).max()), rtol=4 * np.finfo(working).eps)


def test_norms_of_very_different_sizes_and_of_what_is_not_finite():
    gs = [np.full(20_000, 1e-300), np.full(20_000, 1e300), np.zeros(3), np.full(1, 5e-324)]
    (largest,), (ratio,) = measure(gs)
    assert (largest, ratio) == (1e300, pytest.approx(np.sqrt(20_000), rel=1e-14))
    (largest,), (ratio,) = measure([gs[3]])
    assert (largest, ratio) == (5e-324, 1.0)
    for dtype in DTYPES:
        for bad in (np.nan, np.inf, -np.inf):
            g = np.ones(100).astype(DTYPES[dtype])
            g[40] = bad
            (largest,), (ratio,) = measure([np.ones(20_000).astype(DTYPES[dtype]), g, np.ones(3).astype(DTYPES[dtype])])
            assert np.isnan(bad) == np.isnan(largest) == np.isnan(ratio)
            assert not np.isfinite([largest, ratio]).any()
            assert np.isinf(bad) == np.isinf(largest)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_depend_on_neither_threads_nor_place_in_memory(dtype):
    rng = np.random.default_rng(0)
    sizes = [300_000, 1, 70_001, 0] + 500 * [333]
    start = [rng.standard_normal(n).astype(dtype) for n in sizes]
    gs = [rng.standard_normal(n).astype(dtype) for n in sizes]
    seen = []
    for threads, offset in [(1, 0), (2, 0), (3, 1), (16, 3)]:

        def placed(arrays, offset=offset):
            spaces = [np.zeros(a.size + offset, a.dtype) for a in arrays]
            for space, a in zip(spaces, arrays, strict=True):
                space[offset:] = a
            return [space[offset:] for space in spaces]

        xs, ms, at = placed(start), placed(start), placed(gs)
        norms = [measure(at, per_tensor=each, threads=threads) for each in (True, False)]
        update(xs, at, ms, kernel="cosh", weight=0.1, lr=0.1, threads=threads)
        update(xs, at, ms, factors=[0.7], weight=0.1, lr=0.1, threads=threads)
        seen.append(np.concatenate([*xs, *ms, *norms[0], *norms[1]]))
    for other in seen[1:]:
        np.testing.assert_array_equal(other, seen[0])


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("scale", [1.0, 0.3, 1e-37])
def test_an_entry_moves_the_same_whatever_is_beside_it(kernel, scale):
    rng = np.random.default_rng(0)
    y = (scale * np.geomspace(1e-3, 1e3, 5000) * rng.choice([-1, 1], 5000)).astype(np.float32)
    want = precondition(kernel, y, scale)
    for beside in (0.0, 1e5 * scale, 3e38, np.inf, np.nan):  # which decide on how a strip is gone through
        mixed = np.stack([y, np.full_like(y, beside)], axis=1).ravel()
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(precondition(kernel, mixed, scale)[::2], want)
    # nor whether the step is the plain one
    u, m = np.zeros_like(y), np.zeros_like(y)
    update([u], [-y], [m], **named(kernel), scale=scale, gradient_factor=-1.0, lr=-1.0)
    np.testing.assert_array_equal(u, want)
    np.testing.assert_array_equal(m, want)


def test_memory_that_overlaps_is_refused():
    a, b = np.ones(10), np.ones(10)
    before = a.copy()
    for xs, gs, ms in [
        ([a], [a], []),
        ([a[:5]], [b[:5]], [a[4:9]]),
        ([a[:5]], [a[4:9]], [b[:5]]),
        ([a[:5]], [b[:5]], [b[1:6]]),
    ]:
        with pytest.raises(ValueError, match="overlap in memory"):
            update(xs, gs, ms, kernel="cosh")
        np.testing.assert_array_equal(a, before)
    update([a[:5], a[5:]], [b[:5], b[:5]], kernel="quad")  # gradients are only read
    np.testing.assert_array_equal(a, 0)


@pytest.mark.parametrize("options", [{"kernel": "quad"}, {"factors": [1.0]}], ids=str)
def test_arrays_that_share_memory_move_in_their_order(options):
    size = 300_000
    memory, gradient = np.ones(size + 100), np.full(size, 0.5)
    update([memory[100:], memory[:size]], [gradient, gradient], **options, shrink=2.0, threads=2)
    want = np.ones(size + 100)
    want[100:] = 2 * want[100:] - 0.5
    want[:size] = 2 * want[:size] - 0.5
    np.testing.assert_array_equal(memory, want)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": "sine"}, "no fused step for the kernel sine"),
        ({"kernel_parameters": [1.0]}, "no fused step for the kernel cosh with 1 parameters"),
        ({"kernel": "pow"}, "no fused step for the kernel pow with 0 parameters"),
        ({"factors": [1.0, 2.0, 3.0]}, "a separable one may have none"),
        ({"kernel": "", "factors": [1.0, 2.0, 3.0]}, "one for each tensor"),
    ],
    ids=str,
)
def test_steps_that_are_not_supported_are_refused(change, message):
    x, g, m = (np.ones(4) for _ in range(3))
    with pytest.raises(ValueError, match=message):
        update([x], [g], [m], **{"kernel": "cosh", **change})
    np.testing.assert_array_equal(x, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "int32"}, "no fused step for the dtype int32"),
        ({"momentum_dtype": "int32"}, "no fused step for the dtype int32"),
        ({"momentum_dtype": "float32"}, "no fused step for these dtypes"),
        ({"momentum_dtype": ""}, "momentum buffers and their dtype must be given together"),
    ],
    ids=str,
)
def test_tensors_that_are_not_supported_are_refused(change, message):
    x, g, m = (np.ones(4) for _ in range(3))
    with pytest.raises(ValueError, match=message):
        step(tensors([x], [g], [m], **change), kernel="cosh")
    with pytest.raises(ValueError, match="as many gradients"):
        step(core.Tensors([x.ctypes.data], [], [], [4], dtype="float64"), kernel="cosh")
    with pytest.raises(ValueError, match="does not have the instruction set sse9"):
        core.use_instruction_set("sse9")
    np.testing.assert_array_equal(x, 1)


def test_nothing_at_all_is_a_step_too():
    nothing = core.Tensors([], [], [], [], dtype="float32")
    step(nothing, kernel="log", threads=2)
    made, _ = rule()
    assert core.measure(nothing, made, threads=2) == ([0.0], [0.0])


def test_a_module_that_cannot_be_loaded_says_why():
    code = """
import sys
class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "npgm._native._core":
            raise ImportError("undefined symbol: omp_get_wtime")
sys.meta_path.insert(0, Broken())
from npgm import _native
assert not _native.available()
_native.core()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "its file cannot be loaded: undefined symbol: omp_get_wtime" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "momentum"), [pair for pair in MOMENTUM if pair[1]])
@pytest.mark.parametrize("kernel", [kernels.Cosh(), kernels.Power(3.0), None], ids=repr)
@pytest.mark.parametrize("decay", [0.0, 0.25])
def test_momentum_before_the_preconditioner(kernel, dtype, momentum, decay):
    rng = np.random.default_rng(0)
    sizes = [0, 1, 7, 64, 1000, 40_000]
    xs, gs = ([(3 * rng.standard_normal(n)).astype(DTYPES[dtype]) for n in sizes] for _ in range(2))
    ms = [rng.standard_normal(n).astype(DTYPES[momentum]) for n in sizes]
    options = {"before": True, "scale": 2.0, "weight": 0.25, "coupled_decay": decay}
    wide = [[v.astype(np.float64) for v in vs] for vs in (xs, gs, ms)]
    means = [0.75 * m + 0.25 * (g + decay * x) for x, g, m in zip(*wide, strict=True)]
    working = float(np.finfo(np.float64 if dtype == "float64" else np.float32).eps)
    for each, vectors in ((True, means), (False, [np.concatenate(means)])):
        for m, q, y in zip(*measure(gs, xs, ms, per_tensor=each, **options), vectors, strict=True):
            np.testing.assert_allclose(m, np.max(np.abs(y), initial=0), rtol=8 * working)
            np.testing.assert_allclose(q, np.linalg.norm(y / m) if y.size else 0, rtol=8 * working)
    factors = [] if kernel else [0.5]
    update(xs, gs, ms, **(named(kernel) if kernel else {}), **options, factors=factors, lr=0.3)
    for x, m, before, mean in zip(xs, ms, wide[0], means, strict=True):
        u = npgm.Separable(kernel, scale=2.0).precondition(mean) if kernel else 0.5 * mean
        for got, want in ((x, before - 0.3 * u), (m, mean)):
            eps = float(ml_dtypes.finfo(got.dtype).eps) / 2
            tolerance = 20 * working * np.max(np.abs(want), initial=0)
            assert (np.abs(got.astype(np.float64) - want) <= eps * np.abs(want) + tolerance).all()


def test_several_groups_are_stepped_in_one_call_as_one_by_one():
    rng = np.random.default_rng(0)
    start, gs = ([rng.standard_normal(n) for n in (5, 70_000)] for _ in range(2))
    gs.append(gs[0])
    start.append(start[0])
    phi = npgm.Isotropic(npgm.Cosh(), scale=2.0)
    isotropic, separable = rule("cosh", scale=2.0, isotropic=True)[0], rule("log", scale=2.0)[0]
    xs = [x.copy() for x in start]
    parts = [(tensors([x], [g]), made, 0.1, 0, False) for x, g, made in zip(xs, gs, (isotropic, isotropic, separable), strict=True)]  # fmt: skip
    joined = np.concatenate(gs[:2])
    norm, lengths = core.step_tracked(parts, threads=2)
    assert norm == pytest.approx(np.linalg.norm(joined), rel=1e-14)
    want = [*np.split(phi.precondition(joined), [5]), npgm.Separable(npgm.Log(), scale=2.0).precondition(gs[2])]
    for x, before, g, u, own in zip(xs, start, gs, want, lengths, strict=True):
        np.testing.assert_allclose(x, before - 0.1 * u, rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(own, [np.linalg.norm(g), np.linalg.norm(u)], rtol=1e-13)
    gs[1][7] = np.nan
    before = [x.copy() for x in xs]
    norm, lengths = core.step_tracked([(*part[:4], True) for part in parts], threads=1)
    assert np.isnan([norm, *np.ravel(lengths)]).all()
    for x, y in zip(xs, before, strict=True):
        np.testing.assert_array_equal(x, y)
    assert core.step(parts[2:], threads=1) is None


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [kernels.Cosh(), kernels.Log(), kernels.Power(3.0)], ids=repr)
@pytest.mark.parametrize(("dtype", "momentum"), MOMENTUM)
@pytest.mark.parametrize("before", [False, True])
def test_what_is_tracked_are_norms_of_what_goes_in_and_out(kernel, dtype, momentum, before):
    rng = np.random.default_rng(0)
    sizes, grad_scales = [0, 1, 7, 1000, 40_000], [1.0, 2.0, 0.5, 3.0, 1.0]
    xs, gs = ([(10.0 ** rng.integers(-2, 3) * rng.standard_normal(n)).astype(DTYPES[dtype]) for n in sizes] for _ in range(2))  # fmt: skip
    ms = [rng.standard_normal(n).astype(DTYPES[momentum]) for n in sizes] if momentum else []
    made, _ = rule(**named(kernel), scale=2.0, weight=0.25, coupled_decay=0.125, before=before)
    wide = [[v.astype(np.float64) for v in vs] for vs in (xs, gs, ms or xs)]
    ys = [g / c + 0.125 * x for x, g, c in zip(*wide[:2], grad_scales, strict=True)]
    if before and momentum:
        ys = [0.75 * m + 0.25 * y for m, y in zip(wide[2], ys, strict=True)]
    options = {"factors": [], "lr": 0.1, "grad_scales": grad_scales}
    plain = [[v.copy() for v in vs] for vs in (xs, gs, ms)]
    assert core.apply_step(tensors(*plain), made, **options, threads=1) == ([], [])
    given, out = core.apply_step(tensors(xs, gs, ms), made, **options, threads=2, track=True)
    us = [npgm.Separable(kernel, scale=2.0).precondition(y) for y in ys]
    rtol = 1e-12 if dtype == "float64" else 1e-5
    np.testing.assert_allclose(given, [np.linalg.norm(y) for y in ys], rtol=rtol)
    np.testing.assert_allclose(out, [np.linalg.norm(u) for u in us], rtol=rtol)
    for x, y in zip(xs, plain[0], strict=True):
        eps = float(ml_dtypes.finfo(x.dtype).eps)
        np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), rtol=2 * eps, atol=20 * eps)


def test_what_a_step_cannot_scale_is_refused():
    x = np.ones(4)
    separable, _ = rule("cosh")
    for call in (core.measure, lambda *args, **kwargs: core.apply_step(*args, factors=[], lr=0.1, **kwargs)):
        with pytest.raises(ValueError, match="one grad_scale, or one for each tensor"):
            call(tensors([x, x.copy(), x.copy()], 3 * [x + 1]), separable, grad_scales=[1.0, 1.0], threads=1)

"""The preconditioners of the native module, in units in the last place."""

from __future__ import annotations

import functools

import mpmath
import numpy as np
import pytest

from definitions import preconditioner
from native_calls import (
    DTYPES,
    MEETING,
    each_kernel,
    each_parameter,
    precondition,
    units,
)
from npgm import kernels


@functools.cache
def float32_samples(kernel):
    """Every exponent with 400 mantissas, a dense sweep, and all around `MEETING`; and h*' of these."""
    rng = np.random.default_rng(0)
    mantissas = np.concatenate([rng.integers(0, 2**23, 396), [0, 1, 2**22, 2**23 - 1]])
    exponents = np.arange(255) << 23  # of subnormal numbers first
    near = np.float32([a for a in MEETING if a < 2.0**128]).view(np.int32)
    bits = np.concatenate(
        [(exponents[:, None] | mantissas).ravel(), (near[:, None] + np.arange(-10_000, 10_000)).ravel()]
    )
    y = np.concatenate([bits.astype(np.int32).view(np.float32), np.linspace(0, 8, 100_001, dtype=np.float32)])
    with np.errstate(over="ignore"):
        return y, kernel.precondition(y.astype(np.float64))  # 29 bits more


@functools.cache
def float64_samples(kernel):
    """Every other exponent, a sweep and all around `MEETING`; and h*' of these, in two parts of which the sum is exact."""
    rng = np.random.default_rng(0)
    near = np.array(MEETING).view(np.int64)
    y = np.concatenate(
        [
            np.ldexp(rng.uniform(1, 2, 1024), np.arange(-1023, 1024, 2)),
            np.concatenate([[5e-324, 1e-310], rng.uniform(0, 4, 1000), np.geomspace(1e-3, 1e6, 500)]),
            (near[:, None] + np.arange(-8, 8)).ravel().view(np.float64),
        ]
    )
    with mpmath.workdps(40):
        exact = [preconditioner(kernel)(mpmath.mpf(float(v))) for v in y]
        high = np.array([float(value) for value in exact])
        low = [float(value - h) if np.isfinite(h) else 0.0 for value, h in zip(exact, map(float, high), strict=True)]
    return y, high, np.array(low)


@pytest.mark.slow
@each_parameter
def test_floats_are_within_two_units_in_the_last_place(kernel):
    y, exact = float32_samples(kernel)
    assert np.isfinite(y).all()
    finite = exact < float(np.finfo(np.float32).max) * (1 + 2.0**-25)
    for sign in (1, -1):
        u = sign * precondition(kernel, np.float32(sign) * y)
        error = np.abs(u[finite] - exact[finite]) / units(np.float32, exact[finite])
        assert error.max() <= 2.0
        assert np.isposinf(u[~finite]).all()


@pytest.mark.slow
@each_parameter
def test_doubles_are_within_two_units_in_the_last_place(kernel):
    y, high, low = float64_samples(kernel)
    u, finite = precondition(kernel, y), np.isfinite(high)
    error = np.abs((u[finite] - high[finite]) - low[finite])
    magnified = kernel == kernels.Power(1.001)  # to the power of 1000, the error of the logarithm counts
    assert (error / units(np.float64, high[finite])).max() <= (16.0 if magnified else 2.0)
    assert np.isposinf(u[~finite]).all()


@pytest.mark.slow
@each_kernel
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_short_numbers_are_rounded_to_the_nearest_mostly(kernel, dtype):
    every = np.arange(2**15, dtype=np.uint16).view(DTYPES[dtype])
    y = every[np.isfinite(every.astype(np.float32))]
    wrong = []
    for scale in np.geomspace(0.21, 5, 12, dtype=np.float32):
        u = precondition(kernel, y, float(scale))
        with np.errstate(over="ignore"):
            ratio = np.minimum(y.astype(np.float32) / scale, np.finfo(np.float32).max)
            want = kernel.precondition(ratio.astype(np.float64)).astype(DTYPES[dtype])
        distance = np.abs(u.view(np.int16).astype(int) - want.view(np.int16).astype(int))
        assert distance.max() <= 1
        wrong.append(distance)
    assert np.mean(wrong) <= 2e-3


@each_kernel
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_special_values_and_scales(kernel, dtype):
    fine = np.finfo(dtype)
    numbers = [0.0, -0.0, 1.5, -2.5, fine.tiny, fine.smallest_subnormal, fine.max, -fine.max]
    y = np.array([*numbers, np.inf, -np.inf, np.nan] * 5, dtype)
    for scale in (1.0, 3.0, 1e-3, 1e6, float(fine.tiny), 1e-41, float(fine.max) / 4):
        scale = float(dtype(scale))  # a number of the dtype, as subnormal ones have few digits
        u = precondition(kernel, y, scale)
        with np.errstate(all="ignore"):
            ratio = np.abs(y.astype(np.longdouble)) / scale
            cut_off = np.minimum(ratio, float(fine.max)).astype(np.float64)
            ratio = np.where(np.isfinite(y), cut_off, np.abs(y.astype(np.float64)))
            # the quotient is rounded to a number of the dtype, near to which h*' may be infinitely steep
            unit = 2 * float(fine.smallest_subnormal)
            low = kernel.precondition(np.maximum(ratio - unit, 0)).astype(dtype) * (1 - 8 * fine.eps) - unit
            high = kernel.precondition(ratio + unit).astype(dtype) * (1 + 8 * fine.eps) + unit
        np.testing.assert_array_equal(np.isnan(u), np.isnan(high))
        known = ~np.isnan(u)
        magnitude = np.sign(y) * u
        assert ((low <= magnitude) & (magnitude <= high))[known].all()

"""Calls of the native module with arrays of NumPy."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest

from npgm import _native, kernels

core = _native.core()


DTYPES = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
}


MOMENTUM = [(own, other) for own in DTYPES for other in ("", own)] + [("bfloat16", "float32"), ("float16", "float32")]


KERNELS = [kernels.registry[key]() for key in core.kernels] + [kernels.Power(1.5), kernels.Huber(0.1)]


PARAMETERS = [kernels.Power(p) for p in (1.001, 1.1, 2.0, 2.2, 3.0, 100.0)] + [kernels.Huber(1e300)]


each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)


each_parameter = pytest.mark.parametrize("kernel", KERNELS + PARAMETERS, ids=repr)


@pytest.fixture(params=core.instruction_sets(), autouse=True)
def instruction_set(request):
    core.use_instruction_set(request.param)
    yield request.param
    core.use_instruction_set(core.instruction_sets()[0])


def addresses(arrays):
    return [a.ctypes.data for a in arrays]


def named(kernel):
    return {"kernel": kernel.key, "kernel_parameters": list(dataclasses.astuple(kernel))}


def tensors(xs, gs, ms=(), **dtypes):
    dtypes = {"dtype": str(xs[0].dtype), "momentum_dtype": str(ms[0].dtype) if ms else ""} | dtypes
    return core.Tensors(addresses(xs), addresses(gs), addresses(ms), [x.size for x in xs], **dtypes)


def rule(
    kernel="",
    kernel_parameters=(),
    per_tensor=False,
    before=False,
    scale=1.0,
    weight=1.0,
    coupled_decay=0.0,
    decoupled_decay=0.0,
    gradient_factor=1.0,
    isotropic=False,
):
    """The rule, and by what gradients are divided; isotropic without a kernel too."""
    made = core.Rule(
        kernel=kernel,
        parameters=kernel_parameters,
        isotropic=isotropic or kernel == "",
        per_tensor=per_tensor,
        before=before,
        scale=scale,
        momentum=1 - weight,
        coupled_decay=coupled_decay,
        decoupled_decay=decoupled_decay,
        maximize=gradient_factor < 0,
    )
    return made, abs(1 / gradient_factor)


def step(arrays, *, factors=(), lr=1.0, shrink=1.0, threads=1, **options):
    made, grad_scale = rule(**options, decoupled_decay=(1 - shrink) / lr)
    core.apply_step(arrays, made, factors=factors, lr=lr, grad_scales=[grad_scale], threads=threads)


def update(xs, gs, ms=(), **options):
    step(tensors(xs, gs, ms), **options)


def measure(gs, xs=None, ms=(), *, threads=1, **options):
    made, grad_scale = rule(**options)
    return np.array(
        core.measure(tensors(gs if xs is None else xs, gs, ms), made, grad_scales=[grad_scale], threads=threads)
    )


def precondition(kernel, y, scale=1.0):
    u = np.zeros_like(y)
    update([u], [y], **named(kernel), lr=-1.0, scale=scale)
    return u


def units(dtype, value):
    """The distance between numbers of the dtype at ``value``, in float64."""
    fine = np.finfo(dtype)
    _, exponent = np.frexp(np.abs(value))
    return np.ldexp(1.0, np.maximum(exponent - 1, fine.minexp) - fine.nmant)


MEETING = [
    2.0**-28,
    2.0**-13,
    0.0625,
    0.41421356,
    0.55,
    1.0,
    1.1752,
    3.75,
    63.75,
    2.0**32,
    2.0**60,
    2.0**64,
    2.0**127,
    2.0**500,
]
"""Where branches of the formulas meet."""

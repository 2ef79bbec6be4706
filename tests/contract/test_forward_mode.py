"""Forward derivatives of every reference function are what its own closed forms say, for tangents of any size."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import npgm
from npgm import kernels, references

SHAPE = (3, 4)


def by_jax(function, at, along):
    return np.asarray(jax.jvp(function, (jnp.asarray(at),), (jnp.asarray(along),))[1])


def by_torch(function, at, along):
    return torch.func.jvp(function, (torch.as_tensor(at),), (torch.as_tensor(along),))[1].numpy()


@pytest.mark.parametrize("name", references.names())
@pytest.mark.parametrize("jvp", [by_torch, pytest.param(by_jax, marks=pytest.mark.slow)])
def test_jvp_is_the_closed_form(name, jvp):
    phi = npgm.reference(name, scale=4.0)  # the points of bounded kernels stay away from the boundary
    rng = np.random.default_rng(0)
    y, v = rng.standard_normal((2, *SHAPE))
    x = phi.precondition(y)
    products = {
        "conjugate": np.sum(x * v),
        "stationarity": np.sum(phi.conjugate_hvp(y, y) * v),
        "precondition": phi.conjugate_hvp(y, v),
    }
    for size in (1.0, 1e2, 1e6):
        for function, want in products.items():
            got = jvp(getattr(phi, function), y, size * v)
            np.testing.assert_allclose(got, size * want, rtol=1e-8, err_msg=f"{function} along {size}")
        if phi.kernel.strongly_convex_c2:  # ∇φ is the inverse of ∇φ*
            np.testing.assert_allclose(jvp(phi, x, size * v), size * np.sum(y * v), rtol=1e-8)
            back = phi.conjugate_hvp(y, jvp(phi.gradient, x, size * v))
            np.testing.assert_allclose(back, size * v, rtol=1e-6, atol=1e-8 * size)


@pytest.mark.parametrize("jvp", [by_torch, by_jax])
@pytest.mark.parametrize("lift", sorted(references.lifts))
def test_jvp_is_finite_in_float32_near_the_largest_numbers(lift, jvp):
    phi = npgm.reference(f"{lift}-cosh", scale=1e-3)
    y = np.full(SHAPE, 3e37, dtype=np.float32) * np.array([[1], [-1], [1]], dtype=np.float32)
    y[0, 0] = 1e37
    for size in (1.0, 1e6):
        assert np.isfinite(jvp(phi.precondition, y, np.full(SHAPE, size, dtype=np.float32))).all()


# with the tangents below, quotients of the two are normal numbers
LARGE = {np.float64: (1e-300, 1e-20, 1.0, 1e10, 1e160, 1e300), np.float32: (1e-37, 1e-10, 1.0, 1e5, 1e20, 1e30)}


@pytest.mark.parametrize("dtype", LARGE)
@pytest.mark.parametrize("jvp", [by_torch, pytest.param(by_jax, marks=pytest.mark.slow)])
@pytest.mark.parametrize("key", kernels.registry)
def test_jvp_of_a_kernel_holds_at_numbers_of_any_size(key, jvp, dtype):
    if key == "expsq" and jvp is by_torch:
        pytest.skip("torch differentiates the iterations for Lambert's W, which square y")
    kernel, y = kernels.registry[key](), np.array(LARGE[dtype], dtype=dtype)
    wide = y.astype(np.float64)
    u, slope = kernel.precondition(wide), kernel.curvature(wide)
    # each with the size of the terms of which it may be a difference
    products = {"conjugate": (u, u), "precondition": (slope, u / wide), "stationarity": (wide * slope, u)}
    limits = np.finfo(dtype)
    for size in (1e-6, 1.0, 1e6):
        for function, (want, terms) in products.items():
            got = jvp(getattr(kernel, function), y, np.full(y.shape, size, dtype=dtype)).astype(np.float64)
            error = np.abs(got - size * want)
            allowed = 1e2 * float(limits.eps) * size * np.abs(terms) + 4.0 * float(limits.tiny) * max(size, 1.0)
            allowed[np.abs(size * want) > float(limits.max)] = np.inf
            assert (error <= allowed).all(), (function, size, y[~(error <= allowed)])

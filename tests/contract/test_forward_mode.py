"""Derivatives of every reference function are what its own closed forms say, at points and for tangents of any size."""

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


# with JAX, which compiles every operation, all kernels in one lift
OF_JAX = [name for name in references.names() if name.startswith("separable") or name.endswith(("-cosh", "-pow"))]


@pytest.mark.parametrize(
    ("jvp", "name"),
    [
        *((by_torch, name) for name in references.names()),
        *(pytest.param(by_jax, name, marks=pytest.mark.slow) for name in OF_JAX),
    ],
)
def test_jvp_is_the_closed_form(jvp, name):
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


def derivatives_by_torch(potential, at, along):
    """The gradient of a potential, and its second derivative by a forward derivative of a forward derivative."""
    y, v = torch.as_tensor(at), torch.as_tensor(along)
    slope = torch.func.jvp(lambda y: torch.func.jvp(potential, (y,), (v,))[1], (y,), (v,))[1]
    return torch.func.grad(potential)(y).numpy(), slope.numpy()


def derivatives_by_jax(potential, at, along):
    y, v = jnp.asarray(at), jnp.asarray(along)
    slope = jax.jvp(lambda y: jax.jvp(potential, (y,), (v,))[1], (y,), (v,))[1]
    return np.asarray(jax.grad(potential)(y)), np.asarray(slope)


@pytest.mark.parametrize(
    "derivatives", [derivatives_by_torch, pytest.param(derivatives_by_jax, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("lift", sorted(references.lifts))
@pytest.mark.parametrize("key", ["expsq", "logx2"])
def test_potentials_have_their_derivatives_at_any_size(key, lift, derivatives):
    phi = npgm.reference(f"{lift}-{key}")
    y, v = np.random.default_rng(0).standard_normal((2, *SHAPE)).astype(np.float32)
    for size in (0.0, 1e-30, 1.0, 1e20, 3e37):
        at = np.float32(size) * y / abs(y).max()
        gradient, slope = derivatives(phi.conjugate, at, v)
        at, along = at.astype(np.float64), v.astype(np.float64)
        np.testing.assert_allclose(
            gradient, phi.precondition(at), rtol=2e-5, atol=2e-6 * abs(phi.precondition(at)).max()
        )
        np.testing.assert_allclose(slope, np.sum(phi.conjugate_hvp(at, along) * along), rtol=2e-5, atol=1e-35)
    if lift != "spectral":  # which is differentiated once
        flat = np.zeros(SHAPE, dtype=np.float32)
        curved = phi.curvature_at_zero * np.sum(v.astype(np.float64) ** 2)
        np.testing.assert_allclose(derivatives(phi.stationarity, flat, v)[1], curved, rtol=2e-5)


@pytest.mark.parametrize("lift", sorted(references.lifts))
def test_derivatives_of_torch_may_be_nested_in_any_order(lift):
    phi = npgm.reference(f"{lift}-sqrt", scale=2.0)
    y, v = torch.randn(2, *SHAPE, dtype=torch.float64)

    def along(function, vector=v):
        return lambda y: torch.func.jvp(function, (y,), (vector,))[1]

    def loss(y):
        return phi.conjugate(y) ** 2

    def backwards(y):
        return torch.sum(torch.func.grad(loss)(y) * v)

    want = torch.sum(torch.func.grad(backwards)(y) * v)
    for nested in (along(along(loss)), along(backwards)):
        torch.testing.assert_close(nested(y), want)
    torch.testing.assert_close(torch.sum(torch.func.grad(along(loss))(y) * v), want)
    if lift == "spectral":
        with pytest.raises(NotImplementedError, match="can be differentiated once"):
            along(along(phi.precondition))(y)
    else:
        step = 1e-4
        near = [along(phi.precondition)(y + sign * step * v) for sign in (1, -1)]
        want = (near[0] - near[1]) / (2 * step)
        torch.testing.assert_close(along(along(phi.precondition))(y), want, rtol=1e-6, atol=1e-8)

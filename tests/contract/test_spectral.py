"""What the spectral lift of every registered kernel must satisfy on matrices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import npgm
from backends import AUTOGRAD, BACKENDS, JAX, NUMPY, TORCH, slow_on_jax
from npgm import kernels

KERNELS = [cls() for cls in kernels.registry.values()]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)
each_kernel_backend_and_dtype = pytest.mark.parametrize(
    ("kernel", "backend", "dtype"),
    slow_on_jax(
        *((kernel, b, dtype) for b in (NUMPY, TORCH) for kernel in KERNELS for dtype in (np.float32, np.float64)),
        (npgm.Cosh(), JAX, np.float32),
        (npgm.Cosh(), JAX, np.float64),
        (kernels.Power(), JAX, np.float32),
    ),
    ids=lambda value: getattr(value, "name", getattr(value, "__name__", repr(value))),
)
each_backend = pytest.mark.parametrize("backend", slow_on_jax(*BACKENDS), ids=lambda b: b.name)
each_autograd = pytest.mark.parametrize("backend", slow_on_jax(*AUTOGRAD), ids=lambda b: b.name)
SPECTRA = [  # distinct, almost repeated, of low rank, repeated
    ((3, 3), [3.3, 1.0, 0.2]),
    ((4, 3), [2.0, 2.0 * (1 + 1e-9), 1e-3]),
    ((3, 4), [5.0, 0.7]),
    ((2, 3), [1.0, 1.0]),
]


def with_values(shape, values, seed=0):
    """A matrix with given singular values, zeros where there are too few."""
    rng = np.random.default_rng(seed)
    p = min(shape)
    u, v = (np.linalg.qr(rng.standard_normal((n, p)))[0] for n in shape)
    return u[:, : len(values)] * values @ v[:, : len(values)].T


def definition(function, y):
    """U diag(function(σ)) Vᵀ."""
    u, s, vt = np.linalg.svd(y, full_matrices=False)
    return u * function(s) @ vt


@pytest.mark.slow
@each_kernel
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 5), columns=st.integers(1, 5), size=st.floats(1e-3, 1e3))
def test_acts_on_the_singular_values(kernel, seed, rows, columns, size):
    y = size * np.random.default_rng(seed).standard_normal((rows, columns))
    phi = npgm.Spectral(kernel, scale=2.0)
    u, s = phi.precondition(y), np.linalg.svd(y, compute_uv=False) / 2.0
    want = definition(lambda s: kernel.precondition(s / 2.0), y)
    np.testing.assert_allclose(u, want, rtol=0, atol=1e-12 * max(kernel.precondition(s[0]), s[0] / max(phi.mu, 1)))
    assert phi.conjugate(y) == pytest.approx(2.0 * np.sum(kernel.conjugate(s)), rel=1e-12)
    assert phi.stationarity(y) == pytest.approx(2.0 * np.sum(kernel.stationarity(s)), rel=1e-12)
    inside = u * (1 - 1e-12)  # singular values are rounded
    np.testing.assert_allclose(phi(inside) + phi.conjugate(y), np.sum(u * y), rtol=1e-5)
    if np.min(kernel.curvature(s)) > 1e-6:  # else u has forgotten y
        np.testing.assert_allclose(phi.gradient(u), y, rtol=0, atol=1e-6 * np.max(np.abs(y)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "backend", "shape", "values"),
    slow_on_jax(
        *((kernel, TORCH, *spectrum) for kernel in KERNELS for spectrum in SPECTRA[1:3]),
        *((kernel, TORCH, *SPECTRA[i]) for kernel in (npgm.Cosh(), npgm.Exp(), kernels.Power()) for i in (0, 3)),
        (npgm.Cosh(), JAX, *SPECTRA[1]),
    ),
    ids=lambda value: getattr(value, "name", repr(value)),
)
def test_derivatives_are_those_of_autograd_and_of_differences(kernel, backend, shape, values):
    phi = npgm.Spectral(kernel, scale=3.0)
    if np.isinf(phi.curvature_at_zero) and len(values) < min(shape):
        values = [*values, 0.1]
    y = with_values(shape, values)
    rng = np.random.default_rng(1)
    v = rng.standard_normal(shape)
    product = phi.conjugate_hvp(y, v)
    jacobian = backend.jacobian(phi.precondition, backend.array(y)).reshape(*shape, -1)
    np.testing.assert_allclose(jacobian @ v.ravel(), product, rtol=0, atol=1e-9 * np.max(np.abs(product)))
    root = phi.conjugate_hessian(y, root=True)
    np.testing.assert_allclose(root(root(v)), product, rtol=0, atol=1e-12 * np.max(np.abs(product)))
    for potential, gradient in [(phi.conjugate, phi.precondition(y)), (phi.stationarity, phi.conjugate_hvp(y, y))]:
        got = backend.jacobian(potential, backend.array(y))
        np.testing.assert_allclose(got, gradient, rtol=0, atol=1e-12 * np.max(np.abs(gradient)))
    if kernel.strongly_convex_c2:
        # of third order where it is smooth; at a singular value of zero exp and log have kinks in the next derivative
        h = 1e-6
        difference = (phi.precondition(y + h * v) - phi.precondition(y - h * v)) / (2 * h)
        np.testing.assert_allclose(difference, product, rtol=0, atol=1e-6)
        x = 0.7 * phi.precondition(y)
        forth = backend.jacobian(phi.gradient, backend.array(x)).reshape(*shape, -1) @ v.ravel()
        back = phi.conjugate_hvp(phi.gradient(x), forth)  # the two Hessians are inverse to each other
        np.testing.assert_allclose(back, v, rtol=0, atol=1e-9)


@each_autograd
def test_potentials_have_second_derivatives_and_maps_do_not(backend):
    phi = npgm.Spectral(npgm.Cosh(), scale=2.0)
    y, v = with_values((3, 4), [2.0, 2.0, 0.0]), np.random.default_rng(0).standard_normal((3, 4))
    if backend.name == "torch":
        import torch

        at = backend.array(y).requires_grad_()
        (gradient,) = torch.autograd.grad(phi.conjugate(at), at, create_graph=True)
        (second,) = torch.autograd.grad(gradient, at, backend.array(v))
        third = lambda: torch.autograd.grad(  # noqa: E731
            torch.autograd.grad(phi.precondition(at).sum(), at, create_graph=True)[0].sum(), at
        )
    else:
        import jax

        grad = jax.jit(jax.grad(phi.conjugate))
        second = jax.jvp(grad, (backend.array(y),), (backend.array(v),))[1]
        third = lambda: jax.hessian(lambda y: phi.precondition(y).sum())(backend.array(y))  # noqa: E731
    np.testing.assert_allclose(backend.numpy(second), phi.conjugate_hvp(y, v), rtol=0, atol=1e-12)
    with pytest.raises(NotImplementedError, match="differentiated once"):
        third()


@each_kernel_backend_and_dtype
def test_backends_agree_with_float64_numpy(kernel, backend, dtype):
    phi = npgm.Spectral(kernel, scale=0.5)
    for size in (1e-30, 1e-3, 1.0, 1e30):
        y = np.stack([size * with_values((6, 4), [4.0, 2.0, 1.0, 0.5], seed) for seed in range(3)]).astype(dtype)
        got = backend.numpy(backend.compiled(phi.precondition)(backend.array(y), axis=(-2, -1)))
        want = phi.precondition(y.astype(np.float64), axis=(-2, -1))
        assert got.dtype == dtype
        # singular values that are small beside the largest have no more digits than the matrix
        error = np.finfo(dtype).eps * max(np.max(np.abs(want)), min(size / max(phi.mu, 1e-3), 1e30) if size < 1 else 0)
        np.testing.assert_allclose(got, want, rtol=0, atol=100 * error * max(1.0, size if size < 10 else 1.0))


@each_kernel_backend_and_dtype
@pytest.mark.filterwarnings("error")
def test_extreme_matrices_have_finite_steps(kernel, backend, dtype):
    largest = float(np.finfo(dtype).max)
    for scale in (1e-8, 1.0, 1e8):
        precondition = backend.compiled(npgm.Spectral(kernel, scale=scale).precondition)
        for y in (np.full((3, 4), largest), np.zeros((3, 4)), np.full((3, 4), float(np.finfo(dtype).tiny))):
            u = backend.numpy(precondition(backend.array(y.astype(dtype))))
            assert np.isfinite(u).all()
            assert (u != 0).any() or (y < 1).all()


@each_backend
def test_nan_and_infinity_stay_in_their_matrix(backend):
    phi = npgm.Spectral(npgm.Sqrt())
    y = np.random.default_rng(0).standard_normal((4, 3, 2))
    y[1, 0, 1], y[2, 2, 0] = np.nan, np.inf
    for function in (phi.precondition, phi.conjugate, phi.stationarity, phi):
        got = backend.numpy(function(backend.array(0.1 * y), axis=(1, 2)))
        assert np.isnan(got.reshape(4, -1)).all(axis=1).tolist() == [False, True, True, False]


@each_backend
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 0, 3), (0, 3, 2), (0,)])
def test_empty_matrices(backend, shape):
    phi = npgm.Spectral(npgm.Log())
    empty = backend.array(np.zeros(shape))
    assert phi.precondition(empty).shape == phi.gradient(empty).shape == shape
    assert float(phi.conjugate(empty)) == float(phi(empty)) == 0.0


def test_axes_say_what_a_matrix_is():
    phi = npgm.Spectral(npgm.Exp(), scale=0.3)
    y = np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    x = 0.1 * y
    by_hand = np.array([[phi.precondition(y[i, j]) for j in range(3)] for i in range(2)])
    np.testing.assert_allclose(phi.precondition(y), by_hand, rtol=1e-12)
    np.testing.assert_allclose(phi.conjugate(y), sum(phi.conjugate(m) for m in y.reshape(6, 4, 5)), rtol=1e-12)
    assert phi.conjugate(y, axis=(2, 3)).shape == (2, 3)
    assert phi.stationarity(y, axis=(1, 2, 3)).shape == phi(x, axis=(1, 2, 3)).shape == (2,)
    swapped = phi.precondition(np.transpose(y, (3, 1, 0, 2)), axis=(1, 3, 0))
    np.testing.assert_allclose(np.transpose(swapped, (2, 1, 3, 0)), by_hand, rtol=1e-12, atol=1e-14)
    product = phi.conjugate_hvp(y, x)
    np.testing.assert_allclose(product[1, 2], phi.conjugate_hvp(y[1, 2], x[1, 2]), rtol=1e-12)
    column = y[0, 0, :, 0]
    for matrix in (column[:, None], column[None], column):
        np.testing.assert_array_equal(
            phi.precondition(matrix).ravel(), npgm.Isotropic(npgm.Exp(), 0.3).precondition(column)
        )


@pytest.mark.parametrize("kernel", [npgm.Cosh(), npgm.Exp(), npgm.Cubic(), npgm.Quartic(), npgm.Quadratic()], ids=repr)
def test_the_noise_inequality(kernel):
    # proved in docs/spectral.md
    phi, rng = npgm.Spectral(kernel), np.random.default_rng(0)
    y, z = 10.0 ** rng.uniform(-2, 3, (2, 3000, 1, 1)) * rng.standard_normal((2, 3000, 3, 4))
    z[::2] = y[::2] + 10.0 ** rng.uniform(-3, 2, (1500, 1, 1)) * z[::2]
    difference = phi.precondition(y, axis=(1, 2)) - phi.precondition(z, axis=(1, 2))
    assert (phi(difference, axis=(1, 2)) <= 0.5 * np.sum((y - z) ** 2, axis=(1, 2)) * (1 + 1e-6)).all()


def test_blocks_are_functions_of_their_own():
    phi = npgm.Spectral(npgm.Cosh(), scale=2.0)
    blocks = npgm.Blocks(phi, [(4, 3), (5, 3), (2,), ()])
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal(shape) for shape in blocks.shapes]
    x = np.concatenate([part.ravel() for part in parts])
    v = rng.standard_normal(x.shape)
    joined = np.concatenate([phi.precondition(part).ravel() for part in parts])
    np.testing.assert_array_equal(blocks.precondition(x), joined)
    np.testing.assert_allclose(blocks.gradient(joined), x, rtol=1e-10)
    for name in ("__call__", "conjugate", "stationarity"):
        assert getattr(blocks, name)(x) == pytest.approx(sum(getattr(phi, name)(part) for part in parts))
    rows = np.stack([x, 2 * x])
    assert blocks.conjugate(rows, axis=-1).shape == (2,)
    np.testing.assert_array_equal(blocks.precondition(rows, axis=-1)[0], joined)
    np.testing.assert_array_equal(blocks.precondition(rows.T, axis=0)[:, 0], joined)
    np.testing.assert_allclose(
        blocks.conjugate_hvp(x, v)[:12], phi.conjugate_hvp(parts[0], v[:12].reshape(4, 3)).ravel(), rtol=1e-12
    )
    assert (blocks.kernel, blocks.scale, blocks.mu) == (npgm.Cosh(), 2.0, 2.0)
    assert blocks == npgm.Blocks(phi, blocks.shapes)
    rescaled = blocks.with_scale(4.0)
    assert rescaled == npgm.Blocks(phi.with_scale(4.0), blocks.shapes)
    assert rescaled.scale == 4.0
    np.testing.assert_array_equal(rescaled.precondition(2 * x), blocks.precondition(x))
    assert hash(blocks) == hash(npgm.Blocks(phi, blocks.shapes))
    with pytest.raises(ValueError, match="has 30 entries, but the vector has the shape"):
        blocks.precondition(x[:-1])
    with pytest.raises(TypeError, match="reference must be a reference function"):
        npgm.Blocks("spectral-cosh", [(2, 3)])
    with pytest.raises(TypeError, match="shapes must be a list of at least one shape"):
        npgm.Blocks(phi, [])
    with pytest.raises(ValueError, match="a length in shapes must be at least 0, not -1"):
        npgm.Blocks(phi, [(-1, 2)])

"""What every reference function must satisfy: each lift of each registered kernel."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import npgm
from backends import AUTOGRAD, BACKENDS, JAX, NUMPY, TORCH, slow_on_jax
from npgm import references

each_name = pytest.mark.parametrize("name", references.names())
FEW = ("-cosh", "-pow")  # with libraries that compile every operation for every shape
each_name_and_backend = pytest.mark.parametrize(
    ("name", "backend"),
    slow_on_jax(*((name, b) for b in BACKENDS for name in references.names() if b.name != "jax" or name.endswith(FEW))),
    ids=lambda value: getattr(value, "name", value),
)
each_name_backend_and_dtype = pytest.mark.parametrize(
    ("name", "backend", "dtype"),
    slow_on_jax(
        *(
            (name, b, np.float32)
            for b in BACKENDS
            for name in references.names()
            if b.name != "jax" or name.endswith(FEW)
        ),
        *((name, TORCH, np.float64) for name in references.names()),
        *((name, JAX, np.float64) for name in references.names() if name.endswith("-cosh")),
    ),
    ids=lambda value: getattr(value, "name", getattr(value, "__name__", value)),
)

# numpy.linalg.norm, to which these are compared, underflows below 1e-154
entries = st.floats(-1e6, 1e6).filter(lambda value: value == 0 or abs(value) > 1e-100)
gradients = hnp.arrays(np.float64, st.integers(1, 6), elements=entries)
scales = st.floats(1e-3, 1e3)


def definition(phi, y):
    """∇φ*(y) by the definition, in float64 and without care."""
    y = y / phi.scale
    if isinstance(phi, npgm.Separable):
        return phi.kernel.precondition(y)
    r = np.linalg.norm(y)
    return phi.kernel.precondition(r) / r * y if r > 0 else y


@each_name
@settings(max_examples=15)
@given(y=gradients, scale=scales)
def test_preconditioner_is_the_definition_and_descends(name, y, scale):
    phi = npgm.reference(name).with_scale(scale)
    assert phi == npgm.reference(name, scale=scale)
    u = phi.precondition(y)
    np.testing.assert_allclose(u, definition(phi, y), rtol=1e-12, atol=1e-290)
    assert u @ y >= 0
    if phi.mu > 0:
        assert np.linalg.norm(u) <= np.linalg.norm(y) / phi.mu * (1 + 1e-12)
    assert np.max(np.abs(u)) <= phi.radius


@each_name
@settings(max_examples=15)
@given(y=gradients, scale=scales)
def test_fenchel_young_equality_and_inverse(name, y, scale):
    phi = npgm.reference(name, scale=scale)
    u = phi.precondition(y)
    # close to the edge of a bounded domain u carries no more digits than 1 - |u|
    inside = u * (1 - 1e-15)  # the norm of a clipped vector may be rounded out of a bounded domain
    np.testing.assert_allclose(phi(inside) + phi.conjugate(y), u @ y, rtol=1e-5, atol=1e-280)
    r = np.abs(y) / scale if isinstance(phi, npgm.Separable) else np.linalg.norm(y) / scale
    if np.min(phi.kernel.curvature(r)) > 1e-8:  # else u has forgotten y
        np.testing.assert_allclose(phi.gradient(u), y, rtol=1e-5, atol=1e-12 * np.max(np.abs(y), initial=1e-250))
    np.testing.assert_allclose(phi.stationarity(y), phi(inside), rtol=1e-5, atol=1e-280)


@pytest.mark.parametrize(
    ("name", "backend"),
    slow_on_jax(
        *((name, TORCH) for name in references.names()),
        *((name, JAX) for name in ("isotropic-cosh", "separable-huber", "spectral-pow")),
    ),
    ids=lambda value: getattr(value, "name", value),
)
def test_hessian_vector_product_agrees_with_autograd(name, backend):
    phi = npgm.reference(name, scale=3.0)
    # with JAX two, of one shape as elsewhere here: it compiles every operation for every shape
    points = ([0.0, 0.0, 0.0], [1e-30, 0.0, -2e-30], [1.0, -2.0, 0.5], [1e120, -1e140, 0.0])
    for y in points if backend.name == "torch" else points[:3:2]:
        y, v = np.array(y), np.array([1.0, 2.0, -3.0])
        if np.isinf(phi.curvature_at_zero):
            y = np.where(y == 0, 0.1, y)
        product = phi.conjugate_hvp(y, v)
        jacobian = backend.jacobian(phi.precondition, backend.array(y))
        np.testing.assert_allclose(jacobian @ v, product, rtol=1e-9, atol=1e-9 * np.max(np.abs(product)))
        root = phi.conjugate_hessian(y, root=True)
        twice = root(root(v))
        np.testing.assert_allclose(twice, product, rtol=1e-12, atol=1e-12 * np.max(np.abs(product)))
        gradient = backend.jacobian(phi.conjugate, backend.array(y))
        np.testing.assert_allclose(gradient, phi.precondition(y), rtol=1e-12, atol=1e-300)


@each_name_backend_and_dtype
def test_backends_agree_with_float64_numpy(name, backend, dtype):
    rng = np.random.default_rng(0)
    phi = npgm.reference(name, scale=0.5)
    for size in (1e-30, 1e-3, 1.0, 1e30):
        y = (size * rng.standard_normal((2, 50))).astype(dtype)
        want = phi.precondition(y.astype(np.float64), axis=-1)
        got = backend.numpy(backend.compiled(phi.precondition)(backend.array(y), axis=-1))
        assert got.dtype == dtype
        np.testing.assert_allclose(got, want, rtol=20 * np.finfo(dtype).eps, atol=0)


@pytest.mark.slow
@each_name_backend_and_dtype
@pytest.mark.filterwarnings("error")
def test_the_largest_gradients_have_a_finite_step(name, backend, dtype):
    y = np.finfo(dtype).max * np.array([1.0, -1.0, 0.0], dtype=dtype)
    for scale in (1e-8, 1.0, 1e8):
        u = backend.numpy(backend.compiled(npgm.reference(name, scale=scale).precondition)(backend.array(y)))
        assert np.isfinite(u).all()
        assert (np.sign(u) == np.sign(y)).all()


@each_name_and_backend
@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_zero_maps_to_zero_and_nan_stays(name, backend):
    phi = npgm.reference(name)
    precondition = backend.compiled(phi.precondition)
    for shape in ((3,), ()):
        assert (backend.numpy(precondition(backend.array(np.zeros(shape)))) == 0).all()
    y = backend.array(np.array([1.0, np.nan, 2.0]))
    assert np.isnan(backend.numpy(precondition(y))[1])
    if not name.startswith("separable"):
        assert np.isnan(backend.numpy(precondition(y))).all()
        infinite = backend.array(np.array([1.0, np.inf]))
        assert not np.isfinite(backend.numpy(precondition(infinite))).all()


@pytest.mark.parametrize(
    ("name", "backend"),
    slow_on_jax(
        *((name, b) for b in BACKENDS for name in references.names() if b.name == "numpy" or name.endswith("-cosh"))
    ),
    ids=lambda value: getattr(value, "name", value),
)
def test_a_vector_of_no_entries_is_zero(name, backend):
    phi = npgm.reference(name, scale=2.0)
    for shape in ((2, 0), (0,), (0, 3))[: 1 if backend.name == "jax" else 3]:
        x = backend.array(np.zeros(shape))
        for function in (phi.precondition, phi.gradient):
            assert function(x).shape == function(x, axis=-1).shape == shape
        for function in (phi, phi.conjugate, phi.stationarity):
            assert float(function(x)) == 0.0
            assert function(x).dtype == x.dtype
            per_row = backend.numpy(function(x, axis=-1))
            assert per_row.shape == shape[:-1]
            assert (per_row == 0).all()
        if np.isfinite(phi.curvature_at_zero):
            assert phi.conjugate_hvp(x, x).shape == shape


def near(got, want, rtol=1e-14):
    """Whether vectors agree but for rounding, of which a sum that cancels keeps that of its terms, here of order 1."""
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


@each_name
def test_axis_makes_the_rest_independent(name):
    phi = npgm.reference(name, scale=2.0)
    y = np.random.default_rng(1).standard_normal((3, 4, 5))
    x = 0.2 * y / np.max(np.abs(y))
    rows = [phi.precondition(y[i]) for i in range(3)]
    near(phi.precondition(y, axis=(1, 2)), rows)
    for function, at in ((phi, x), (phi.conjugate, y), (phi.stationarity, y)):
        assert function(at, axis=(1, 2)).shape == (3,)
        near(function(at, axis=(1, 2)), [function(at[i]) for i in range(3)])
        assert function(at).shape == ()
        assert function(at, axis=1).shape == (3, 5)
    near(phi.gradient(x, axis=(1, 2)), [phi.gradient(x[i]) for i in range(3)])
    product = phi.conjugate_hvp(y, x, axis=(1, 2))
    near(product, [phi.conjugate_hvp(y[i], x[i]) for i in range(3)], rtol=1e-12)


def test_isotropic_values():
    phi = npgm.Isotropic(npgm.Cosh(), scale=100.0)
    np.testing.assert_allclose(phi.precondition(np.array([300.0, 400.0])), np.arcsinh(5) * np.array([0.6, 0.8]))
    assert phi(np.array([3.0, 4.0])) == pytest.approx(100 * (np.cosh(5) - 1))
    assert (phi.mu, phi.radius, phi.name) == (100.0, np.inf, "isotropic-cosh")


def test_ngd_is_the_first_row_of_table_1():
    y = np.array([3.0, -4.0])
    np.testing.assert_allclose(npgm.reference("isotropic-log", scale=0.5).precondition(y), y / (0.5 + 5.0))
    np.testing.assert_allclose(npgm.reference("separable-log", scale=0.5).precondition(y), y / (0.5 + np.abs(y)))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: npgm.reference("cosh"), ValueError, "unknown reference 'cosh'; accepted: isotropic-artanh"),
        (
            lambda: npgm.reference("isotropic-mine"),
            ValueError,
            "spectral-sqrt; a kernel of your own is known in each process",
        ),
        (lambda: npgm.reference(3), TypeError, "reference must be a string"),
        (lambda: npgm.reference("isotropic-cosh", p=3.0), TypeError, "has no parameter 'p'"),
        (lambda: npgm.Isotropic(npgm.Cosh), TypeError, "kernel must be a kernel"),
        (lambda: npgm.Isotropic(npgm.Cosh(), scale=0.0), ValueError, "scale must be positive and finite, not 0.0"),
        (lambda: npgm.Isotropic(npgm.Cosh(), scale=-1), ValueError, "scale must be positive and finite, not -1"),
        (lambda: npgm.Separable(npgm.Cosh(), scale=np.nan), ValueError, "scale must be positive and finite, not nan"),
        (lambda: npgm.Separable(npgm.Cosh(), scale=True), TypeError, "scale must be a real number, not True"),
        (lambda: npgm.Separable(npgm.Cosh(), scale="1"), TypeError, "scale must be a real number, not '1'"),
    ],
)
def test_bad_input_is_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("backend", "lift", "p"),
    slow_on_jax(
        *((b, lift, p) for b in (NUMPY, TORCH) for lift in references.lifts.values() for p in (1.5, 2.0, 4.0)),
        (JAX, npgm.Isotropic, 1.5),
        (JAX, npgm.Isotropic, 4.0),
        (JAX, npgm.Spectral, 4.0),
    ),
    ids=lambda value: getattr(value, "name", getattr(value, "__name__", value)),
)
def test_power_kernels_at_zero(backend, lift, p):
    phi = lift(npgm.kernels.Power(p), scale=2.0)
    zero = np.zeros(3)
    for function in (phi.precondition, phi.gradient):
        np.testing.assert_array_equal(backend.numpy(function(backend.array(zero))), zero)
    assert phi.curvature_at_zero == {1.5: 0.0, 2.0: 0.5, 4.0: np.inf}[p]
    if p <= 2.0:
        np.testing.assert_array_equal(phi.conjugate_hvp(zero, np.ones(3)), phi.curvature_at_zero * np.ones(3))
    if backend in AUTOGRAD and lift is not npgm.Separable:
        jacobian = backend.jacobian(phi.precondition, backend.array(zero))
        # an infinite derivative counts as 0, as in torch.linalg.vector_norm, lest a zero gradient make NaN
        np.testing.assert_array_equal(jacobian, np.eye(3) * {1.5: 0.0, 2.0: 0.5, 4.0: 0.0}[p])


def test_kernel_parameters_are_given_by_name():
    assert npgm.reference("separable-pow", scale=3.0, p=3.0) == npgm.Separable(npgm.kernels.Power(3.0), scale=3.0)
    assert npgm.reference("isotropic-huber", radius=0.5).radius == 0.5
    with pytest.raises(ValueError, match=r"p must be larger than 1, not 1\.0"):
        npgm.reference("isotropic-pow", p=1.0)
    with pytest.raises(ValueError, match="radius must be positive and finite, not 0"):
        npgm.kernels.Huber(0)
    with pytest.raises(TypeError, match="p must be a real number"):
        npgm.kernels.Power("3")


@each_name
@pytest.mark.parametrize(("dtype", "scale"), [(np.float64, 1e300), (np.float64, 1e150), (np.float32, 1e30)])
def test_what_is_quadratic_near_zero_does_not_underflow(name, dtype, scale):
    phi = npgm.reference(name, scale=scale)
    y, c = np.array([3.0, -4.0], dtype=dtype), phi.kernel.curvature_at_zero
    if not 0.0 < c < np.inf:
        pytest.skip("not quadratic near zero")
    for value in (phi.stationarity(y), phi.conjugate(y), phi(phi.precondition(y))):
        np.testing.assert_allclose(value * scale, 12.5 * c, rtol=1e-6 if dtype == np.float32 else 1e-11)

"""What every registered kernel must satisfy; a new kernel is tested by being registered."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends import AUTOGRAD, BACKENDS, duals, primals, ulps
from npgm import kernels

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")  # a value beyond the largest number is infinite

KERNELS = [cls() for cls in kernels.registry.values()]
DUAL = ["conjugate", "precondition", "curvature", "stationarity", "rescaling"]
PRIMAL = ["__call__", "gradient"]

each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.key)
each_backend = pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.name)


def points(kernel, name, dtype):
    return primals(kernel.radius, dtype) if name in PRIMAL else duals(dtype)


def allowed(backend, name):
    # XLA's sinh and log1p are themselves off by up to 20 units in the last place
    return 24 if backend.name == "jax" else 4


@each_kernel
@each_backend
@pytest.mark.parametrize("name", PRIMAL + DUAL)
def test_float32_has_full_accuracy_over_its_whole_range(kernel, backend, name):
    x = points(kernel, name, np.float32)
    got = getattr(kernel, name)(backend.array(x))
    assert backend.numpy(got).dtype == np.float32
    assert ulps(backend.numpy(got), getattr(kernel, name)(x.astype(np.float64)), np.float32) <= allowed(backend, name)


@each_kernel
@each_backend
@pytest.mark.parametrize("name", PRIMAL + DUAL)
def test_every_backend_agrees_with_numpy_in_float64(kernel, backend, name):
    x = points(kernel, name, np.float64)
    got = backend.numpy(getattr(kernel, name)(backend.array(x)))
    assert ulps(got, getattr(kernel, name)(x), np.float64) <= allowed(backend, name)


@each_kernel
@each_backend
@pytest.mark.parametrize("name", PRIMAL + DUAL)
def test_low_precision_is_float32_rounded_once(kernel, backend, name):
    for dtype in backend.low_precision:
        x = backend.array(np.array([-0.75, -0.01, 0.0, 0.25, 0.5], dtype=np.float32))
        low = x.astype(dtype) if hasattr(x, "astype") else x.to(dtype)
        wide = low.astype(np.float32) if hasattr(low, "astype") else low.float()
        got, want = getattr(kernel, name)(low), getattr(kernel, name)(wide)
        assert got.dtype == low.dtype
        rounded = want.astype(dtype) if hasattr(want, "astype") else want.to(dtype)
        assert bool((got == rounded).all())


@each_kernel
def test_fenchel_young_equality_and_inverse(kernel):
    y = duals(np.float64)
    y = y[np.abs(y) <= 1e6]
    u = kernel.precondition(y)
    np.testing.assert_allclose(kernel(u) + kernel.conjugate(y), u * y, rtol=1e-8, atol=1e-300)
    np.testing.assert_allclose(kernel.gradient(u), y, rtol=1e-8, atol=0)
    np.testing.assert_allclose(kernel.stationarity(y), kernel(u), rtol=1e-8, atol=1e-300)


@each_kernel
@given(x=st.floats(-20, 20), y=st.floats(-1e6, 1e6))
def test_fenchel_young_inequality(kernel, x, y):
    x = np.asarray(x if kernel.radius == np.inf else x / 20.5 * kernel.radius)
    y = np.asarray(y)
    assert kernel(x) + kernel.conjugate(y) >= x * y - 1e-12 * abs(x * y)


@each_kernel
@pytest.mark.parametrize("backend", AUTOGRAD, ids=lambda b: b.name)
def test_derivatives_agree_with_autograd(kernel, backend):
    inside = 0.95 if kernel.radius == np.inf else 0.95 * kernel.radius
    x = np.array([-inside, -0.3, -1e-8, 0.0, 1e-20, 0.5 * inside])
    y = np.array([-1e4, -2.0, -0.3, -1e-9, 0.0, 1e-20, 0.7, 1.0, 30.0])
    for value, derivative, at in [
        (kernel, kernel.gradient, x),
        (kernel.conjugate, kernel.precondition, y),
        (kernel.precondition, kernel.curvature, y),
    ]:
        jacobian = backend.jacobian(value, backend.array(at))
        np.testing.assert_allclose(np.diag(jacobian), derivative(at), rtol=1e-9, atol=1e-30)


@each_kernel
def test_is_even_and_zero_at_zero(kernel):
    x, y = primals(kernel.radius, np.float64), duals(np.float64)
    for even in (kernel, kernel.conjugate, kernel.curvature, kernel.stationarity, kernel.rescaling):
        at = x if even is kernel else y
        np.testing.assert_array_equal(even(at), even(-at))
    for odd, at in ((kernel.gradient, x), (kernel.precondition, y)):
        np.testing.assert_array_equal(odd(at), -odd(-at))
        assert odd(0.0) == 0.0
    assert kernel(0.0) == kernel.conjugate(0.0) == kernel.stationarity(0.0) == 0.0


@each_kernel
def test_domain_and_strong_convexity_are_as_stated(kernel):
    y = duals(np.float64)
    u = kernel.precondition(y)
    if kernel.radius < np.inf:
        assert np.max(np.abs(u)) <= kernel.radius
        assert np.max(np.abs(u)) > 0.99 * kernel.radius
        outside = np.array([1.0, 1.5, np.inf]) * kernel.radius
        assert np.isposinf(kernel(outside)).all()
        assert np.isnan(kernel.gradient(outside)).all()
    # h is μ-strongly convex where h*'' <= 1/μ, and μ is the largest such number
    assert np.max(kernel.curvature(y)) == pytest.approx(1 / kernel.mu, rel=1e-12)
    assert kernel.rescaling(0.0) == pytest.approx(1 / kernel.mu, rel=1e-12)


@each_kernel
def test_nan_and_infinity_are_not_hidden(kernel):
    for name in PRIMAL + DUAL:
        if name not in ("curvature", "rescaling") or kernel.key != "quad":
            assert np.isnan(getattr(kernel, name)(np.array(np.nan)))


@each_kernel
@pytest.mark.parametrize("bad", [np.array([1, 2]), np.array([1j]), np.array(["a"]), "a", None, [1, 2]])
def test_arguments_that_are_not_real_floats_are_refused(kernel, bad):
    with pytest.raises(TypeError, match="real floating-point dtype"):
        kernel.precondition(bad)


# The mathematics once more, in 60 digits, for x, y > 0.
DEFINITIONS = {
    "cosh": {
        "__call__": lambda x: mp.cosh(x) - 1,
        "gradient": mp.sinh,
        "conjugate": lambda y: y * mp.asinh(y) - mp.sqrt(1 + y * y) + 1,
        "precondition": mp.asinh,
        "curvature": lambda y: 1 / mp.sqrt(1 + y * y),
    },
    "log": {
        "__call__": lambda x: -x - mp.log(1 - x),
        "gradient": lambda x: x / (1 - x),
        "conjugate": lambda y: y - mp.log(1 + y),
        "precondition": lambda y: y / (1 + y),
        "curvature": lambda y: 1 / (1 + y) ** 2,
    },
    "quad": {
        "__call__": lambda x: x * x / 2,
        "gradient": lambda x: x,
        "conjugate": lambda y: y * y / 2,
        "precondition": lambda y: y,
        "curvature": lambda y: mp.mpf(1),
    },
}


@pytest.mark.parametrize(("key", "name"), [(key, name) for key, table in DEFINITIONS.items() for name in table])
def test_float64_agrees_with_the_definition(key, name):
    kernel = kernels.registry[key]()
    x = points(kernel, name, np.float64)
    x = x[x > 0]
    with mp.workdps(700):  # 1 + 1e-308 has all its digits
        want = np.array([float(min(DEFINITIONS[key][name](mp.mpf(float(v))), mp.mpf("1e400"))) for v in x])
    assert ulps(getattr(kernel, name)(x), want, np.float64) <= 4


def test_registering_a_taken_key_is_refused():
    class Other(kernels.Cosh):
        pass

    with pytest.raises(ValueError, match="'cosh' is taken"):
        kernels.register(Other)

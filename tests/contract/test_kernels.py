"""What every registered kernel must satisfy; a new kernel is tested by being registered."""

import functools

import mpmath as mp
import numpy as np
import pytest

import npgm
from backends import AUTOGRAD, BACKENDS, duals, primals, slow_on_jax, ulps
from definitions import DEFINITIONS
from npgm import kernels

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered")  # a value beyond the largest number is infinite

EACH = [cls() for cls in kernels.registry.values()]
KERNELS = [*EACH, *map(kernels.Power, (1.5, 2.0, 3.0, 2.2)), kernels.Huber(0.1), *map(kernels.Root, (1.0, 2.5, 6.0))]
DUAL = ["conjugate", "precondition", "curvature", "stationarity", "rescaling"]
PRIMAL = ["__call__", "gradient"]

each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)
each_backend = pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.name)


def each_kernel_with(backends):
    """Parametrise by kernels and backends; with JAX, which compiles every operation, by one kernel of each class."""
    return pytest.mark.parametrize(
        ("kernel", "backend"),
        slow_on_jax(*((kernel, b) for b in backends for kernel in (EACH if b.name == "jax" else KERNELS))),
        ids=lambda value: getattr(value, "name", repr(value)),
    )


def points(kernel, name, dtype):
    return primals(kernel.radius, dtype) if name in PRIMAL else duals(dtype)


def allowed(backend, name):
    # XLA's sinh and log1p are themselves off by up to 20 units in the last place
    return 24 if backend.name == "jax" else 4


@each_kernel_with(BACKENDS)
def test_float32_has_full_accuracy_over_its_whole_range(kernel, backend):
    for name in PRIMAL + DUAL:
        x = points(kernel, name, np.float32)
        got = backend.numpy(getattr(kernel, name)(backend.array(x)))
        want = getattr(kernel, name)(x.astype(np.float64))
        assert got.dtype == np.float32
        assert ulps(got, want, np.float32) <= allowed(backend, name)


@each_kernel_with(AUTOGRAD)
def test_every_backend_agrees_with_numpy_in_float64(kernel, backend):
    for name in PRIMAL + DUAL:
        x = points(kernel, name, np.float64)
        got = backend.numpy(getattr(kernel, name)(backend.array(x)))
        assert ulps(got, getattr(kernel, name)(x), np.float64) <= allowed(backend, name)


@each_kernel_with(BACKENDS)
def test_low_precision_is_float32_rounded_once(kernel, backend):
    for name in PRIMAL + DUAL:
        for dtype in backend.low_precision:
            x = backend.array(
                np.array([-0.75, -0.01, 0.0, 0.25, 0.5], dtype=np.float32) * np.float32(min(kernel.radius, 1.0))
            )
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
    # rounding u changes h'(u) by eps u/h*''(y): where the preconditioner saturates, u has forgotten y
    known = kernel.curvature(y) > 1e-13
    rtol = 1e-9 + 1e-15 * np.abs(u[known]) / kernel.curvature(y[known])
    assert (np.abs(kernel.gradient(u[known]) - y[known]) <= rtol * np.maximum(1.0, np.abs(y[known]))).all()
    np.testing.assert_allclose(kernel.stationarity(y), kernel(u), rtol=1e-8, atol=1e-300)


@each_kernel
def test_fenchel_young_inequality(kernel):
    x, y = primals(kernel.radius, np.float64)[:, None], duals(np.float64)
    y = y[np.abs(y) <= 1e6]
    assert (kernel(x) + kernel.conjugate(y) >= x * y - 1e-12 * np.abs(x * y) - 1e-300).all()


def undeclared(kernel, name):
    """A method by its formula alone, without the derivative that the class declares for it."""
    return functools.partial(getattr(type(kernel), name).__wrapped__, kernel)


@each_kernel_with(AUTOGRAD)
def test_derivatives_agree_with_autograd(kernel, backend):
    inside = 0.95 if kernel.radius == np.inf else 0.95 * kernel.radius
    x = np.array([-inside, -0.9 * inside, -0.3 * inside, -1e-8, 0.0, 1e-20, 1e-3 * inside, 0.5 * inside, 0.8 * inside])
    y = np.array([-1e4, -2.0, -0.3, -1e-9, 0.0, 1e-20, 0.7, 1.0, 30.0])
    for value, derivative, at in [
        (kernel, kernel.gradient, x),
        (undeclared(kernel, "conjugate"), kernel.precondition, y),
        (undeclared(kernel, "precondition"), kernel.curvature, y),
    ]:
        got = backend.derivative(value, backend.array(at))
        # the derivative of y/(...) is a difference of terms of the size of the rescaling
        lost = 4e-16 * kernel.rescaling(at) if derivative == kernel.curvature else 0.0
        want = derivative(at)
        error = np.abs(got - np.where(np.isfinite(want), want, 0.0))
        assert ((error <= 1e-9 * np.abs(want) + 1e-30 + lost) | (got == want)).all()


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
def test_domain_is_as_stated(kernel):
    u = kernel.precondition(duals(np.float64))
    assert kernel.full_domain == (kernel.radius == np.inf)
    if kernel.full_domain:
        assert np.isfinite(kernel(np.array(20.0)))
        assert np.max(np.abs(u)) > 20.0
        return
    assert np.max(np.abs(u)) <= kernel.radius
    assert np.max(np.abs(u)) > 0.99 * kernel.radius
    beyond = np.array([1.0 + 1e-15, 1.5, np.inf]) * kernel.radius
    assert np.isposinf(kernel(beyond)).all()
    assert np.isnan(kernel.gradient(beyond)).all()
    # at the boundary, the limit from inside
    edge, inside = np.array(kernel.radius), np.array(kernel.radius * (1 - 1e-14))
    assert kernel(edge) == pytest.approx(float(kernel(inside)), rel=1e-6) or kernel(edge) == np.inf
    assert kernel.gradient(edge) == -kernel.gradient(-edge)
    assert kernel.gradient(edge) == pytest.approx(float(kernel.gradient(inside))) or kernel.gradient(edge) == np.inf


@each_kernel
def test_strong_convexity_is_as_stated(kernel):
    # h is μ-strongly convex where h*'' <= 1/μ, and μ is the largest such number
    y = duals(np.float64)
    steepest = np.max(kernel.curvature(y))
    if kernel.mu > 0:
        assert steepest == pytest.approx(1 / kernel.mu, rel=1e-12)
    else:
        assert steepest > 1e10
    for at_zero in (kernel.curvature(0.0), kernel.rescaling(0.0)):
        assert at_zero == pytest.approx(kernel.curvature_at_zero, rel=1e-12)


@each_kernel
def test_assumption_1_2_is_decided(kernel):
    # C² and strongly convex: h'' = 1/h*'' lies in [μ, ∞) inside the domain; h' is onto: h*' does not reach the boundary
    y = np.concatenate([[0.0], np.logspace(-12, 1, 400)])  # beyond, tanh is 1 in floating point
    u, curvature = kernel.precondition(y), kernel.curvature(y)
    continuous = np.all(np.abs(np.diff(np.log(np.maximum(curvature, 1e-300)))) < 3)
    holds = np.isfinite(curvature).all() and (curvature > 0).all() and continuous and (u < kernel.radius).all()
    assert kernel.strongly_convex_c2 == (holds and kernel.mu > 0)


@each_kernel
def test_two_subhomogeneity_is_decided(kernel):
    x = primals(kernel.radius, np.float64)
    x = x[(x > 1e-3) & (x <= 20)]
    theta = np.linspace(0.01, 1, 100)[:, None]
    holds = bool(np.all(kernel(theta * x) <= theta**2 * kernel(x) * (1 + 1e-12)))
    assert kernel.two_subhomogeneous == holds


@each_kernel
def test_noise_inequality_is_decided(kernel):
    y = np.concatenate([-np.logspace(-3, 8, 150), np.logspace(-3, 8, 150)])
    difference = kernel.precondition(y)[:, None] - kernel.precondition(y)
    holds = bool(np.all(kernel(difference) <= 0.5 * (y[:, None] - y) ** 2 * (1 + 1e-9)))
    assert kernel.noise_inequality == holds


@each_kernel
def test_noise_inequality_holds_in_the_plane(kernel):
    phi = npgm.Isotropic(kernel)
    r, angle = np.logspace(-2, 5, 43), np.linspace(0, np.pi, 31)
    y = np.stack([r, 0 * r], axis=-1)[:, None, None, :]
    z = r[:, None, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    difference = phi.precondition(y, axis=-1) - phi.precondition(z, axis=-1)
    holds = phi(difference, axis=-1) <= 0.5 * np.sum((y - z) ** 2, axis=-1) * (1 + 1e-9)
    assert bool(np.all(holds)) == kernel.noise_inequality


@each_kernel
def test_growth_of_the_rescaling_is_decided(kernel):
    rescaling = kernel.rescaling(np.logspace(-6, 6, 500))
    assert kernel.nonincreasing_rescaling == bool(np.all(np.diff(rescaling) <= 1e-12 * rescaling[1:]))
    # then the derivative of the isotropic preconditioner is largest across the gradient
    if kernel.nonincreasing_rescaling:
        y = duals(np.float64)
        assert (kernel.curvature(y) <= kernel.rescaling(y) * (1 + 1e-12)).all()


@each_kernel
@pytest.mark.filterwarnings("ignore:invalid value")
def test_the_infinite_gradient_goes_to_the_boundary_or_nan(kernel):
    u = kernel.precondition(np.array([np.inf, -np.inf]))
    assert np.isnan(u).all() or (u == [kernel.radius, -kernel.radius]).all()


@each_kernel
def test_nan_and_infinity_are_not_hidden(kernel):
    for name in PRIMAL + DUAL:
        if name not in ("curvature", "rescaling") or kernel not in (kernels.Quadratic(), kernels.Power(2.0)):
            assert np.isnan(getattr(kernel, name)(np.array(np.nan)))


@pytest.mark.parametrize("bad", [np.array([1, 2]), np.array([1j]), np.array(["a"]), "a", None, [1, 2]])
@pytest.mark.parametrize("kernel", [kernels.Cosh(), kernels.Power(3.0)], ids=repr)
def test_arguments_that_are_not_real_floats_are_refused(kernel, bad):
    with pytest.raises(TypeError, match="real floating-point dtype"):
        kernel.precondition(bad)


# Of the preconditioner, for u = h*'(y) > 0.
CURVATURES = {
    "cosh": lambda y, u: 1 / mp.sqrt(1 + y * y),
    "exp": lambda y, u: 1 / (1 + y),
    "expsq": lambda y, u: mp.exp(-u * u / 2) / (1 + u * u),
    "log": lambda y, u: 1 / (1 + y) ** 2,
    "sqrt": lambda y, u: (1 + y * y) ** mp.mpf(-1.5),
    "artanh": lambda y, u: mp.sech(y) ** 2,
    "logx2": lambda y, u: 1 / (mp.sqrt(1 + y * y) * (1 + mp.sqrt(1 + y * y))),
    "lncos": lambda y, u: 1 / (1 + y * y),
    "quad": lambda y, u: mp.mpf(1),
    "pow": lambda y, u: y ** (-mp.mpf(2) / 3) / 3,
    "huber": lambda y, u: mp.mpf(y < 1),
    "root": lambda y, u: (1 + y**4) ** mp.mpf(-1.25),
    "mix3": lambda y, u: 1 / mp.sqrt(1 + 4 * y),
    "mix4": lambda y, u: 1 / (1 + 3 * u * u),
}


def defined(key, name, x):
    h, slope, conjugate, precondition = DEFINITIONS[key]
    if name in ("__call__", "gradient"):
        return h(x) if name == "__call__" else slope(x)
    if name == "conjugate":
        return conjugate(x)
    u = precondition(x)
    if name == "stationarity":
        return x * u - conjugate(x)
    return {"precondition": u, "rescaling": u / x}.get(name) or CURVATURES[key](x, u)


def test_every_kernel_has_a_definition_in_high_precision():
    own = {key for key, cls in kernels.registry.items() if cls.__module__.startswith("npgm.")}
    assert own == set(DEFINITIONS) == set(CURVATURES)


@pytest.mark.parametrize("name", PRIMAL + DUAL)
@pytest.mark.parametrize("key", DEFINITIONS)
def test_float64_agrees_with_the_definition(key, name):
    kernel = kernels.registry[key]()
    x = points(kernel, name, np.float64)
    x = x[x > 0][::3]
    if key == "artanh" and name in DUAL:
        x = x[x < 700]  # e^-2y has no more digits to give, and mpmath's exponent no bound
    want = []
    for v in x:
        with mp.workdps(100 + int(abs(np.log10(v)))):  # what is left of terms like 1 and x², or x, has all its digits
            want.append(float(min(defined(key, name, mp.mpf(float(v))), mp.mpf("1e400"))))
    assert ulps(getattr(kernel, name)(x), np.array(want), np.float64) <= 4


@each_backend
def test_a_threshold_beyond_the_dtype_never_clips(backend):
    kernel = kernels.Huber(1e300)
    y = backend.array(np.array([-3e38, 0.0, 2.0], dtype=np.float32))
    np.testing.assert_array_equal(backend.numpy(kernel.precondition(y)), backend.numpy(y))
    np.testing.assert_array_equal(backend.numpy(kernel.gradient(y)), backend.numpy(y))
    np.testing.assert_array_equal(backend.numpy(kernel.curvature(y)), 1)
    assert backend.numpy(kernel(y))[2] == backend.numpy(kernel.conjugate(y))[2] == 2


def test_registering_a_taken_key_is_refused():
    class Other(kernels.Cosh):
        pass

    namesake = type("Cosh", (kernels.Cosh,), {"__module__": "mine"})
    for cls in (Other, namesake):
        with pytest.raises(ValueError, match=r"'cosh' is taken by npgm\.kernels\.exponential\.Cosh; give .* another"):
            kernels.register(cls)
    assert kernels.registry["cosh"] is kernels.Cosh


def test_a_class_may_be_defined_again():
    def define(value):
        return kernels.register(
            type("Mine", (kernels.Cosh,), {"key": "mine", "__module__": "__main__", "value": value})
        )

    try:
        define(1)
        again = define(2)
        assert kernels.registry["mine"] is again
    finally:
        del kernels.registry["mine"]

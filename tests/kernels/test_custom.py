"""A kernel made from h and h', or from h*' alone, against the closed forms."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import torch

import npgm
import npgm.optax
from backends import AUTOGRAD, BACKENDS, Backend, slow_on_jax
from npgm.kernels import FromDual, FromPrimal
from npgm.torch import NPGM


@dataclass(frozen=True)
class PrimalCosh(FromPrimal):
    key = "primal-cosh"
    mu = 1.0
    two_subhomogeneous = True
    noise_inequality = True
    nonincreasing_rescaling = True

    def h(self, xp, a):
        return 2 * xp.sinh(a / 2) ** 2

    def h_prime(self, xp, a):
        return xp.sinh(a)


@dataclass(frozen=True)
class PrimalLog(FromPrimal):
    key = "primal-log"
    radius = 1.0
    mu = 1.0

    def h(self, xp, a):
        return -a - xp.log1p(-a)

    def h_prime(self, xp, a):
        return a / (1 - a)


@dataclass(frozen=True)
class PrimalPower(FromPrimal):
    key = "primal-pow"
    p: float = 4.0

    def h(self, xp, a):
        return a**self.p / self.p

    def h_prime(self, xp, a):
        return a ** (self.p - 1)


@dataclass(frozen=True)
class DualCosh(FromDual):
    key = "dual-cosh"
    mu = 1.0

    def conjugate_prime(self, xp, a):
        return xp.asinh(a)


@dataclass(frozen=True)
class DualLog(FromDual):
    key = "dual-log"
    radius = 1.0
    mu = 1.0

    def conjugate_prime(self, xp, a):
        return a / (1 + a)


PAIRS = [
    (PrimalCosh(), npgm.Cosh()),
    (PrimalLog(), npgm.Log()),
    (PrimalPower(), npgm.Power(4.0)),
    (PrimalPower(2.5), npgm.Power(2.5)),
    (DualCosh(), npgm.Cosh()),
    (DualLog(), npgm.Log()),
]
each_pair = pytest.mark.parametrize(("own", "closed"), PAIRS, ids=lambda k: repr(k))


def each_pair_with(backends):
    """Parametrise by pairs and backends; with JAX, which compiles every operation, by one of each kind."""
    return pytest.mark.parametrize(
        ("own", "closed", "backend"),
        slow_on_jax(*((*pair, b) for b in backends for pair in (PAIRS[3:5] if b.name == "jax" else PAIRS))),
        ids=lambda value: value.name if isinstance(value, Backend) else repr(value),
    )


Y = np.array([-1e4, -40.0, -1.0, -1e-3, 1e-3, 0.4, 3.0, 1e3])


@each_pair_with(BACKENDS)
def test_agrees_with_the_closed_form(own, closed, backend):
    for name, rtol in [
        ("precondition", 1e-14),
        ("conjugate", 1e-8),
        ("stationarity", 1e-7),
        ("rescaling", 1e-14),
        ("curvature", 1e-8),
    ]:
        got = backend.numpy(getattr(own, name)(backend.array(Y)))
        np.testing.assert_allclose(got, getattr(closed, name)(Y), rtol=rtol, atol=1e-15, err_msg=name)
    x = np.array([-0.9, -1e-2, 0.0, 0.3, 0.99])
    for name in ("__call__", "gradient"):
        got = backend.numpy(getattr(own, name)(backend.array(x)))
        np.testing.assert_allclose(got, getattr(closed, name)(x), rtol=1e-9, atol=1e-12, err_msg=name)
    assert own.radius == closed.radius
    assert own.precondition(0.0) == own.conjugate(0.0) == own.gradient(0.0) == 0.0


@pytest.mark.parametrize("own", [PrimalCosh(), PrimalLog(), DualCosh()], ids=repr)
def test_infinity_is_mapped_to_the_end_of_the_domain(own):
    np.testing.assert_array_equal(own.precondition(np.array([np.inf, -np.inf])), [own.radius, -own.radius])


@each_pair
def test_float32_preconditioner_has_full_accuracy(own, closed):
    y = np.logspace(-20, 20, 200, dtype=np.float32)
    got = own.precondition(y)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, closed.precondition(y), rtol=1e-6)


@each_pair_with(AUTOGRAD)
def test_autograd_gives_the_curvature(own, closed, backend):
    y = np.array([-30.0, -1.0, 0.2, 5.0])
    got = backend.derivative(own.precondition, backend.array(y))
    np.testing.assert_allclose(got, closed.curvature(y), rtol=1e-8)
    got = backend.derivative(own.conjugate, backend.array(y))
    np.testing.assert_allclose(got, closed.precondition(y), rtol=1e-9)
    zero = np.zeros(4)
    if closed.curvature_at_zero < np.inf:
        got = backend.derivative(own.precondition, backend.array(zero))
        np.testing.assert_allclose(got, closed.curvature(zero), rtol=1e-6)
    x = np.array([-0.7, -1e-3, 0.2, 0.5])
    slope = backend.derivative(own.gradient, backend.array(x))
    np.testing.assert_allclose(slope, 1 / closed.curvature(closed.gradient(x)), rtol=1e-8)


@pytest.mark.slow
def test_can_be_compiled():
    y = np.array([-3.0, 0.5])
    phi = npgm.Isotropic(PrimalCosh(), scale=2.0)
    want = npgm.Isotropic(npgm.Cosh(), scale=2.0).precondition(y)
    np.testing.assert_allclose(jax.jit(phi.precondition)(y), want, rtol=1e-14)


def test_registered_under_a_name_it_works_in_the_solvers(monkeypatch):
    monkeypatch.setitem(npgm.kernels.registry, "primal-pow", PrimalPower)
    phi = npgm.reference("isotropic-primal-pow", scale=2.0, p=3.0)
    assert phi == npgm.Isotropic(PrimalPower(3.0), scale=2.0)

    def fun(x):
        return float(np.sum(np.abs(x) ** 3) / 3), np.abs(x) * x

    result = npgm.minimize(fun, np.array([3.0, -4.0]), lr=0.5, reference=phi, tol=1e-10)
    assert result.success


@pytest.mark.slow
@pytest.mark.parametrize("lift", ["isotropic", "separable"])
def test_registered_under_a_name_it_works_in_torch_and_optax(monkeypatch, lift):
    monkeypatch.setitem(npgm.kernels.registry, "primal-cosh", PrimalCosh)
    own, closed = f"{lift}-primal-cosh", f"{lift}-cosh"
    runs = []
    for name in (own, closed):
        parameter = torch.nn.Parameter(torch.tensor([3.0, -40.0]))
        optimizer = NPGM([parameter], lr=0.1, momentum=0.5, reference=name)
        transformation = npgm.optax.npgm(0.1, 0.5, name)
        x = jnp.array([3.0, -40.0], jnp.float32)
        state = transformation.init(x)
        step = jax.jit(transformation.update)
        for _ in range(5):
            optimizer.zero_grad()
            parameter.square().sum().backward()
            optimizer.step()
            updates, state = step(2 * x, state)
            x = x + updates
        runs.append((parameter.detach().numpy(), np.asarray(x)))
    np.testing.assert_allclose(runs[0], runs[1], rtol=1e-5)
    np.testing.assert_allclose(runs[0][0], runs[0][1], rtol=1e-5)


def test_a_kernel_that_is_no_dataclass_has_no_parameters(monkeypatch):
    kernel = broken(mu=1.0)
    monkeypatch.setitem(npgm.kernels.registry, "broken", kernel)
    assert npgm.reference("isotropic-broken").kernel.mu == 1.0
    with pytest.raises(TypeError, match="has no parameter 'p'; accepted: none"):
        npgm.reference("isotropic-broken", p=1.0)


def test_root_is_found_where_the_function_overflows():
    y = np.array([1e-300, 1e-12, 1e300])
    want = [scipy.optimize.brentq(lambda u, t=t: np.sinh(u) - t, 0, 700, xtol=1e-320, rtol=1e-14) for t in y]
    np.testing.assert_allclose(PrimalCosh().precondition(y), want, rtol=1e-13)
    assert np.isnan(PrimalCosh().precondition(np.array(np.nan)))


def broken(base=FromPrimal, **attributes):
    functions = {"h": lambda self, xp, a: a**2 / 2, "h_prime": lambda self, xp, a: a}
    return type("Broken", (base,), {"key": "broken", "__repr__": lambda self: "Broken()", **functions, **attributes})


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"h": lambda self, xp, a: a**2 / 2 + 1}, r"h\(0\) must be 0"),
        ({"h": lambda self, xp, a: a**2}, "h' is not the derivative of h"),
        ({"h_prime": lambda self, xp, a: -a}, "h' must increase strictly"),
        ({"h_prime": lambda self, xp, a: xp.where(a > 0, a - 1, a)}, "h' must increase strictly"),
        ({"h_prime": lambda self, xp, a: a + 1}, r"h'\(0\) must be 0, but is 1"),
        ({"h_prime": lambda self, xp, a: xp.where(a > 1, xp.nan * a, a)}, "h' is not finite"),
        (
            {"h_prime": lambda self, xp, a: a.astype(np.float64)},
            "shape and dtype of its argument, but returned float64",
        ),
        ({"h_prime": lambda self, xp, a: a[:1]}, "shape and dtype of its argument"),
        (
            {
                "h": lambda self, xp, a: a * a / (xp.hypot(a, 0 * a + 1) + 1),
                "h_prime": lambda self, xp, a: a / xp.hypot(a, 0 * a + 1),
            },
            "h' must be onto the real line, but tends to 1",
        ),
        ({"radius": 1.0}, "h' must be onto the real line, but tends to 1"),
        ({"mu": 1.5}, "mu = 1.5 is stated, but does not hold"),
        (
            {"two_subhomogeneous": True, "h": lambda self, xp, a: a**1.5 / 1.5, "h_prime": lambda self, xp, a: a**0.5},
            "two_subhomogeneous = True is stated",
        ),
        (
            {"noise_inequality": True, "h": lambda self, xp, a: a**4 / 4, "h_prime": lambda self, xp, a: a**3},
            "noise_inequality = True is stated",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_functions_that_are_no_kernel_are_refused(attributes, message):
    with pytest.raises(ValueError, match=message):
        broken(**attributes)()


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"conjugate_prime": lambda self, xp, a: xp.tanh(a)}, r"must increase strictly|must tend to radius = inf"),
        ({"conjugate_prime": lambda self, xp, a: a / (1 + a)}, "must tend to radius = inf, but tends to 1"),
        (
            {"conjugate_prime": lambda self, xp, a: a / (1 + a), "radius": 2.0},
            "must tend to radius = 2, but tends to 1",
        ),
        ({"conjugate_prime": lambda self, xp, a: a**2, "mu": 1.0}, "mu = 1.0 is stated"),
    ],
)
def test_functions_that_are_no_preconditioner_are_refused(attributes, message):
    with pytest.raises(ValueError, match=message):
        broken(FromDual, **attributes)()


def test_a_kernel_is_checked_once_for_each_parameter():
    checked = []

    @dataclass(frozen=True)
    class Counted(PrimalPower):
        def _check(self):
            checked.append(self.p)

    for p in (3.0, 3.0, 4.0, 3.0):
        Counted(p)
    assert checked == [3.0, 4.0]


def test_a_sound_kernel_needs_no_dataclass():
    assert broken(mu=1.0, noise_inequality=True)().precondition(3.0) == 3.0


class Kinked(npgm.kernels.FromPrimal):
    """h'' jumps from 1 to 2 at 1.3."""

    key, mu = "kinked", 1.0

    def h(self, xp, a):
        return xp.where(a < 1.3, a**2 / 2, a**2 - 1.3 * a + 1.3**2 / 2)

    def h_prime(self, xp, a):
        return xp.where(a < 1.3, a, 2 * a - 1.3)


class KinkedDual(npgm.kernels.FromDual):
    """The slope of the preconditioner jumps from 1 to 1/2 at 2."""

    key, mu = "kinked-dual", 1.0

    def conjugate_prime(self, xp, a):
        return xp.where(a < 2, a, 1 + a / 2)


class Smooth(npgm.kernels.FromPrimal):
    key, mu = "smooth", 1.0

    def h(self, xp, a):
        return a**2 / 2 + a**6 / 6

    def h_prime(self, xp, a):
        return a + a**5


def test_assumption_1_2_is_not_claimed_of_a_kink():
    assert not Kinked().strongly_convex_c2
    assert not KinkedDual().strongly_convex_c2
    assert Smooth().strongly_convex_c2
    # what a kernel of one's own states is checked on a grid alone, so bounds with it are numerical
    arguments = {"smoothness": 1.0, "lr": 1.0, "momentum": 0.2, "gap": 1.0, "iterations": 3}
    for kernel in (Kinked(), Smooth()):
        assert npgm.theory.bounds.theorem_2_2(npgm.Isotropic(kernel), **arguments).provenance == "numerical"
    with pytest.raises(npgm.theory.bounds.AssumptionError, match=r"Assumption 1\.2"):
        npgm.theory.bounds.proposition_e_1(npgm.Isotropic(Kinked()))

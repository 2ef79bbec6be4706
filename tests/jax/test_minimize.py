"""`npgm.jax.minimize` against `npgm.minimize`, and as JAX wants a function to be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npgm
import npgm.jax
from npgm.solvers import Status

START = np.array([10.0, -1.0, 0.5])
WEIGHTS = np.array([1.0, 3.0, 0.2])


def numpys(x):
    return np.sum(WEIGHTS * (x**4 / 4 + x**2 / 2)), WEIGHTS * (x**3 + x)


def jaxs(x):
    return jnp.sum(WEIGHTS.astype(x.dtype) * (x**4 / 4 + x**2 / 2))


SMOOTH = [key for key, method in sorted(npgm.solvers.registry.items()) if method.smooth]
CASES = [
    *((key, {"lr": 1e-2}) for key in SMOOTH if key != "auto"),
    ("npgm", {"lr": 0.2, "momentum": 0.9, "reference": "separable-log"}),
    ("npgm", {"lr": 0.2, "momentum": 0.5, "momentum_order": "before", "scale": "auto"}),
    ("npgm", {"lr": "backtracking", "momentum": 0.3, "reference": "isotropic-sqrt"}),
    ("npgm", {"lr": "auto"}),
    ("auto", {}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "options"), CASES)
def test_makes_the_steps_of_minimize(method, options):
    assert_the_same(np.float64, 1e-12, {"method": method, **options})


@pytest.mark.parametrize("method", ["npgm", pytest.param("adgd_accel", marks=pytest.mark.slow)])
def test_keeps_the_dtype_of_the_start(method):
    assert_the_same(np.float32, 1e-3, {"method": method, "lr": 1e-2})


def assert_the_same(dtype, tolerance, options):
    kwargs = {"maxiter": 40, "tol": 1e-3, **options}
    want = npgm.minimize(numpys, START.astype(dtype), **kwargs)
    got = npgm.jax.minimize(jaxs, jnp.asarray(START, dtype), **kwargs)
    assert (int(got.nit), int(got.status), bool(got.success)) == (want.nit, want.status, want.success)
    assert int(got.nfev) == got.nit + 1
    assert {field.dtype for field in (got.x, got.fun, got.jac)} == {np.dtype(dtype)}
    for field in ("x", "fun", "jac"):
        np.testing.assert_allclose(getattr(got, field), getattr(want, field), rtol=tolerance, atol=tolerance)


@pytest.mark.slow
def test_ends_where_no_progress_is_possible_as_minimize_does():
    """In float32; where f is -∞; and where the steps are too short."""
    start = jnp.linspace(-3.0, 2.0, 10, dtype=jnp.float32)
    A = jnp.asarray(np.random.default_rng(0).normal(size=(2000, 10)), jnp.float32)
    labels = jnp.where(A @ start > 0, 1.0, -1.0) * jnp.where(jnp.arange(2000) % 7 == 0, -1.0, 1.0)
    got = npgm.jax.minimize(lambda x: jnp.sum(jnp.logaddexp(0.0, -labels * (A @ x))), jnp.zeros(10, np.float32))
    assert (int(got.status), bool(got.success)) == (Status.ROUNDING, True)
    assert got.nit < 1000
    got = npgm.jax.minimize(lambda x: jnp.sum(jnp.log(x)), jnp.ones(1), method="gd", lr=1.0)
    assert (int(got.status), bool(got.success), float(got.fun)) == (Status.UNBOUNDED, False, -np.inf)
    got = npgm.jax.minimize(jaxs, jnp.asarray(START), method="gd", lr=1e-20)
    assert (int(got.status), bool(got.success), int(got.nit)) == (Status.STUCK, False, 50)


@pytest.mark.slow
def test_evaluates_at_most_maxfun_times():
    """Also where the last one would be beside the point: after 50 iterations without progress, 51 evaluations."""
    for maxfun in (1, 50, 51):
        got = npgm.jax.minimize(lambda x: jnp.exp(-x[0]), jnp.ones(1), method="gd", lr=1e-15, tol=1e-9, maxfun=maxfun)
        assert (int(got.nfev), int(got.status), bool(got.success)) == (maxfun, Status.MAXFUN, False)


@pytest.mark.slow
def test_a_single_argument_needs_no_tuple():
    at = jnp.asarray([1.0, -2.0])
    res = npgm.jax.minimize(lambda x, at: jnp.sum((x - at) ** 2), jnp.zeros(2), at, method="gd", lr=0.5)
    np.testing.assert_allclose(res.x, at, rtol=1e-12)


def test_under_vmap_each_run_is_its_own():
    starts = jnp.stack([START, 10 * START, 1e-9 * START])
    strengths = jnp.array([1.0, 2.0, 3.0])

    def fun(x, a):
        return a * jaxs(x)

    def solve(start, strength):
        return npgm.jax.minimize(fun, start, args=(strength,), lr=0.1, momentum=0.5, tol=1e-6)

    batch = jax.jit(jax.vmap(solve))(starts, strengths)
    assert batch.nit[2] == 0
    for i, (start, strength) in enumerate(zip(starts, strengths, strict=True)):
        alone = solve(start, strength)
        assert batch.nit[i] == alone.nit
        np.testing.assert_allclose(batch.x[i], alone.x, rtol=1e-12, atol=1e-15)
    assert batch.success.all()


@pytest.mark.slow
def test_a_tree_is_one_vector():
    def of_tree(tree):
        return jaxs(jnp.concatenate([tree["a"].ravel(), tree["b"][None]]))

    start = {"a": jnp.asarray(START[:2]).reshape(1, 2), "b": jnp.asarray(START[2])}
    tree, vector = (npgm.jax.minimize(f, x, lr=0.1) for f, x in [(of_tree, start), (jaxs, jnp.asarray(START))])
    assert tree.x["a"].shape == tree.jac["a"].shape == (1, 2)
    np.testing.assert_allclose(np.append(tree.x["a"], tree.x["b"]), vector.x, rtol=1e-12)
    assert tree.nit == vector.nit


def test_a_spectral_reference_function_sees_a_matrix():
    target = np.random.default_rng(0).standard_normal((3, 2))
    kwargs = {"lr": 0.3, "reference": npgm.Spectral(npgm.Sqrt(), scale=0.1), "maxiter": 30, "tol": 0.0}
    want = npgm.minimize(lambda X: (0.5 * np.sum((X - target) ** 2), X - target), np.zeros((3, 2)), **kwargs)
    got = npgm.jax.minimize(lambda X: 0.5 * jnp.sum((X - target) ** 2), jnp.zeros((3, 2)), **kwargs)
    np.testing.assert_allclose(got.x, want.x, rtol=1e-12, atol=1e-12)


def test_a_run_ends_at_the_last_finite_point():
    with np.errstate(over="ignore"):
        want = npgm.minimize(lambda x: (np.sum(x**4), 4 * x**3), START, method="gd", lr=1.0)
    got = npgm.jax.minimize(lambda x: jnp.sum(x**4), jnp.asarray(START), method="gd", lr=1.0)
    assert got.status == want.status == Status.DIVERGED
    assert got.nit == want.nit
    np.testing.assert_allclose(got.x, want.x, rtol=1e-12)
    at_start = npgm.jax.minimize(lambda x: jnp.sum(jnp.log(x)), jnp.array([-1.0]), lr=1.0)
    assert (int(at_start.status), int(at_start.nit)) == (Status.DIVERGED, 0)
    assert not at_start.success


@pytest.mark.slow
def test_a_start_that_is_a_minimum_is_left_alone():
    for method in ("npgm", "adgd"):  # of which the second has no state until its first step
        res = npgm.jax.minimize(jaxs, jnp.zeros(3), method=method, lr=0.1)
        assert (int(res.nit), bool(res.success)) == (0, True)


@pytest.mark.slow
def test_compiles_once_and_differentiates_forward():
    traces = []

    def fun(x, target):
        traces.append(1)
        return jnp.sum((x - target) ** 2)

    def solution(target):
        return npgm.jax.minimize(fun, jnp.zeros(2), args=(target,), lr=0.25, tol=1e-9).x

    solution(jnp.ones(2))
    before = len(traces)
    solution(2 * jnp.ones(2))
    npgm.jax.minimize(fun, jnp.ones(2), args=(jnp.ones(2),), lr=0.25, tol=1e-3, maxiter=7)
    assert len(traces) == before
    np.testing.assert_allclose(jax.jacfwd(solution)(jnp.ones(2)), np.eye(2), atol=1e-6)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"x0": jnp.array([1, 2])}, TypeError, "x0 has dtype int.*; a real floating-point dtype is needed"),
        ({"x0": {}}, ValueError, "x0 has no entries"),
        ({"x0": None}, ValueError, "x0 has no entries"),
        ({"lr": -1.0}, ValueError, "lr must be"),
        ({"lr": "fast"}, ValueError, "unknown lr 'fast'"),
        ({"method": "bfgs"}, ValueError, "unknown method 'bfgs'"),
        ({"maxiter": -1}, ValueError, "maxiter must be"),
        ({"tol": np.nan}, ValueError, "tol must be"),
        ({"maxfun": 0}, ValueError, "maxfun must be"),
        ({"stepsize": 1.0}, TypeError, "method 'npgm' has no option 'stepsize'"),
        ({"fun": lambda x: x}, TypeError, "scalar-output"),
    ],
)
def test_what_is_not_accepted_is_named(changed, error, message):
    given = {"fun": jaxs, "x0": jnp.asarray(START), "lr": 0.1} | changed
    with pytest.raises(error, match=message):
        npgm.jax.minimize(**given)


def test_refuses_a_scale_of_each_runs_own_with_proximal_steps():
    with pytest.raises(ValueError, match="no scale='auto' with prox"):
        npgm.jax.minimize(jaxs, jnp.asarray(START), prox=npgm.proximal.L1(1.0), lr="auto")


def shifted(x, a=0.0):
    return jaxs(x) - jnp.sum(jnp.array([40.0, 3.0, -0.3]) * x) + a * jnp.sum(x)


def numpys_shifted(x, a=0.0):
    f, g = numpys(x)
    slope = a - np.array([40.0, 3.0, -0.3])
    return f + slope @ x, g + slope


@pytest.mark.parametrize(
    "options",
    [
        {"prox": npgm.proximal.L1(1.0)},
        {"bounds": [(None, 1.5), (0.25, None), (None, None)]},
        pytest.param({"prox": npgm.proximal.Simplex(2.0)}, marks=pytest.mark.slow),
        pytest.param(
            {"prox": npgm.proximal.L1(0.5), "lr": 0.02, "reference": "separable-quad"}, marks=pytest.mark.slow
        ),
    ],
    ids=lambda options: type(options.get("prox")).__name__,
)
def test_a_function_beside_f_has_the_steps_of_minimize(options):
    start = np.array([1.0, 0.5, 0.5])
    want = npgm.minimize(numpys_shifted, start, **options)
    got = npgm.jax.minimize(shifted, jnp.asarray(start), **options)
    assert (int(got.nit), int(got.status), bool(got.success)) == (want.nit, want.status, True)
    for field in ("x", "fun", "jac"):
        np.testing.assert_allclose(getattr(got, field), getattr(want, field), rtol=1e-9, atol=1e-9)


def test_bounded_runs_under_vmap_are_those_of_one():
    bounds = [(None, 1.5), (0.25, None), (None, None)]
    start, strengths = np.array([9.0, -4.0, 0.5]), np.linspace(-3.0, 3.0, 4)
    many = jax.jit(
        jax.vmap(lambda a: npgm.jax.minimize(shifted, jnp.asarray(start), args=(a,), bounds=bounds, tol=1e-8))
    )(jnp.asarray(strengths))
    for i, a in enumerate(strengths):
        alone = npgm.minimize(numpys_shifted, start, args=(a,), bounds=bounds, tol=1e-8)
        assert int(many.nit[i]) == alone.nit
        np.testing.assert_allclose(many.x[i], alone.x, rtol=1e-9)


def test_a_start_outside_of_g_is_reported():
    run = npgm.jax.minimize(jaxs, jnp.asarray(START), prox=npgm.proximal.Box(-1.0, 1.0))
    assert (int(run.status), int(run.nit)) == (Status.DIVERGED, 0)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["adgd", "adgd_accel", "auto", "clipped_gd", "npgm"])  # the others guard nothing
def test_forward_derivatives_are_those_of_differences(method):
    options = {"lr": 0.1} if npgm.solvers.registry[method].options()["lr"] is ... else {}
    options |= {"max_step": 1.0} if method == "clipped_gd" else {}

    def x(a):
        fun = lambda x, a: jnp.sum(a * x**2 / 2 + x**4 / 40) + a * jnp.sum(x)  # noqa: E731
        return npgm.jax.minimize(fun, jnp.array([3.0, -1.0]), (a,), method=method, maxiter=12, tol=0.0, **options).x

    at = jax.jit(lambda a: jax.jvp(x, (a,), (1.0,)))  # one program, since compiling takes the time
    below, (_, derivative), above = (at(1.3 + step) for step in (-1e-6, 0.0, 1e-6))
    np.testing.assert_allclose(derivative, (above[0] - below[0]) / 2e-6, rtol=1e-3, atol=1e-6)


def test_the_stepsize_may_be_traced():
    fun = lambda x: jnp.sum(x**4 / 4 + x**2 / 2)  # noqa: E731
    start = jnp.array([3.0, -1.0])

    def solve(lr):
        return npgm.jax.minimize(fun, start, lr=lr, momentum=0.5, maxiter=20, tol=0.0)

    lrs = jnp.array([0.1, 0.2, 0.4])
    many = jax.vmap(solve)(lrs)
    for lr, x in zip(lrs, many.x, strict=True):
        np.testing.assert_allclose(x, solve(float(lr)).x, rtol=1e-12)
    difference = (solve(0.2 + 1e-6).x - solve(0.2 - 1e-6).x) / 2e-6
    np.testing.assert_allclose(jax.jacfwd(lambda lr: solve(lr).x)(jnp.asarray(0.2)), difference, rtol=1e-5, atol=1e-9)
    with pytest.raises(ValueError, match="lr must be positive"):
        solve(jnp.asarray(-0.1))
    with pytest.raises(ValueError, match="lr must be a number, not an array of shape"):
        solve(lrs)

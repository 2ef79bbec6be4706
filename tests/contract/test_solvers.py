"""What every registered solver must satisfy; a new solver is tested by being registered."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import torch

import npgm
from backends import JAX, NUMPY, TORCH, slow_on_jax
from npgm.solvers import Status

SOLVERS = sorted(npgm.solvers.registry)
each_solver = pytest.mark.parametrize("key", SOLVERS)
each_path = pytest.mark.usefixtures("solver_path")

CURVATURES = np.array([1.0, 0.1, 0.5])
START = np.array([3.0, -2.0, 1.0])


def options(key, lr=0.5):
    """Return options that suit a function of curvature 1: those without a default, with a g of zero."""
    suited = {"lr": lr, "prox": npgm.proximal.Box(-np.inf, np.inf)}
    return {name: suited[name] for name, default in npgm.solvers.registry[key].options().items() if default is ...}


def quadratic(x):
    """A convex quadratic over the last axis, for any backend and any number of runs."""
    c = CURVATURES
    if isinstance(x, torch.Tensor):
        c = torch.from_numpy(c).to(x.dtype)
    elif not isinstance(x, np.ndarray):
        c = jnp.asarray(c, dtype=x.dtype)
    return 0.5 * (c * x * x).sum(-1), c * x


@each_solver
@each_path
def test_converges_to_the_minimum(key):
    res = npgm.minimize(quadratic, START, method=key, tol=1e-6, maxiter=5000, **options(key))
    assert res.success
    assert res.status == Status.CONVERGED
    assert np.linalg.norm(res.jac) <= 1e-6
    np.testing.assert_allclose(res.x, 0.0, atol=1e-5)
    np.testing.assert_array_equal(res.jac, quadratic(res.x)[1])
    assert res.fun == quadratic(res.x)[0]
    assert res.nfev == res.njev == res.nit + 1
    assert "1e-06" in res.message


@pytest.mark.parametrize(
    ("key", "backend", "dtype"),
    slow_on_jax(
        *((key, *case) for key in SOLVERS for case in ((NUMPY, np.float32), (TORCH, np.float32), (TORCH, np.float64))),
        # the others compiled, in tests/jax
        *((key, JAX, np.float32) for key in ("npgm", "auto", "proximal", "proximal_lbfgs")),
    ),
)
def test_every_backend_makes_the_same_steps(key, backend, dtype):
    kwargs = {"method": key, "maxiter": 20, "tol": 0.0, "history": True, **options(key)}
    if "adgd" in key:
        kwargs["lr"] = 1e-2  # as no dtype has to change it
    want = npgm.minimize(quadratic, START, **kwargs)
    got = npgm.minimize(quadratic, backend.array(START.astype(dtype)), **kwargs)
    assert type(got.x) is type(backend.array(START))
    assert backend.numpy(got.x).dtype == dtype
    # the adaptive stepsizes divide differences of gradients, which carry few digits in float32
    tolerance = 1e-9 if dtype is np.float64 else 2e-2 if "adgd" in key else 1e-4
    np.testing.assert_allclose(backend.numpy(got.x), want.x, rtol=tolerance, atol=tolerance)
    # as do changes of the curvature along a step
    tolerance = 1e-3 if dtype is np.float32 and key in ("auto", "proximal_lbfgs") else 1e-4
    np.testing.assert_allclose(got.history["grad_norm"][:5], want.history["grad_norm"][:5], rtol=tolerance)


@each_solver
@each_path
def test_a_batch_is_its_runs(key):
    """Up to the last bits of BLAS, which with some kernels depend on where a row lies in memory."""
    starts = np.stack([START, 10 * START, np.array([1e-9, 0.0, 0.0])])
    kwargs = {"method": key, "maxiter": 60, "tol": 1e-4, "history": True, **options(key)}
    batch = npgm.minimize(quadratic, starts, batch=True, **kwargs)
    for i, start in enumerate(starts):
        one = npgm.minimize(quadratic, start, **kwargs)
        np.testing.assert_allclose(batch.x[i], one.x, rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(batch.fun[i], one.fun, rtol=1e-9, atol=1e-30)
        assert (batch.nit[i], batch.status[i], batch.success[i]) == (one.nit, one.status, one.success)
        assert batch.message[i] == one.message
        np.testing.assert_allclose(batch.history["fun"][: one.nit + 1, i], one.history["fun"], rtol=1e-9, atol=1e-30)
    assert batch.nit[2] == (0 if npgm.solvers.registry[key].smooth else 1)


@each_solver
@each_path
def test_is_a_method_of_scipy(key):
    method = getattr(npgm.solvers, key)
    res = scipy.optimize.minimize(
        quadratic, START, jac=True, method=method, tol=1e-5, options=options(key) | {"maxiter": 3000}
    )
    own = npgm.minimize(quadratic, START, method=key, tol=1e-5, maxiter=3000, **options(key))
    np.testing.assert_array_equal(res.x, own.x)
    assert (res.nit, res.success) == (own.nit, True)
    separate = scipy.optimize.minimize(
        lambda x, a: a * quadratic(x)[0], list(START), args=(1.0,), jac=lambda x, a: a * quadratic(x)[1], method=method,
        tol=1e-5, options=options(key) | {"maxiter": 3000},
    )  # fmt: skip
    np.testing.assert_array_equal(separate.x, own.x)


@each_solver
@each_path
def test_divergence_is_reported_without_warnings(key):
    def exploding(x):
        with np.errstate(over="ignore"):
            return np.sum(x**4), 4 * x**3

    kwargs = {"method": key, "maxiter": 200, **options(key, lr=1e6)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        res = npgm.minimize(exploding, 1e3 * START, **kwargs)
    if key in ("adgd", "adgd_accel", "auto", "npgm", "clipped_gd", "proximal", "proximal_lbfgs"):
        assert np.isfinite(res.fun)  # their steps are bounded or adapted, so they do not diverge here
        return
    assert not res.success
    assert res.status == Status.DIVERGED
    assert f"Diverged at iteration {res.nit}" in res.message
    assert np.isfinite(res.x).all()
    assert np.isfinite(res.jac).all()
    smaller = float(res.message.split("lr=")[1].rstrip("."))
    again = npgm.minimize(exploding, 1e3 * START, **{**kwargs, "lr": smaller})
    assert again.status != Status.DIVERGED


@each_solver
@each_path
def test_stops_at_once_where_the_gradient_is_zero(key):
    res = npgm.minimize(quadratic, np.zeros(3), method=key, tol=0.0, **options(key))
    assert res.success
    assert res.nit == (0 if npgm.solvers.registry[key].smooth else 1)  # of f + g no subgradient is known before a step


@each_solver
@each_path
def test_options_out_of_range_are_refused(key):
    for name, bad in (("lr", -1.0), ("lr", 0.0), ("lr", np.nan), ("momentum", 1.0), ("momentum", -0.1), ("nu", 1.5)):
        if name in npgm.solvers.registry[key].options():
            with pytest.raises(ValueError, match=f"{name} must .* not {bad}"):
                npgm.minimize(quadratic, START, method=key, **{**options(key), name: bad})
    with pytest.raises(TypeError, match="has no option 'typo'; accepted: "):
        npgm.minimize(quadratic, START, method=key, typo=1, **options(key))

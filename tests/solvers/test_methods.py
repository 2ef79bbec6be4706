"""Each solver against an independent loop that spells out its formula."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch

import npgm
from npgm.problems import MatrixFactorization

pytestmark = pytest.mark.usefixtures("solver_path")

START = np.array([2.0, -1.0, 0.5, 3.0])


def fun(x):
    return np.sum(x**4 / 4 + np.cos(x)), x**3 - np.sin(x)


def grad(x):
    return fun(x)[1]


def run(method, steps, **options):
    return npgm.minimize(fun, START, method=method, maxiter=steps, tol=0.0, **options).x


@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-log"])
def test_npgm_is_algorithm_1(name, momentum):
    phi = npgm.reference(name, scale=2.0)
    x, m = START.copy(), np.zeros(4)
    trajectory = [x]
    for _ in range(50):
        m = momentum * m + (1 - momentum) * phi.precondition(grad(x))
        x = x - 0.3 * m
        trajectory.append(x)
    np.testing.assert_allclose(run("npgm", 50, reference=phi, lr=0.3, momentum=momentum), x, rtol=1e-12)
    # the form of the remark: a step without momentum, and (x - x') times β, from x' = x0
    x, before = START.copy(), START.copy()
    for k in range(50):
        step = (1 - momentum) * 0.3 * phi.precondition(grad(x)) - momentum * (x - before)
        x, before = x - step, x
        np.testing.assert_allclose(x, trajectory[k + 1], rtol=1e-10)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-log"])
def test_momentum_before_the_preconditioner(name, momentum):
    phi = npgm.reference(name, scale=2.0)
    x, m = START.copy(), np.zeros(4)
    for _ in range(50):
        m = momentum * m + (1 - momentum) * grad(x)
        x = x - 0.3 * phi.precondition(m)
    options = {"reference": phi, "lr": 0.3, "momentum": momentum}
    np.testing.assert_allclose(run("npgm", 50, momentum_order="before", **options), x, rtol=1e-12)
    assert np.allclose(run("npgm", 50, **options), x, rtol=1e-3, atol=0) == (momentum == 0.0)
    with pytest.raises(ValueError, match="unknown momentum_order 'first'; accepted: after, before"):
        run("npgm", 1, momentum_order="first", **options)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_npgm_with_the_quadratic_is_gd_and_heavy_ball(momentum):
    phi = npgm.Isotropic(npgm.Quadratic())
    got = run("npgm", 60, reference=phi, lr=0.02, momentum=momentum)
    np.testing.assert_allclose(got, run("gdm", 60, lr=0.02, momentum=momentum), rtol=1e-12)
    if momentum == 0.0:
        np.testing.assert_allclose(got, run("gd", 60, lr=0.02), rtol=1e-12)
    parameter = torch.tensor(START, requires_grad=True)
    # a first step with a zero gradient makes SGD's momentum start from zero as well
    optimizer = torch.optim.SGD([parameter], lr=0.02, momentum=momentum, dampening=momentum)
    parameter.grad = torch.zeros(4, dtype=torch.float64)
    optimizer.step()
    for _ in range(60):
        parameter.grad = torch.from_numpy(grad(parameter.detach().numpy()))
        optimizer.step()
    np.testing.assert_allclose(got, parameter.detach().numpy(), rtol=1e-12)


def test_nesterov_is_the_textbook_recursion():
    x = y = START
    t = 1.0
    for _ in range(40):
        y_next, t_next = x - 0.02 * grad(x), (1 + np.sqrt(1 + 4 * t * t)) / 2
        x = y_next + (t - 1) / t_next * (y_next - y)
        y, t = y_next, t_next
    np.testing.assert_allclose(run("nesterov", 40, lr=0.02), x, rtol=1e-12)


@pytest.mark.slow
def test_nesterov_restarts_where_a_step_goes_uphill():
    curvatures = np.geomspace(1.0, 1e3, 30)

    def quadratic(x):
        return 0.5 * np.sum(curvatures * x**2, axis=-1), curvatures * x

    options = {"lr": 1e-3, "tol": 1e-4, "maxiter": 20_000}
    start = np.stack([np.ones(30), np.linspace(1.0, 2.0, 30)])
    plain, restarted = (
        npgm.minimize(quadratic, start, method="nesterov", batch=True, restart=restart, **options)
        for restart in (False, True)
    )
    assert restarted.success.all()
    assert (3 * restarted.nit < plain.nit).all()
    for row, nit in zip(start, restarted.nit, strict=True):
        y, t, x, steps = row, 1.0, row, 0
        while np.linalg.norm(curvatures * x) > 1e-4:
            following = x - 1e-3 * curvatures * x
            if np.dot(curvatures * x, following - y) > 0.0:
                t = 1.0
            after = (1 + np.sqrt(1 + 4 * t**2)) / 2
            x, y, t, steps = following + (t - 1) / after * (following - y), following, after, steps + 1
        assert steps == nit
    with pytest.raises(TypeError, match="restart must be True or False, not 1"):
        npgm.minimize(quadratic, start, method="nesterov", lr=0.1, restart=1)


def test_adgd_is_malitsky_and_mishchenko_algorithm_1():
    before, lam, theta = START, 1e-6, np.inf
    x = before - lam * grad(before)
    for _ in range(39):
        bound = np.linalg.norm(x - before) / (2 * np.linalg.norm(grad(x) - grad(before)))
        new = min(np.sqrt(1 + theta) * lam, bound)
        before, x, theta, lam = x, x - new * grad(x), new / lam, new
    np.testing.assert_allclose(run("adgd", 40, lr=1e-6), x, rtol=1e-12)


def test_adgd_accel_is_the_heuristic_of_malitsky_and_mishchenko():
    x0 = START
    lam, Lam, theta, Theta = 1e-6, 1.0, np.inf, np.inf
    x = y = x0 - lam * grad(x0)
    before = x0
    for _ in range(39):
        dx, dg = np.linalg.norm(x - before), np.linalg.norm(grad(x) - grad(before))
        new = min(np.sqrt(1 + theta / 2) * lam, dx / (2 * dg))
        New = min(np.sqrt(1 + Theta / 2) * Lam, dg / (2 * dx))
        beta = (np.sqrt(1 / new) - np.sqrt(New)) / (np.sqrt(1 / new) + np.sqrt(New))
        y_next = x - new * grad(x)
        before, x = x, y_next + beta * (y_next - y)
        y, theta, Theta, lam, Lam = y_next, new / lam, New / Lam, new, New
    np.testing.assert_allclose(run("adgd_accel", 40, lr=1e-6), x, rtol=1e-12)


@pytest.mark.parametrize(("nu", "momentum"), [(0.0, 0.0), (1.0, 0.9), (0.7, 0.5)])
def test_clipped_gd_is_zhang_et_al_algorithm_1(nu, momentum):
    x, m = START, np.zeros(4)
    for _ in range(60):
        g = grad(x)
        m = momentum * m + (1 - momentum) * g
        clip = [min(0.1, 0.2 / np.linalg.norm(v)) * v for v in (m, g)]
        x = x - nu * clip[0] - (1 - nu) * clip[1]
    np.testing.assert_allclose(run("clipped_gd", 60, lr=0.1, max_step=0.2, momentum=momentum, nu=nu), x, rtol=1e-12)


def test_adaptive_methods_survive_a_region_without_curvature():
    def linear_then_flat(x):
        return float(np.sum(np.maximum(x, 0.0))), (x > 0).astype(float)

    for method in ("adgd", "adgd_accel"):
        res = npgm.minimize(linear_then_flat, np.array([1.0]), method=method, maxiter=500)
        assert np.isfinite(res.x).all()
        assert res.success


def test_stability_limits_are_sharp():
    """Just below its limit a method converges on a quadratic of that curvature, just above it diverges."""
    phi = npgm.Isotropic(npgm.Quadratic(), scale=3.0)
    for method, options in (
        ("gd", {"lr": 0.5}),
        ("gdm", {"lr": 0.5, "momentum": 0.8}),
        ("npgm", {"lr": 0.5, "momentum": 0.8, "reference": phi}),
    ):
        limit = npgm.solvers.registry[method](**options).sharpness_limit
        for curvature, grows in ((0.99 * limit, False), (1.01 * limit, True)):

            def parabola(x, c=curvature):
                return 0.5 * c * float(x @ x), c * x

            res = npgm.minimize(parabola, np.ones(1), method=method, tol=0.0, maxiter=2000, **options)
            assert (abs(res.x[0]) > 1) == grows
    assert npgm.solvers.registry["adgd"]().sharpness_limit is None


@pytest.mark.slow
def test_ihgdm_reaches_the_optimum_of_a_factorisation():
    A = scipy.sparse.random_array((30, 20), density=0.3, rng=np.random.default_rng(0))
    problem = MatrixFactorization(A, rank=3)
    res = npgm.minimize(problem, problem.start(0), lr=0.3, momentum=0.9, reference=npgm.reference("isotropic-cosh", scale=5.0),
                        maxiter=4000, tol=1e-6)  # fmt: skip
    assert res.success
    assert res.fun == pytest.approx(problem.optimum, rel=1e-10)

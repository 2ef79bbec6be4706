"""The proximal method against other ways to the same minimisers, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import optimize

import npgm
from npgm import proximal
from npgm.theory import certify

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((40, 12)), RNG.standard_normal(40)
LABELS = np.where(A @ RNG.standard_normal(12) + B > 0, 1.0, -1.0)
TRUTH = RNG.standard_normal((12, 2)) @ RNG.standard_normal((2, 9))
SEEN = RNG.random((12, 9)) < 0.7


def logistic(x):
    margins = LABELS * (A @ x)
    return np.sum(np.logaddexp(0.0, -margins)), -A.T @ (LABELS / (1.0 + np.exp(margins)))


def squares(x):
    residual = A @ x - B
    return 0.5 * residual @ residual, A.T @ residual


def completion(x):
    residual = np.where(SEEN, x - TRUTH, 0.0)
    return 0.5 * np.sum(residual**2), residual


def several(x):
    residual = A @ x - np.outer(B, [1.0, 2.0, -1.0])
    return 0.5 * np.sum(residual**2), A.T @ residual


def least_with_l1(fun, weight):
    """min f + τ‖x‖₁ by SciPy, of the positive and the negative parts."""

    def split(z):
        f, g = fun(z[:12] - z[12:])
        return f + weight * z.sum(), np.concatenate([g, -g]) + weight

    return optimize.minimize(
        split, np.zeros(24), jac=True, bounds=[(0, None)] * 24, method="L-BFGS-B",
        options={"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-15, "gtol": 1e-10},
    ).fun  # fmt: skip


def is_minimum(fun, g, run):
    """Check that the residual is a subgradient at a point whose value is the one returned."""
    assert run.success, run.message
    assert np.linalg.norm(run.jac) <= 1e-6
    assert run.fun == pytest.approx(fun(run.x)[0] + float(g(run.x)), rel=1e-12)
    rng = np.random.default_rng(1)
    for size in (1e-3, 0.1, 1.0):
        w = run.x + size * rng.standard_normal(run.x.shape)
        assert fun(w)[0] + float(g(w)) >= run.fun + np.sum(run.jac * (w - run.x)) - 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("fun", [logistic, squares])
def test_the_default_ends_at_the_minimum_of_l1_problems(fun, scale):
    g = proximal.L1(6.0 * scale)
    run = npgm.minimize(lambda x: tuple(scale * v for v in fun(x)), np.zeros(12), prox=g, tol=1e-6 * scale)
    assert run.success, run.message
    assert run.fun == pytest.approx(scale * least_with_l1(fun, 6.0), rel=1e-9)
    assert (run.x == 0.0).any()


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["separable-cosh", "separable-log", "isotropic-quad"])
@pytest.mark.parametrize("lr", ["auto", "backtracking"])
def test_every_reference_and_rule_ends_at_the_minimum(reference, lr):
    g = proximal.L1(0.5)
    run = npgm.minimize(logistic, 0.1 * np.ones(12), prox=g, reference=reference, scale="auto", lr=lr)
    is_minimum(logistic, g, run)
    assert run.fun == pytest.approx(least_with_l1(logistic, 0.5), rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_a_number_and_momentum(momentum):
    g, L = proximal.L1(0.5), np.linalg.norm(A, 2) ** 2
    run = npgm.minimize(squares, np.zeros(12), prox=g, reference="separable-quad", lr=1.0 / L, momentum=momentum)
    is_minimum(squares, g, run)
    np.testing.assert_allclose(run.x, npgm.minimize(squares, np.zeros(12), prox=g).x, atol=1e-6)


def test_the_euclidean_steps_are_those_of_pyproximal():
    import pylops  # a second of imports, for this test alone
    import pyproximal

    L, start = float(np.linalg.norm(A, 2) ** 2), np.ones(12)
    run = npgm.minimize(
        squares, start, prox=proximal.L1(3.0), reference="separable-quad", lr=1.0 / L, maxiter=30, tol=0.0
    )
    want = pyproximal.optimization.primal.ProximalGradient(
        pyproximal.L2(Op=pylops.MatrixMult(A), b=B), pyproximal.L1(sigma=3.0), x0=start.copy(), tau=1.0 / L, niter=30
    )
    np.testing.assert_allclose(run.x, want, rtol=1e-6, atol=1e-9)


def test_without_momentum_every_step_of_backtracking_decreases():
    run = npgm.minimize(logistic, np.ones(12), prox=proximal.L1(0.5), lr="backtracking", history=True)
    assert (np.diff(run.history["fun"]) <= 1e-12 * run.history["fun"][:-1]).all()
    assert run.history["grad_norm"][0] == math.inf
    assert run.history["fun"][-1] == run.fun
    assert run.best.fun == pytest.approx(run.fun, rel=1e-12)


@pytest.mark.parametrize("start", [0.0, 30.0])
def test_a_rule_takes_no_step_above_the_last_ten_values(start):
    history = npgm.minimize(logistic, np.full(12, start), prox=proximal.L1(0.5), lr="auto", history=True).history
    values = history["fun"][np.concatenate([[True], history["taken"][:-1]])]
    for k in range(1, values.size):
        assert values[k] <= values[max(k - 10, 0) : k].max() * (1.0 + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("radius", [0.02, 0.1, 10.0])
def test_a_box_gives_what_scipy_gives(radius):
    g = proximal.Box(-radius, radius)
    want = optimize.lsq_linear(A, B, (-radius, radius), tol=1e-14)
    run = npgm.minimize(squares, np.zeros(12), prox=g)
    assert run.success
    np.testing.assert_allclose(run.x, want.x, atol=1e-6)
    options = {"ftol": 1e-15, "gtol": 1e-10}
    want = optimize.minimize(logistic, np.zeros(12), jac=True, bounds=[(-radius, radius)] * 12, options=options)
    run = npgm.minimize(logistic, np.zeros(12), prox=g)
    assert run.fun == pytest.approx(want.fun, rel=1e-9)


@pytest.mark.parametrize(
    "g",
    [
        proximal.L1([0.0, *[6.0] * 11]),
        proximal.Simplex(2.0),
        pytest.param(proximal.GroupL2([3.0, 9.0, 2.0], groups=[[0, 1, 2, 3, 4], [5, 6], [8]]), marks=pytest.mark.slow),
        pytest.param(proximal.L1Ball(0.5), marks=pytest.mark.slow),
        pytest.param(proximal.SortedL1(np.linspace(8.0, 2.0, 12)), marks=pytest.mark.slow),
        pytest.param(proximal.TotalVariation(4.0, l1=2.0), marks=pytest.mark.slow),
    ],
    ids=lambda g: type(g).__name__,
)
def test_the_default_ends_at_the_minimum(g):
    is_minimum(squares, g, npgm.minimize(squares, g.prox(np.zeros(12), 1.0), prox=g))


@pytest.mark.slow
def test_the_elastic_net_is_that_of_scikit_learn():
    from sklearn.linear_model import ElasticNet

    alpha, share = 0.2, 0.7
    run = npgm.minimize(
        lambda x: tuple(v / B.size for v in squares(x)),
        np.zeros(12),
        prox=proximal.ElasticNet(alpha * share, alpha * (1.0 - share)),
        tol=1e-9,
    )
    want = ElasticNet(alpha=alpha, l1_ratio=share, fit_intercept=False, tol=1e-12, max_iter=10**5).fit(A, B)
    np.testing.assert_allclose(run.x, want.coef_, atol=1e-8)
    assert (run.x == 0.0).any()


BOUNDS = [(0.0, None), (None, 0.1), (-0.1, 0.1), *[(-np.inf, np.inf)] * 9]


@pytest.mark.parametrize(
    ("bounds", "jac"),
    [
        pytest.param(BOUNDS, True, marks=pytest.mark.slow),
        (np.array([[-np.inf if a is None else a, np.inf if b is None else b] for a, b in BOUNDS]), True),
        (optimize.Bounds([0.0, -np.inf, -0.1, *[-np.inf] * 9], [np.inf, 0.1, 0.1, *[np.inf] * 9]), "2-point"),
    ],
)
def test_bounds_are_those_of_scipy(bounds, jac):
    def feasible(x):
        assert x[0] >= 0.0
        assert x[1] <= 0.1
        assert abs(x[2]) <= 0.1
        return squares(x) if jac is True else squares(x)[0]

    want = optimize.minimize(squares, np.zeros(12), jac=True, bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-10})
    start, outside = np.full(12, 0.05), np.full(12, 5.0)
    near, far = (npgm.minimize(feasible, x, jac=jac, bounds=bounds, tol=1e-5) for x in (start, outside))
    scipys = optimize.minimize(feasible, outside, jac=jac, bounds=bounds, tol=1e-5, method=npgm.solvers.proximal_lbfgs)
    np.testing.assert_array_equal(scipys.x, far.x)
    for run in (near, far):
        np.testing.assert_allclose(run.x, want.x, atol=1e-5)
    assert far.message == scipys.message
    assert far.message.endswith("x0 was outside the bounds and was projected onto them.")
    assert "projected" not in near.message


def test_bounds_of_points_that_are_torchs_matrices():
    target = torch.tensor([[2.0, -2.0], [0.5, 3.0]])
    run = npgm.minimize(
        lambda x: (0.5 * ((x - target) ** 2).sum((1, 2)), x - target),
        torch.stack([torch.zeros(2, 2), torch.full((2, 2), -4.0)]),
        batch=True,
        bounds=optimize.Bounds(-1.0, [[1.0, 1.0], [0.25, np.inf]]),
        tol=1e-4,
    )
    for x in run.x:
        np.testing.assert_allclose(x.numpy(), [[1.0, -1.0], [0.25, 3.0]], atol=1e-4)
    assert ["projected" in message for message in run.message] == [False, True]


@pytest.mark.parametrize("start", [0.0, 1.0, 1e4])
def test_nonnegative_least_squares(start):
    want, _ = optimize.nnls(A, B)
    run = npgm.minimize(squares, np.full(12, start), prox=proximal.Nonnegative())
    assert run.success
    np.testing.assert_allclose(run.x, want, atol=1e-6)


def test_whole_groups_vanish():
    g = proximal.GroupL2(12.0)
    run = npgm.minimize(several, np.zeros((12, 3)), prox=g, reference="isotropic-quad", scale="auto")
    is_minimum(several, g, run)
    vanished = (run.x == 0.0).all(axis=1)
    assert vanished.any()
    assert not vanished.all()
    assert (np.linalg.norm(several(run.x)[1][vanished], axis=1) <= 12.0).all()


@pytest.mark.parametrize("reference", [pytest.param(None, marks=pytest.mark.slow), "spectral-cosh", "isotropic-quad"])
def test_low_rank_completion(reference):
    g = proximal.NuclearNorm(2.0)
    options = {} if reference is None else {"reference": reference, "scale": "auto"}
    run = npgm.minimize(completion, np.zeros((12, 9)), prox=g, **options)
    is_minimum(completion, g, run)
    assert np.linalg.matrix_rank(run.x, tol=1e-9) <= 4
    # at the minimum -∇f lies in the subdifferential: its largest singular value is the weight
    assert np.linalg.norm(completion(run.x)[1], 2) == pytest.approx(2.0, rel=1e-5)


def test_a_start_at_the_solution_and_one_of_zero():
    def shifted(x):
        return 0.5 * np.sum((x - 1.0) ** 2), x - 1.0

    at_the_least_f = npgm.minimize(shifted, np.ones(3), prox=proximal.L1(0.3))
    np.testing.assert_allclose(at_the_least_f.x, 0.7, rtol=1e-6)
    again = npgm.minimize(shifted, at_the_least_f.x, prox=proximal.L1(0.3))
    assert again.nit == 1
    for start in (np.zeros(12), np.ones(12)):
        run = npgm.minimize(squares, start, prox=proximal.L1(1e4))
        assert run.success
        np.testing.assert_array_equal(run.x, 0.0)


@pytest.mark.parametrize("lr", ["auto", "backtracking"])
def test_from_a_solution_few_steps_are_taken(lr):
    """There ∇f, from which the first γ and λ are, is what the tolerance left."""
    g = proximal.L1(1e-9)
    solution = npgm.minimize(squares, np.zeros(12), prox=g, lr=lr).x
    assert npgm.minimize(squares, solution, prox=g, lr=lr, maxiter=200).success


@pytest.mark.parametrize("lr", ["auto", "backtracking"])
def test_runs_of_a_batch_are_those_of_one(lr):
    starts = np.stack([np.zeros(12), 0.1 * np.ones(12)])

    def batch(x):
        values, grads = zip(*map(logistic, x), strict=True)
        return np.array(values), np.stack(grads)

    options = {"prox": proximal.L1(0.5), "lr": lr, "maxiter": 40, "tol": 0.0, "history": True}
    runs = npgm.minimize(batch, starts, batch=True, **options)
    for i, start in enumerate(starts):
        alone = npgm.minimize(logistic, start, **options)
        np.testing.assert_allclose(runs.x[i], alone.x, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(runs.history["stationarity"][1:, i], alone.history["stationarity"][1:], rtol=1e-6)


@pytest.mark.slow
def test_points_of_torch():
    a, b = torch.from_numpy(A), torch.from_numpy(B)

    def fun(x):
        residual = a @ x - b
        return 0.5 * residual @ residual, a.T @ residual

    run = npgm.minimize(fun, torch.zeros(12, dtype=torch.float64), prox=proximal.ConvexSet(lambda y: torch.clip(y, 0)))
    np.testing.assert_allclose(run.x.numpy(), optimize.nnls(A, B)[0], atol=1e-6)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"prox": 3}, TypeError, "prox must be a function of npgm.proximal"),
        ({"prox": proximal.L1}, TypeError, "prox must be a function of npgm.proximal"),
        ({"method": "proximal"}, TypeError, "needs the option 'prox'"),
        ({"prox": proximal.L1(), "method": "gd", "lr": 1.0}, TypeError, "has no option 'prox'"),
        ({"prox": proximal.NuclearNorm()}, ValueError, "matrices"),
        ({"prox": proximal.GroupL2(along=-2)}, ValueError, "along"),
        ({"prox": proximal.ConvexSet(lambda y: y), "reference": "separable-cosh"}, ValueError, "has no step"),
        ({"prox": proximal.ConvexSet(lambda y: y[:3])}, ValueError, "shape"),
        ({"prox": proximal.L1(), "bounds": [(0.0, 1.0)] * 12}, ValueError, "bounds and prox exclude each other"),
        ({"method": "npgm", "lr": 1.0, "bounds": proximal.Box(0.0)}, ValueError, "'npgm' takes no bounds"),
        ({"prox": proximal.Box(2.0, 3.0)}, ValueError, "not finite at x0"),
        ({"prox": proximal.L1(), "reference": "separable-huber"}, ValueError, "reference must not clip"),
        ({"prox": proximal.L1(), "lr": "backtracking", "momentum": 0.3}, ValueError, "needs momentum=0"),
    ],
)
def test_errors_come_before_any_step(options, error, message):
    calls = []

    def counted(x):
        calls.append(x)
        return logistic(x)

    with pytest.raises(error, match=message):
        npgm.minimize(counted, np.zeros(12), **options)
    assert len(calls) <= 1


def test_certificates_of_smooth_theorems_refuse_runs_with_prox():
    run = npgm.minimize(squares, np.zeros(12), prox=proximal.L1(0.5), lr=1e-3, reference="separable-quad", history=True)
    for report in (
        certify.auto(run.history, minimum=0.0),
        certify.deterministic(run.history, smoothness=1e3, minimum=0.0),
    ):
        assert report.verdict == "refused"
        assert all("a function g beside f" in reason for reason in report.refused.values())


@pytest.mark.parametrize("lr", ["auto", "backtracking"])
def test_the_decrease_of_a_bound_certifies_a_run_with_prox(lr):
    g = proximal.L1(0.5)
    history = npgm.minimize(squares, np.zeros(12), prox=g, lr=lr, tol=1e-8, history=True).history
    taken, delta = history["taken"], history["lr"] * history["decrease"]
    assert (delta[taken] >= 0.0).all()
    # the first step, from its definition: without momentum, as the base step of any rule is
    phi = npgm.reference("separable-cosh", scale=0.1 * np.sqrt(np.mean(squares(np.zeros(12))[1] ** 2)))
    gamma, u = history["lr"][0], phi.precondition(squares(np.zeros(12))[1])
    z = g.step(phi, -gamma * u, np.asarray(gamma), (0,))
    assert delta[0] == pytest.approx(gamma * phi(u) - g(z) - gamma * phi(u + z / gamma), rel=1e-6)
    result = certify.auto(history, minimum=0.0)
    assert [certificate.bound.theorem for certificate in result.certificates] == ["Nonmonotone descent"]
    assert result.holds
    steps = history["fun"][:-1][taken[:-1]], history["fun"][1:][taken[:-1]], delta[:-1][taken[:-1]]
    if lr == "backtracking":  # each step decreases f + g by all of Δ
        assert (steps[1] <= steps[0] * (1.0 + 1e-12) - steps[2]).all()
        assert certify.auto(history, minimum=0.0, decrease=1.0, window=1).holds

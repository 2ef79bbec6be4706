"""Quasi-Newton steps for f + g: their parts against the definitions, and what they take against other methods."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

import npgm
from npgm import proximal
from npgm.problems import NonnegativeFactorization
from npgm.solvers.methods.auto.quasi_newton import GAIN, QuasiNewton
from npgm.solvers.point import Point, Trial
from npgm.theory import certify


def least_squares(seed, m=40, n=12):
    rng = np.random.default_rng(seed)
    A, b = rng.standard_normal((m, n)), rng.standard_normal(m)

    def fun(x):
        residual = x @ A.T - b
        return 0.5 * np.sum(residual**2, axis=-1), residual @ A

    return fun


def quartic(n, seed):
    """Σ c (x - a)⁴/4 + ½ x'Hx, with bounds of which some hold at the minimum."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    H, a = (Q * np.geomspace(0.1, 1e3, n)) @ Q.T, 3.0 * rng.standard_normal(n)
    bounds = optimize.Bounds(-rng.random(n), np.where(rng.random(n) < 0.5, rng.random(n), np.inf))
    return (lambda x: (np.sum((x - a) ** 4) / 4 + 0.5 * x @ H @ x, (x - a) ** 3 + H @ x)), bounds


def learnt(secants, n, runs=1):
    """The state of `QuasiNewton` after these pairs."""
    newton = QuasiNewton(memory=4)
    point = Point(np.ones((runs, n)), np.ones((runs, 1)), np.ones((runs, n)), np.ones((runs, 1)))
    state = newton.init(np, point)
    for s, y in secants:
        there = point._replace(x=point.x + s, grad=point.grad + y)
        trial = Trial.of(np, point, there, there.x - point.x, point.x, point.f)
        state = newton.learn(np, trial, newton.curved(trial), state)
    return newton, state


def bfgs(secants, B):
    """The BFGS matrix of these pairs, from this one."""
    for s, y in secants:
        B = B - np.outer(B @ s, B @ s) / (s @ B @ s) + np.outer(y, y) / (s @ y)
    return B


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 5))
def test_the_product_on_faces_has_the_pairs_of_the_free_entries(seed, n, pairs):
    """But those that are mostly in the other entries."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((n, n))
    secants = [(s, s @ root @ root.T + 0.1 * s) for s in rng.standard_normal((pairs, n))]
    newton, state = learnt(secants, n)
    free, r = rng.random(n) < 0.6, rng.standard_normal(n)
    shares = [(s[free] @ y[free]) / (s @ y) for s, y in secants[-4:]]
    kept = [(s[free], y[free]) for (s, y), share in zip(secants[-4:], shares, strict=True) if share > 0.1]
    s, y = kept[-1] if kept and shares[-1] > 0.1 else (state.s[0, -1], state.y[0, -1])
    first = state.diagonal[0] if state.gain[0, 0] > GAIN else np.full(n, y @ y / (s @ y))
    want = np.where(free, r / first, 0.0)
    if kept:
        want[free] = np.linalg.solve(bfgs(kept, np.diag(first[free])), r[free])
    got = newton.product_on_faces(np, r[None], free[None], state)[0]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max(initial=1e-9))
    everywhere = newton.product_on_faces(np, r[None], np.ones((1, n), bool), state)
    np.testing.assert_allclose(everywhere, newton.product(np, r[None], state), rtol=1e-5, atol=1e-7)


def test_what_is_left_of_a_memory_is_the_newest_pair():
    rng = np.random.default_rng(0)
    secants = [(s, np.arange(1.0, 6.0) * s) for s in rng.standard_normal((4, 5))]
    newton, state = learnt(secants[:3], 5, runs=2)
    state = newton.forget(np, np.array([[True], [False]]), state)
    r, free = rng.standard_normal((2, 5)), np.array([[True, True, False, True, True]] * 2)
    _, alone = learnt(secants[2:3], 5)
    _, whole = learnt(secants[:3], 5)
    for want, row in ((alone, [0]), (whole, [1])):
        np.testing.assert_allclose(newton.product(np, r, state)[row], newton.product(np, r[row], want))
        got = newton.product_on_faces(np, r, free, state)[row]
        np.testing.assert_allclose(got, newton.product_on_faces(np, r[row], free[row], want), atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_a_lasso_takes_few_evaluations(seed):
    fun, g = least_squares(seed), proximal.L1(6.0)
    run = npgm.minimize(fun, np.zeros(12), prox=g)
    assert run.success
    assert run.nfev <= 35
    slow = npgm.minimize(fun, np.zeros(12), prox=g, lr="auto")
    np.testing.assert_allclose(run.x, slow.x, atol=1e-6)
    assert slow.nfev > 3 * run.nfev


@pytest.mark.parametrize("seed", range(3))
def test_bounds_end_where_those_of_scipy_do(seed):
    fun, bounds = quartic(30, seed)
    outside = []

    def watched(x):
        outside.append(((x < bounds.lb) | (x > bounds.ub)).any())
        return fun(x)

    run = npgm.minimize(watched, np.zeros(30), bounds=bounds, tol=1e-7)
    want = optimize.minimize(fun, np.zeros(30), jac=True, bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-9})
    assert run.success, run.message
    assert not any(outside)
    np.testing.assert_allclose(run.x, want.x, atol=1e-4)
    assert ((run.x == bounds.lb) | (run.x == bounds.ub)).any()


@pytest.mark.parametrize(
    "g", [proximal.L1(2.0), proximal.Box(-0.1, 0.2), proximal.Simplex(1.5), proximal.ElasticNet(1.0, 30.0)], ids=repr
)
def test_every_step_falls_by_a_tenth_of_the_decrease(g):
    history = npgm.minimize(least_squares(5), g.prox(np.ones(12), 1.0), prox=g, history=True).history
    fun, taken = history["fun"], history["taken"][:-1]
    delta = (history["lr"] * history["decrease"])[:-1]
    assert (delta >= 0.0).all()
    assert (np.diff(fun) <= np.where(taken, -0.1 * delta, 0.0) + 1e-12 * np.abs(fun[:-1])).all()
    assert certify.auto(history, minimum=0.0, window=1).holds


def test_without_g_it_minimises_the_nonconvex():
    run = npgm.minimize(
        lambda x: (optimize.rosen(x), optimize.rosen_der(x)), np.full(10, -1.2), bounds=[(None, None)] * 10
    )
    assert run.success, run.message
    assert run.fun < 1e-8


@pytest.mark.parametrize("g", [proximal.L1(3.0), proximal.Nonnegative(), proximal.Simplex(2.0)], ids=repr)
def test_runs_of_a_batch_are_those_of_one(g):
    fun = least_squares(7)
    starts = g.prox(np.random.default_rng(0).standard_normal((3, 12)), 1.0, (1,))
    options = {"prox": g, "history": True}
    runs = npgm.minimize(fun, starts, batch=True, **options)
    for i, start in enumerate(starts):
        alone = npgm.minimize(fun, start, **options)
        assert (runs.nit[i], runs.status[i]) == (alone.nit, alone.status)
        np.testing.assert_allclose(runs.x[i], alone.x, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(runs.history["fun"][: alone.nit + 1, i], alone.history["fun"], rtol=1e-9)


def test_a_wall_of_infinite_values_is_not_left():
    """f is finite for x < 2 alone, beyond which the first steps reach."""

    def barrier(x):
        return float(np.sum(-np.log(np.maximum(2.0 - x, 0.0)) - x)), 1.0 / (2.0 - x) - 1.0

    with np.errstate(divide="ignore"):
        run = npgm.minimize(barrier, np.array([-300.0, 0.5]), bounds=[(None, 5.0)] * 2)
    assert run.success, run.message
    np.testing.assert_allclose(run.x, 1.0, atol=1e-6)


def test_a_factorisation_from_afar_keeps_its_proportions():
    """A first step that cuts entries off at zero would leave the factors unbalanced, and take 378 evaluations."""
    problem = NonnegativeFactorization(rank=10, seed=3)
    start = 3.0 * problem.start
    first = npgm.minimize(problem, start, prox=problem.prox, maxiter=1).x
    np.testing.assert_allclose(first / start, 29 / 30, atol=0.02)
    run = npgm.minimize(problem, start, prox=problem.prox, tol=1e-5)
    assert run.success
    assert run.nfev < 200

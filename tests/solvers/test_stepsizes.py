"""Rules for the stepsize, directions, and the method that is made of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse

import npgm
from npgm.problems import MatrixFactorization
from npgm.solvers import Status
from npgm.solvers.stepsizes.edge_of_stability import EdgeOfStability

pytestmark = pytest.mark.usefixtures("solver_path")
RULES = [
    {"method": "auto"},
    *({"method": m, "lr": "auto"} for m in ("gd", "gdm", "npgm")),
    *({"method": m, "lr": "backtracking", "momentum": 0.4} for m in ("gdm", "npgm")),
    {"method": "npgm", "lr": "backtracking", "reference": "separable-cosh"},
    {"method": "npgm", "lr": "auto", "reference": "separable-exp", "scale": "auto"},
]
each_rule = pytest.mark.parametrize("options", RULES, ids=str)


def rosenbrock(x):
    a, b = 1.0 - x[..., 0], x[..., 1] - x[..., 0] ** 2
    return a**2 + 100.0 * b**2, np.stack([-2.0 * a - 400.0 * x[..., 0] * b, 200.0 * b], axis=-1)


def quartic(x):
    return np.sum(x**4 / 4 + x**2 / 2, axis=-1), x**3 + x


def factorisation():
    A = scipy.sparse.random_array((40, 30), density=0.3, rng=np.random.default_rng(0))
    return MatrixFactorization(A, rank=4)


@pytest.mark.slow
@each_rule
def test_no_number_is_needed(options):
    for fun, start in ((rosenbrock, [-1.2, 1.0]), (quartic, [10.0, -1.0])):
        tol = 1.0 if options.get("lr") == "backtracking" else 0.1  # which is as slow as gradient descent
        res = npgm.minimize(fun, np.array(start), tol=tol, maxiter=50_000, **options)
        assert res.success, res.message


def test_backtracking_averages_directions_of_all_stepsizes():
    """A step is -γm with m ← βm + (1-β)u, where γ is halved between the steps that are averaged."""
    options = {"method": "npgm", "reference": "separable-cosh", "lr": "backtracking", "momentum": 0.4}
    res = npgm.minimize(rosenbrock, np.array([-1.2, 1.0]), maxiter=60, tol=0.0, history=True, **options)
    assert not res.history["taken"][5:60].all()
    phi = npgm.reference("separable-cosh")
    x, m = np.array([-1.2, 1.0]), np.zeros(2)
    for lr, taken in zip(res.history["lr"][:60], res.history["taken"][:60], strict=True):
        if taken:
            m = 0.4 * m + 0.6 * phi.precondition(rosenbrock(x)[1])
            x = x - lr * m
    np.testing.assert_allclose(res.x, x, rtol=1e-9)


def test_a_stepsize_that_follows_the_curvature_at_most_doubles():
    res = npgm.minimize(quartic, np.array([10.0, -1.0]), maxiter=40, tol=0.0, history=True, method="gd", lr="auto")
    lr = res.history["lr"][:40]
    assert np.max(lr[1:] / lr[:-1]) == 2.0


@pytest.mark.slow
@each_rule
def test_scaling_f_or_x_changes_nothing(options):
    """Powers of two, so that all numbers scale exactly; φ scales with f where its λ follows the gradient."""
    options = {"scale": "auto", **options} if options["method"] == "npgm" else options
    if options.get("lr") == "backtracking":
        options = {**options, "momentum": 0.0}
    start = np.array([-1.2, 1.0])
    want = npgm.minimize(rosenbrock, start, maxiter=60, tol=0.0, history=True, **options)
    for a, b in ((2.0**26, 1.0), (2.0**-26, 1.0), (1.0, 2.0**13), (1.0, 2.0**-13)):

        def scaled(x, a=a, b=b):
            f, grad = rosenbrock(x / b)
            return a * f, a * grad / b

        got = npgm.minimize(scaled, b * start, maxiter=60, tol=0.0, history=True, **options)
        np.testing.assert_allclose(got.history["fun"][:40] / a, want.history["fun"][:40], rtol=1e-6)


@each_rule
def test_history_has_the_steps_and_their_bounds_hold(options):
    problem = factorisation()
    res = npgm.minimize(problem, problem.start(0), maxiter=120, tol=0.0, history=True, **options)
    history = res.history
    taken, lr = history["taken"], history["lr"]
    assert taken.any()
    assert np.isnan(lr[-1])
    assert not taken[-1]
    np.testing.assert_array_equal(np.diff(history["fun"])[~taken[:-1]], 0.0)
    report = npgm.theory.certify.auto(history, minimum=problem.optimum)
    assert report.holds
    names = [certificate.bound.theorem for certificate in report.certificates]
    backtracking = options.get("lr") == "backtracking"
    assert ("Theorem 2.2, variable stepsizes" if backtracking else "Nonmonotone descent") in names
    if options.get("momentum"):
        assert (np.diff(lr[taken]) <= 0.0).all()


def test_a_batch_of_auto_has_its_own_mode_for_each_run():
    problem = factorisation()
    starts = np.stack([size * problem.start(seed) for seed, size in ((0, 1.0), (1, 0.1), (2, 3.0))])
    batch = npgm.minimize(problem, starts, batch=True, tol=1e-6, history=True)
    assert batch.success.all()
    assert len(set(batch.nit)) > 1
    for i, start in enumerate(starts):
        one = npgm.minimize(problem, start, tol=1e-6, maxiter=40, history=True)
        np.testing.assert_allclose(batch.history["fun"][:41, i], one.history["fun"], rtol=1e-6)
        assert batch.fun[i] == pytest.approx(problem.optimum, rel=1e-9)


def test_auto_forgets_where_it_comes_from():
    """The first steps from a start that is too large leave U and V out of balance, which has to be taken down again."""
    A = scipy.sparse.random_array((100, 60), density=0.3, rng=np.random.default_rng(0))
    problem = MatrixFactorization(A, rank=5)
    res = npgm.minimize(problem, 3.0 * problem.start(0), tol=1e-6, maxiter=800, history=True)
    assert res.success
    assert npgm.theory.certify.auto(res.history, minimum=problem.optimum).holds


def test_auto_in_single_precision():
    problem = npgm.problems.registry["quadratic"](a=(1.0, 30.0, 900.0))
    res = npgm.minimize(problem, np.ones(3, np.float32), tol=1e-3)
    assert res.success
    assert res.x.dtype == np.float32


def test_a_trial_that_is_not_finite_is_rejected_and_shortened():
    def holed(x):  # finite only in a ball around the minimiser, at whose boundary the start is
        f, grad = 0.5 * float(x @ x), x
        return (np.nan, grad * np.nan) if np.linalg.norm(x) > 1.5 else (f - x[0], grad - [1.0, 0.0])

    for options in RULES:
        res = npgm.minimize(holed, np.array([-1.0, 1.0]), tol=1e-8, **options)
        assert res.success, (options, res.message)


@pytest.mark.parametrize("start", [[300.0], [2e4], [500.0, 340.0], [33000.0, 32000.0, 37000.0]], ids=str)
def test_a_start_far_inside_a_domain(start):
    """The curvature 1/x² of x - log x grows on the way, and steps of its first inverse leave the domain."""

    def fun(x):
        inside = (x > 0.0).all()
        return (np.sum(x - np.log(x)), 1.0 - 1.0 / x) if inside else (np.nan, np.full_like(x, np.nan))

    assert npgm.minimize(fun, np.array(start), maxiter=500).success


@pytest.mark.parametrize("options", [{}, {"lr": "auto"}, {"lr": "backtracking"}], ids=str)
@pytest.mark.parametrize("start", [1e-10, 1e-3])
def test_a_start_whose_gradient_tells_nothing_of_what_comes(options, start):
    """Near a saddle point of ∇f(x⁰) is tiny, and with it λ and the first steps."""

    def fun(x):
        return np.sum(x**4 / 4 - x**2 / 2), x**3 - x

    res = npgm.minimize(fun, np.full(20, start), tol=1e-12 if start < 1e-6 else 1e-6, maxiter=1500, **options)
    np.testing.assert_allclose(res.x, 1.0, rtol=1e-6)


def test_backtracking_is_the_descent_inequality():
    """On φ(c(x-b))/c, L = c is attained everywhere: γ ends between 1/(2c) and 1/c, and a step at 1/c is the last."""
    problem = npgm.problems.registry["scaled-reference"](c=4.0)
    res = npgm.minimize(problem, problem.start, lr="backtracking", reference=problem.reference, history=True)
    assert res.success
    lr = res.history["lr"][res.history["taken"]]
    assert 0.125 < lr[-1] <= 0.25 * (1 + 1e-9)
    with pytest.raises(ValueError, match=r"needs momentum < 1/2, or an isotropic and 2-subhomogeneous φ, not 0\.9"):
        npgm.minimize(problem, problem.start, reference="separable-cosh", lr="backtracking", momentum=0.9)


def test_bad_rules_are_refused():
    for lr, error in (("auot", "unknown lr 'auot'; accepted: auto, backtracking"), (-1.0, "lr must be positive")):
        with pytest.raises(ValueError, match=error):
            npgm.minimize(quartic, np.ones(2), lr=lr)
    with pytest.raises(ValueError, match="unknown scale 'x'; accepted: auto"):
        npgm.minimize(quartic, np.ones(2), lr=0.1, scale="x")
    with pytest.raises(ValueError, match="needs a φ whose conjugate has a positive and finite curvature at 0"):
        npgm.minimize(quartic, np.ones(2), lr="auto", reference="isotropic-pow", scale=1.0)
    with pytest.raises(TypeError, match="lr must be a real number"):
        npgm.minimize(quartic, np.ones(2), method="nesterov", lr="auto")
    with pytest.raises(ValueError, match="momentum_order='before' needs a number for lr"):
        npgm.minimize(quartic, np.ones(2), lr="auto", momentum_order="before")


@pytest.mark.parametrize("options", [{"window": 0}, {"discount": 1.1}, {"safety": 0.0}, {"decrease": 1.0}], ids=str)
def test_numbers_of_a_rule_are_checked_where_it_is_made(options):
    with pytest.raises(ValueError, match=f"{min(options)} must"):
        EdgeOfStability(**options)


def test_a_users_own_rule_is_found_by_name():
    from npgm.solvers.stepsizes import Stepsize, register, registry

    class State(NamedTuple):
        lr: np.ndarray

    @dataclass(frozen=True)
    class Shrinking(Stepsize):
        key = "shrinking"

        def init(self, xp, start, phi, momentum):
            return State(xp.ones_like(start.f))

        def coefficients(self, state, momentum):
            return state.lr, 0.0 * state.lr

        def judge(self, xp, trial, phi, state, momentum):
            return trial.finite, State(state.lr * 0.99)

    register(Shrinking)
    try:
        res = npgm.minimize(quartic, np.ones(2), lr="shrinking", reference="separable-cosh", history=True)
        assert res.success
        np.testing.assert_allclose(res.history["lr"][:-1], 0.99 ** np.arange(res.nit))
    finally:
        del registry["shrinking"]


def test_a_rule_takes_the_scale_from_the_gradients():
    of_itself, told = npgm.solvers.registry["npgm"](lr="auto"), npgm.solvers.registry["npgm"](lr="auto", scale=2.0)
    assert (of_itself.scale, told.scale, told.reference.scale) == ("auto", 2.0, 2.0)


@pytest.mark.parametrize("options", [{"method": "auto"}, {"method": "npgm", "lr": "auto"}], ids=str)
def test_the_default_reference_may_be_given_by_name_or_object(options):
    want = npgm.minimize(rosenbrock, np.array([-1.2, 1.0]), **options)
    for reference in ("isotropic-cosh", npgm.Isotropic(npgm.Cosh())):
        np.testing.assert_array_equal(
            npgm.minimize(rosenbrock, np.array([-1.2, 1.0]), reference=reference, **options).x, want.x
        )
    own = npgm.solvers.registry[options["method"]](lr="auto", reference=npgm.Isotropic(npgm.Cosh(), scale=3.0))
    assert (own.reference.scale, own.scale) == (3.0, None)


def test_scale_auto_is_a_tenth_of_the_first_gradient():
    start = np.array([[3.0, 4.0], [300.0, -400.0]])

    def fun(x):
        return 0.5 * np.sum(x * x, axis=-1), x

    for name, scale in (("isotropic-cosh", 0.5), ("separable-cosh", 0.5 / 2**0.5)):
        phi = npgm.reference(name)
        options = {"lr": 0.1, "momentum": 0.5, "maxiter": 5, "tol": 0.0, "history": True}
        got = npgm.minimize(fun, start, batch=True, reference=phi, scale="auto", **options)
        for i, lam in enumerate((scale, 100 * scale)):
            want = npgm.minimize(fun, start[i], reference=replace(phi, scale=lam), **options)
            np.testing.assert_allclose(got.x[i], want.x, rtol=1e-13)
            np.testing.assert_allclose(got.history["stationarity"][:, i], want.history["stationarity"], rtol=1e-12)
        want = npgm.minimize(fun, start[0], reference=name, scale=scale, **options)
        np.testing.assert_allclose(got.x[0], want.x, rtol=1e-13)


def test_a_cycle_is_named_with_a_stepsize_that_ends_it():
    def parabola(x):
        return 0.5 * float(x @ x), x

    res = npgm.minimize(parabola, np.array([3.0]), method="gd", lr=2.0, maxiter=200)
    assert res.status == Status.MAXITER
    assert "The points cycle: f and its gradient have not fallen since iteration 0" in res.message
    lr = float(res.message.split("lr=")[1].rstrip("."))
    assert npgm.minimize(parabola, np.array([3.0]), method="gd", lr=lr).success
    slow = npgm.minimize(parabola, np.array([3.0]), method="gd", lr=1e-20, maxiter=200)
    assert (slow.status, slow.success, slow.nit) == (Status.STUCK, False, 50)
    assert "lr=1e-20 may be too small" in slow.message
    fine = npgm.minimize(parabola, np.array([3.0]), method="gd", lr=1e-3, maxiter=200)
    assert fine.message == "Maximum number of iterations, 200, was reached."


def test_half_the_stepsize_is_suggested_without_finite_secants():
    def fun(x):
        return (0.0, np.ones(2)) if (x == 1.0).all() else (np.nan, np.full(2, np.nan))

    res = npgm.minimize(fun, np.ones(2), method="gd", lr=0.7)
    assert res.message.endswith("for example lr=3.5e-01.")


def test_the_best_point_is_kept():
    def fun(x):
        return 0.5 * np.sum([1.0, 30.0] * x * x, axis=-1), [1.0, 30.0] * x

    starts = np.array([[1.0, 1e-3], [1.0, 1.0], [0.0, 1.0]])
    options = {"method": "gd", "lr": 0.067, "maxiter": 90, "tol": 0.0, "history": True}
    batch = npgm.minimize(fun, starts, batch=True, **options)
    assert batch.nit[0] > batch.best.nit[0]  # the stiff component grows, and at last exceeds the other
    for i, start in enumerate(starts):
        one = npgm.minimize(fun, start, **options)
        for best, history in ((one.best, one.history["fun"]),):
            assert best.nit == np.argmin(history)
            assert best.fun == history.min() == fun(best.x)[0]
        assert batch.best.fun[i] == one.best.fun
        np.testing.assert_array_equal(batch.best.x[i], one.best.x)


@pytest.mark.parametrize("key", npgm.problems.registry)
def test_defaults_minimise_every_problem_of_the_package(key):
    problem = npgm.problems.registry[key]()
    res = npgm.minimize(problem, problem.start)
    assert res.success
    assert res.nfev <= 100


@pytest.mark.slow
def test_defaults_minimise_the_problems_of_the_paper():
    seed, rng = 0, np.random.default_rng(0)
    factorization = npgm.problems.MatrixFactorization(rng.poisson(1.0, (60, 40)).astype(float), 5)
    retrieval = npgm.problems.PhaseRetrieval.random(200, 60, seed)
    for problem, start in ((factorization, factorization.start(seed)), (retrieval, rng.normal(5.0, 0.5, 200))):
        assert npgm.minimize(problem, start).success

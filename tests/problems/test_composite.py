"""The problems with a nonsmooth or constrained part: their gradients, and that defaults alone minimise them."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

import npgm
from npgm.lab import data
from npgm.lab.data.movielens import rating_matrix
from npgm.problems import composites

each_problem = pytest.mark.parametrize("key", sorted(composites))


@each_problem
def test_the_gradient_is_that_of_f_and_rows_are_points(key):
    problem = composites[key]()
    assert np.isfinite(float(problem.prox(problem.start)))
    x = problem.start + 0.1 * np.random.default_rng(0).random(problem.start.shape)
    f, grad = problem(x)
    want = approx_fprime(x.ravel(), lambda z: problem(z.reshape(x.shape))[0])
    np.testing.assert_allclose(grad.ravel(), want, rtol=1e-4, atol=1e-4 * np.abs(grad).max())
    values, gradients = problem(np.stack([x, problem.start]))
    np.testing.assert_allclose(values, [f, problem(problem.start)[0]], rtol=1e-12)
    np.testing.assert_allclose(gradients[0], grad, rtol=1e-9, atol=1e-12)


def evaluations(problem, tol, **options):
    run = npgm.minimize(problem, problem.start, prox=problem.prox, tol=tol, **options)
    return run.nfev if run.success else np.inf


def movielens():
    return npgm.problems.NonnegativeFactorization(rating_matrix(data.load("movielens-100k")), 10)


@pytest.mark.slow
@pytest.mark.parametrize(("build", "tol"), [*((composites[key], 1e-3) for key in sorted(composites)), (movielens, 0.1)])
def test_defaults_take_fewer_evaluations_than_proximal_gradient(build, tol):
    problem = build()
    ours = evaluations(problem, tol)
    assert np.isfinite(ours)
    theirs = evaluations(problem, tol, reference="separable-quad", lr="backtracking", maxiter=int(1.5 * ours))
    assert ours <= theirs


def test_the_sparse_logistic_regression_is_solved():
    problem = composites["sparse-logistic"](samples=60, features=12, decades=1.0)
    n = 12

    def split(z):
        f, g = problem(z[:n] - z[n:])
        return f + problem.weight * z.sum(), np.concatenate([g, -g]) + problem.weight

    want = minimize(
        split,
        np.zeros(2 * n),
        jac=True,
        bounds=[(0, None)] * 2 * n,
        options={"ftol": 1e-15, "gtol": 1e-9, "maxfun": 10**5},
    )
    run = npgm.minimize(problem, problem.start, prox=problem.prox)
    assert run.success
    assert run.fun == pytest.approx(want.fun, rel=1e-8)
    zero = npgm.minimize(problem, problem.start, prox=npgm.proximal.L1(101.0 * problem.weight))
    np.testing.assert_array_equal(zero.x, 0.0)


def test_what_is_not_accepted():
    with pytest.raises(ValueError, match="A must be nonnegative"):
        npgm.problems.NonnegativeFactorization(-np.eye(3), 1)
    with pytest.raises(ValueError, match=r"weight must .* not 1\.5"):
        npgm.problems.SparseLogisticRegression(weight=1.5)

from itertools import combinations

import numpy as np
import pytest
import torch

import npgm
from npgm.problems import PhaseRetrieval


def test_derivatives_agree_with_autograd():
    problem = PhaseRetrieval.random(n=8, m=5, seed=0)
    A, y = torch.from_numpy(problem.A), torch.from_numpy(problem.y)

    def f(x):
        return ((y - (A @ x) ** 2) ** 2).mean() / 2

    x, d = np.random.default_rng(1).standard_normal((2, 8))
    point = torch.from_numpy(x)
    value, grad = problem(x)
    assert value == pytest.approx(f(point).item(), rel=1e-13)
    np.testing.assert_allclose(grad, torch.func.grad(f)(point).numpy(), rtol=1e-11)
    np.testing.assert_allclose(problem.hvp(x, d), torch.func.hessian(f)(point).numpy() @ d, rtol=1e-11)


def test_minibatches_are_unbiased_and_repeatable():
    problem = PhaseRetrieval.random(n=4, m=6, seed=0)
    x = np.ones(4)
    f, grad = problem(x)
    stochastic, again = problem.minibatches(2, seed=3), problem.minibatches(2, seed=3)
    draws = [stochastic(x) for _ in range(4000)]
    assert all(value == pytest.approx(f, rel=1e-13) for value, _ in draws)
    gradients = np.array([g for _, g in draws])
    error = gradients.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(gradients.mean(axis=0) - grad) < 5 * error).all()
    pairs = [PhaseRetrieval(problem.A[pair], problem.y[pair])(x)[1] for pair in map(list, combinations(range(6), 2))]
    distances = np.abs(gradients[:, None, :] - np.array(pairs)).max(axis=-1)  # whose last bits depend on the addresses
    assert (distances.min(axis=1) <= 1e-12 * np.abs(pairs).max()).all()
    assert len(set(distances.argmin(axis=1))) == 15
    np.testing.assert_allclose(again(x)[1], gradients[0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(problem.minibatches(6, seed=0)(x)[1], grad, rtol=1e-12)


def test_the_optimum_is_reached_with_few_measurements():
    problem = PhaseRetrieval.random(n=30, m=6, seed=0, noise=20.0)
    assert (problem.y < 0).any()
    res = npgm.minimize(
        problem, np.full(30, 1.0), lr=0.02, reference=npgm.reference("separable-cosh", scale=10.0), maxiter=5000
    )
    assert res.fun >= problem.optimum
    assert res.fun == pytest.approx(problem.optimum, rel=1e-6)


def test_random_problems_have_the_stated_distributions():
    problem = PhaseRetrieval.random(n=300, m=300, seed=0, variance=0.25)
    assert problem.A.var() == pytest.approx(0.25, rel=0.02)
    same, other = PhaseRetrieval.random(300, 300, 0, variance=0.25), PhaseRetrieval.random(300, 300, 1, variance=0.25)
    np.testing.assert_array_equal(same.y, problem.y)
    assert not np.array_equal(other.y, problem.y)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PhaseRetrieval(np.ones(3), np.ones(3)), "A must be a nonempty matrix"),
        (lambda: PhaseRetrieval(np.ones((0, 3)), np.ones(0)), "A must be a nonempty matrix"),
        (lambda: PhaseRetrieval(np.ones((2, 3)), np.ones(3)), r"y must have shape \(2,\)"),
        (lambda: PhaseRetrieval(np.full((2, 3), np.nan), np.ones(2)), "must be finite"),
        (lambda: PhaseRetrieval.random(3, 0, 0), "m must be at least 1, not 0"),
        (lambda: PhaseRetrieval.random(3, 2, 0, variance=0.0), "variance must be positive"),
        (lambda: PhaseRetrieval.random(3, 2, 0).minibatches(3, 0), "size must be at most m = 2, not 3"),
        (lambda: PhaseRetrieval.random(3, 2, 0).minibatches(0, 0), "size must be at least 1, not 0"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()

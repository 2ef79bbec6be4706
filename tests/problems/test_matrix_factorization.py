import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from npgm.problems import MatrixFactorization
from npgm.theory import sharpness

shapes = st.tuples(st.integers(1, 7), st.integers(1, 7)).flatmap(
    lambda mn: st.tuples(st.just(mn), st.integers(1, min(mn)), st.integers(0, 1000))
)


def random_matrix(shape, seed):
    return scipy.sparse.random_array(shape, density=0.5, rng=np.random.default_rng(seed))


@given(shapes, st.sampled_from([1, 2]))
def test_sparse_dense_and_definition_agree(case, threads):
    shape, rank, seed = case
    A = random_matrix(shape, seed)
    sparse, dense = MatrixFactorization(A, rank, threads), MatrixFactorization(A.toarray(), rank)
    X = sparse.start(seed)
    U, V = X[: shape[0]], X[shape[0] :]
    R = U @ V.T - A.toarray()
    definition = 0.5 * np.sum(R**2), np.concatenate([R @ V, R.T @ U])
    for problem in (sparse, dense):
        f, grad = problem(X)
        assert f == pytest.approx(definition[0], rel=1e-12)
        np.testing.assert_allclose(grad, definition[1], rtol=1e-11, atol=1e-11)


@settings(max_examples=30)
@given(shapes, st.integers(1, 4))
def test_a_batch_is_its_points(case, runs):
    shape, rank, seed = case
    A = random_matrix(shape, seed)
    for problem in (MatrixFactorization(A, rank, threads=2), MatrixFactorization(A.toarray(), rank)):
        X = np.stack([problem.start(seed + i) for i in range(runs)])
        f, grad = problem(X)
        product = problem.hvp(X, X[::-1])
        for i in range(runs):
            f_i, grad_i = problem(X[i])
            assert f[i] == pytest.approx(f_i, rel=1e-12)
            np.testing.assert_allclose(grad[i], grad_i, rtol=1e-11, atol=1e-12)
            np.testing.assert_allclose(product[i], problem.hvp(X[i], X[::-1][i]), rtol=1e-11, atol=1e-12)


def test_derivatives_agree_with_autograd():
    A = random_matrix((6, 4), 0)
    dense = torch.from_numpy(A.toarray())

    def f(X):
        return 0.5 * (X[:6] @ X[6:].T - dense).square().sum()

    for problem in (MatrixFactorization(A, 3), MatrixFactorization(A.toarray(), 3)):
        X, D = problem.start(0), problem.start(1)
        point = torch.from_numpy(X)
        np.testing.assert_allclose(problem(X)[1], torch.func.grad(f)(point).numpy(), rtol=1e-12)
        _, product = torch.func.jvp(torch.func.grad(f), (point,), (torch.from_numpy(D),))
        np.testing.assert_allclose(problem.hvp(X, D), product.numpy(), rtol=1e-11)
        largest = torch.linalg.eigvalsh(torch.func.hessian(f)(point).reshape(30, 30))[-1]
        value, vector = sharpness(problem.hvp, X, rtol=1e-10)
        assert value == pytest.approx(largest.item(), rel=1e-9)
        np.testing.assert_allclose(problem.hvp(X, vector), value * vector, atol=1e-4 * value)


def test_the_optimum_is_attained_by_the_singular_vectors():
    A = random_matrix((8, 5), 1).toarray()
    P, s, Q = np.linalg.svd(A)
    root = np.sqrt(s[:2])
    problem = MatrixFactorization(A, 2)
    f, grad = problem(np.concatenate([P[:, :2] * root, Q[:2].T * root]))
    assert f == pytest.approx(problem.optimum, rel=1e-12)
    np.testing.assert_allclose(grad, 0.0, atol=1e-13)


@pytest.mark.slow
def test_the_real_ratings(ratings):
    """The numbers that Malitsky and Mishchenko's start gives, and the known optima, on the real data."""
    assert ratings.shape == (943, 1682)
    assert (ratings.nnz, ratings.sum()) == (100_000, 352_986)
    for rank, optimum in ((10, 365502.499), (20, 330381.603)):
        sparse, dense = MatrixFactorization(ratings, rank), MatrixFactorization(ratings.toarray(), rank)
        assert sparse.optimum == pytest.approx(optimum, abs=1e-3)
        np.random.seed(0)  # noqa: NPY002  their notebook's generator
        X = sparse.start(0)
        np.testing.assert_array_equal(X, np.random.randn(943 + 1682, rank))  # noqa: NPY002
        (f, grad), (f_dense, grad_dense) = sparse(X), dense(X)
        assert f == pytest.approx(f_dense, rel=1e-13)
        np.testing.assert_allclose(grad, grad_dense, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("A", "rank", "error", "message"),
    [
        (np.eye(3), 0, ValueError, "rank must be at least 1, not 0"),
        (np.eye(3), 4, ValueError, r"rank must be at most min\(3, 3\) = 3, not 4"),
        (np.eye(3), 1.0, TypeError, "rank must be an integer"),
        (np.ones(3), 1, ValueError, r"A must be a nonempty matrix, not an array of shape \(3,\)"),
        (np.ones((0, 3)), 1, ValueError, "A must be a nonempty matrix"),
        (np.array([[np.nan]]), 1, ValueError, "A must be finite"),
        (scipy.sparse.csr_array(np.array([[np.inf, 0.0]])), 1, ValueError, "A must be finite"),
        (np.array([["a"]]), 1, ValueError, "could not convert"),
    ],
)
def test_bad_input_is_named(A, rank, error, message):
    with pytest.raises(error, match=message):
        MatrixFactorization(A, rank)

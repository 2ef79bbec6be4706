"""The held-out suite: other functions and other data of comparable kinds, on which nothing of npgm was ever chosen."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.special import expit

from npgm._common.array import Array, Floats
from npgm.lab.experiments.contest.problems import families
from npgm.lab.experiments.contest.problems.base import ContestProblem, of_columns, of_residuals


def problems() -> Iterator[ContestProblem]:
    """Yield the problems, always in the same order."""
    yield from _quadratics()
    yield from _regressions()
    yield from _functions()
    yield from _factorisations_and_networks()


def _quadratics() -> Iterator[ContestProblem]:
    rng = np.random.default_rng(11)
    chain = 2.0 * np.eye(12) - np.eye(12, k=1) - np.eye(12, k=-1)
    grid = np.kron(chain, np.eye(12)) + np.kron(np.eye(12), chain)
    yield ContestProblem("Laplacian of a grid", families.quadratic_form(grid, rng.standard_normal(144)), np.zeros(144))
    eigenvalues = 10.0 ** rng.uniform(-5.5, 0.0, 60)
    yield ContestProblem("quadratic, random spectrum", families.quadratic(eigenvalues, rng), np.zeros(60))
    covariance = 0.99 ** np.abs(np.subtract.outer(np.arange(50), np.arange(50)))
    fun = families.quadratic_form(covariance, rng.standard_normal(50))
    yield ContestProblem("covariance of a time series", fun, np.zeros(50))


def _regressions() -> Iterator[ContestProblem]:
    rng = np.random.default_rng(12)

    def signs(X: Floats) -> Floats:
        return np.asarray(np.sign(X @ rng.standard_normal(X.shape[1]) + rng.standard_normal(len(X))))

    X = families.design(150, 30, rng, spread=20.0)
    labels = signs(X)

    def hinge(z: Floats) -> tuple[Floats, Floats]:
        short = np.maximum(1.0 - labels * z, 0.0)
        return short**2, -2.0 * labels * short

    yield ContestProblem("squared hinge loss", of_columns(X, hinge, 1e-3), np.zeros(30))
    Z = families.design(150, 15, rng, correlation=0.5)
    sides = signs(Z)

    def exponential(z: Floats) -> tuple[Floats, Floats]:
        with np.errstate(over="ignore"):
            e = np.exp(-sides * z)
        return e, -sides * e

    yield ContestProblem("exponential loss", of_columns(Z, exponential, 1e-3), np.zeros(15))
    X = families.design(120, 25, rng, spread=50.0, correlation=0.3)
    yield ContestProblem("logistic, other data", families.logistic(X, rng, 1e-4), np.zeros(25))
    X = families.design(80, 12, rng, correlation=0.6)
    yield ContestProblem("Cauchy, correlated", families.cauchy(X, rng, 0.7), np.ones(12))
    X = families.design(100, 15, rng)
    counts = rng.poisson(np.logaddexp(0.0, X @ rng.standard_normal(15)))

    def softplus(z: Floats) -> tuple[Floats, Floats]:
        mean = np.logaddexp(0.0, z)
        return mean - counts * np.log(mean), expit(z) * (1.0 - counts / mean)

    yield ContestProblem("Poisson, softplus link", of_columns(X, softplus, 1e-3), np.zeros(15))
    Y = families.design(100, 10, rng, spread=5.0)
    positive = rng.gamma(2.0, np.exp(0.7 * Y @ rng.standard_normal(10)) / 2.0)

    def gamma(z: Floats) -> tuple[Floats, Floats]:
        with np.errstate(over="ignore"):
            e = positive * np.exp(-z)
        return e + z, 1.0 - e

    yield ContestProblem("gamma regression", of_columns(Y, gamma), np.zeros(10))
    fun = families.log_sum_exp(families.design(60, 25, rng, spread=10.0), rng.uniform(0.0, 3.0, 60), 0.3)
    yield ContestProblem("log-sum-exp, uneven", fun, np.full(25, 2.0))


def _functions() -> Iterator[ContestProblem]:
    for name, residuals, start in (
        ("Himmelblau", _himmelblau, [0.5, -1.0]),
        ("cube", _cube, [-1.2, 1.0]),
        ("Dixon and Price", _dixon_price, [3.0] * 10),
        ("chained Rosenbrock", _chained_rosenbrock, [-1.0] * 20),
        ("Zakharov", _zakharov, np.linspace(-1.0, 2.0, 10)),
        ("two exponentials", _two_exponentials, [1.0, 0.5, 1.0, 2.0]),
    ):
        yield ContestProblem(name, of_residuals(residuals), np.array(start))
    yield ContestProblem("ARWHEAD", _arwhead, np.ones(50))
    yield ContestProblem("ENGVAL1", _engval, np.full(50, 2.0))
    yield ContestProblem("Styblinski and Tang", _styblinski_tang, np.linspace(-1.0, 1.0, 10))


def _factorisations_and_networks() -> Iterator[ContestProblem]:
    rng = np.random.default_rng(13)
    A = rng.standard_normal((60, 15))
    noisy = (A @ rng.standard_normal(15)) ** 2 + rng.standard_normal(60)
    yield ContestProblem("phase retrieval, noisy", families.phase_retrieval(A, noisy), 3.0 * rng.standard_normal(15))
    target = rng.standard_normal((15, 3)) * [3.0, 1.0, 0.3] @ rng.standard_normal((3, 10))
    yield ContestProblem("factorisation, uneven", families.low_rank(target, 4), 2.0 * rng.standard_normal(100))
    X = rng.standard_normal((50, 6)) @ rng.standard_normal((6, 6))
    fun = families.network(X, X, (3,), 1e-3)
    yield ContestProblem("autoencoder", fun, families.network_start(6, (3,), 6, rng))
    X = rng.uniform(-1.0, 1.0, (80, 2))
    wanted = np.cos(3.0 * X[:, :1]) * X[:, 1:]
    fun = families.network(X, wanted, (6, 6), 1e-4)
    yield ContestProblem("network of a surface", fun, families.network_start(2, (6, 6), 1, rng))


def _himmelblau(x: Array) -> Array:
    return np.array([x[0] ** 2 + x[1] - 11.0, x[0] + x[1] ** 2 - 7.0])


def _cube(x: Array) -> Array:
    return np.array([x[0] - 1.0, 10.0 * (x[1] - x[0] ** 3)])


def _dixon_price(x: Array) -> Array:
    weights = np.sqrt(np.arange(2.0, len(x) + 1.0))[:, None]
    return np.concatenate([x[:1] - 1.0, weights * (2.0 * x[1:] ** 2 - x[:-1])])


def _chained_rosenbrock(x: Array) -> Array:
    return np.concatenate([10.0 * (x[1:] - x[:-1] ** 2), 1.0 - x[:-1]])


def _zakharov(x: Array) -> Array:
    moment = 0.5 * np.arange(1.0, len(x) + 1.0)[None] @ x
    return np.concatenate([x, moment, moment**2])


def _two_exponentials(x: Array) -> Array:
    t = np.linspace(0.0, 4.0, 25)[:, None]
    y = 2.0 * np.exp(-0.3 * t) + 3.0 * np.exp(-1.5 * t) + 0.05 * np.sin(7.0 * t)
    return x[0] * np.exp(-x[1] * t) + x[2] * np.exp(-x[3] * t) - y


def _arwhead(x: Floats) -> tuple[float, Floats]:
    head, last = x[:-1], x[-1]
    square = head**2 + last**2
    grad = np.append(4.0 * square * head - 4.0, np.sum(4.0 * square) * last)
    return float(np.sum(square**2 - 4.0 * head + 3.0)), grad


def _engval(x: Floats) -> tuple[float, Floats]:
    square = x[:-1] ** 2 + x[1:] ** 2
    grad = np.zeros_like(x)
    grad[:-1] += 4.0 * square * x[:-1] - 4.0
    grad[1:] += 4.0 * square * x[1:]
    return float(np.sum(square**2 - 4.0 * x[:-1] + 3.0)), grad


def _styblinski_tang(x: Floats) -> tuple[float, Floats]:
    return 0.5 * float(np.sum(x**4 - 16.0 * x**2 + 5.0 * x)), 2.0 * x**3 - 16.0 * x + 2.5

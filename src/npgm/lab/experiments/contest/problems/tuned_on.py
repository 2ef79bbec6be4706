"""The suite that auto was tuned on: 52 problems, of kinds that the constants of the method `auto` were chosen on.

25 of them, with data and starts, are of Moré, Garbow and Hillstrom, Testing unconstrained optimization software (1981).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from npgm._common.array import Array, Floats
from npgm.lab.experiments.contest.problems import families
from npgm.lab.experiments.contest.problems.base import ContestProblem, Function, of_residuals


def problems() -> Iterator[ContestProblem]:
    """Yield the problems, always in the same order."""
    yield from _quadratics()
    yield from _regressions()
    yield from _more_garbow_hillstrom()
    yield from _others()


def _quadratics() -> Iterator[ContestProblem]:
    for exponent in range(2, 7):
        rng = np.random.default_rng([1, exponent])
        fun = families.quadratic(np.geomspace(1.0, 10.0**exponent, 100), rng)
        yield ContestProblem(f"quadratic, condition 1e{exponent}", fun, np.zeros(100))
    rng = np.random.default_rng([1, 10])
    fun = families.quadratic(np.linspace(1.0, 1e6, 100), rng)
    yield ContestProblem("quadratic, even spectrum to 1e6", fun, np.zeros(100))
    clusters = np.repeat([1.0, 1e4], 30) * np.linspace(1.0, 1.5, 60)
    yield ContestProblem("quadratic, two clusters", families.quadratic(clusters, rng), np.zeros(60))
    chain = 2.0 * np.eye(100) - np.eye(100, k=1) - np.eye(100, k=-1)
    yield ContestProblem(
        "Laplacian of a chain", families.quadratic_form(chain, rng.standard_normal(100)), np.zeros(100)
    )
    X = families.design(60, 50, rng)
    fun = families.quadratic_form(X.T @ X / 60, rng.standard_normal(50))
    yield ContestProblem("least squares", fun, np.zeros(50))


def _regressions() -> Iterator[ContestProblem]:
    rng = np.random.default_rng(2)
    X = families.design(200, 20, rng)
    yield ContestProblem("logistic regression", families.logistic(X, rng, 1e-2), np.zeros(20))
    X = families.design(200, 50, rng)
    yield ContestProblem("logistic, little penalty", families.logistic(X, rng, 1e-4), np.zeros(50))
    X = families.design(200, 20, rng, spread=100.0)
    yield ContestProblem("logistic, columns to 1/100", families.logistic(X, rng, 1e-4), np.zeros(20))
    X = families.design(200, 20, rng, correlation=0.9)
    yield ContestProblem("logistic, correlated", families.logistic(X, rng, 1e-3), np.zeros(20))
    X = families.design(200, 20, rng)
    yield ContestProblem("logistic, nearly separable", families.logistic(X, rng, 1e-3, noise=0.05), np.zeros(20))
    X = families.design(200, 10, rng)
    yield ContestProblem("softmax regression", families.softmax_regression(X, 4, rng, 1e-3), np.zeros(40))
    X = families.design(100, 20, rng)
    yield ContestProblem("pseudo-Huber regression", families.pseudo_huber(X, rng, 0.5), np.zeros(20))
    X = families.design(100, 10, rng, spread=30.0)
    yield ContestProblem("pseudo-Huber, columns to 1/30", families.pseudo_huber(X, rng, 0.5), np.zeros(10))
    X = families.design(100, 10, rng)
    yield ContestProblem("Cauchy regression", families.cauchy(X, rng, 1.0), np.zeros(10))
    X = families.design(100, 10, rng)
    yield ContestProblem("Poisson regression", families.poisson(X, rng, rate=3.0), np.zeros(10))
    X = families.design(100, 10, rng, spread=10.0)
    yield ContestProblem("Poisson, columns to 1/10", families.poisson(X, rng, rate=20.0), np.zeros(10))


def _more_garbow_hillstrom() -> Iterator[ContestProblem]:
    for name, residuals, start in (
        ("Rosenbrock", _rosenbrock, [-1.2, 1.0]),
        ("Freudenstein and Roth", _freudenstein_roth, [0.5, -2.0]),
        ("Powell badly scaled", _powell_badly_scaled, [0.0, 1.0]),
        ("Brown badly scaled", _brown_badly_scaled, [1.0, 1.0]),
        ("Beale", _beale, [1.0, 1.0]),
        ("Jennrich and Sampson", _jennrich_sampson, [0.3, 0.4]),
        ("helical valley", _helical_valley, [-1.0, 0.0, 0.0]),
        ("Bard", _bard, [1.0, 1.0, 1.0]),
        ("Gaussian", _gaussian, [0.4, 1.0, 0.0]),
        ("Box three-dimensional", _box, [0.0, 10.0, 20.0]),
        ("Powell singular", _powell_singular, [3.0, -1.0, 0.0, 1.0]),
        ("Wood", _wood, [-3.0, -1.0, -3.0, -1.0]),
        ("Kowalik and Osborne", _kowalik_osborne, [0.25, 0.39, 0.415, 0.39]),
        ("Brown and Dennis", _brown_dennis, [25.0, 5.0, -5.0, -1.0]),
        ("Biggs EXP6", _biggs, [1.0, 2.0, 1.0, 1.0, 1.0, 1.0]),
        ("Watson", _watson, [0.0] * 6),
        ("extended Powell singular", _powell_singular, [3.0, -1.0, 0.0, 1.0] * 10),
        ("penalty I", _penalty, np.arange(1.0, 11.0)),
        ("variably dimensioned", _variably_dimensioned, 1.0 - np.arange(1.0, 11.0) / 10.0),
        ("trigonometric", _trigonometric, [0.1] * 10),
        ("Brown almost-linear", _brown_almost_linear, [0.5] * 10),
        ("discrete boundary value", _boundary_value, [i / 31 * (i / 31 - 1) for i in range(1, 31)]),
        ("Broyden tridiagonal", _broyden_tridiagonal, [-1.0] * 40),
        ("Broyden banded", _broyden_banded, [-1.0] * 40),
    ):
        yield ContestProblem(name, of_residuals(residuals), np.array(start))
    yield ContestProblem("extended Rosenbrock", _extended_rosenbrock, np.tile([-1.2, 1.0], 50))


def _others() -> Iterator[ContestProblem]:
    rng = np.random.default_rng(4)
    for name, n, m in (("phase retrieval", 20, 100), ("phase retrieval, few measurements", 30, 15)):
        A = rng.standard_normal((m, n))
        fun = families.phase_retrieval(A, (A @ rng.standard_normal(n)) ** 2)
        yield ContestProblem(name, fun, rng.normal(2.0, 0.5, n))
    for name, smoothing in (("log-sum-exp", 1.0), ("log-sum-exp, sharp", 0.1)):
        fun = families.log_sum_exp(rng.standard_normal((100, 20)), rng.standard_normal(100), smoothing)
        yield ContestProblem(name, fun, np.ones(20))
    for name, inputs, widths, outputs in (("network", 3, (8,), 1), ("network of three layers", 4, (8, 5), 2)):
        fun = _network(inputs, widths, outputs, rng)
        yield ContestProblem(name, fun, families.network_start(inputs, widths, outputs, rng))
    target = rng.standard_normal((12, 2)) @ rng.standard_normal((2, 9)) + 0.1 * rng.standard_normal((12, 9))
    yield ContestProblem("matrix factorisation", families.low_rank(target, 2), rng.standard_normal(42))


def _network(inputs: int, widths: tuple[int, ...], outputs: int, rng: np.random.Generator) -> Function:
    X = rng.uniform(-2.0, 2.0, (60, inputs))
    y = np.sin(X @ rng.standard_normal((inputs, outputs))) + 0.1 * rng.standard_normal((60, outputs))
    return families.network(X, y, widths, 1e-4)


def _extended_rosenbrock(x: Floats) -> tuple[float, Floats]:
    a, b = 1.0 - x[::2], x[1::2] - x[::2] ** 2
    grad = np.empty_like(x)
    grad[::2], grad[1::2] = -2.0 * a - 400.0 * x[::2] * b, 200.0 * b
    return float(a @ a + 100.0 * (b @ b)), grad


def _rosenbrock(x: Array) -> Array:
    return np.array([10.0 * (x[1] - x[0] ** 2), 1.0 - x[0]])


def _freudenstein_roth(x: Array) -> Array:
    a, b = x
    return np.array([-13.0 + a + ((5.0 - b) * b - 2.0) * b, -29.0 + a + ((b + 1.0) * b - 14.0) * b])


def _powell_badly_scaled(x: Array) -> Array:
    return np.array([1e4 * x[0] * x[1] - 1.0, np.exp(-x[0]) + np.exp(-x[1]) - 1.0001])


def _brown_badly_scaled(x: Array) -> Array:
    return np.array([x[0] - 1e6, x[1] - 2e-6, x[0] * x[1] - 2.0])


def _beale(x: Array) -> Array:
    return np.array([y - x[0] * (1.0 - x[1] ** i) for i, y in ((1, 1.5), (2, 2.25), (3, 2.625))])


def _jennrich_sampson(x: Array) -> Array:
    i = np.arange(1.0, 11.0)[:, None]
    return 2.0 + 2.0 * i - (np.exp(i * x[0]) + np.exp(i * x[1]))


def _helical_valley(x: Array) -> Array:
    angle = np.arctan(x[1] / x[0]) / (2.0 * np.pi) + np.where(x[0].real < 0.0, 0.5, 0.0)
    return np.array([10.0 * (x[2] - 10.0 * angle), 10.0 * (np.sqrt(x[0] ** 2 + x[1] ** 2) - 1.0), x[2]])


_BARD = np.array([0.14, 0.18, 0.22, 0.25, 0.29, 0.32, 0.35, 0.39, 0.37, 0.58, 0.73, 0.96, 1.34, 2.1, 4.39])[:, None]


def _bard(x: Array) -> Array:
    u = np.arange(1.0, 16.0)[:, None]
    v = 16.0 - u
    return _BARD - (x[0] + u / (v * x[1] + np.minimum(u, v) * x[2]))


_GAUSSIAN = np.array([0.0009, 0.0044, 0.0175, 0.054, 0.1295, 0.242, 0.3521, 0.3989])


def _gaussian(x: Array) -> Array:
    t, y = (8.0 - np.arange(1.0, 16.0)[:, None]) / 2.0, np.concatenate([_GAUSSIAN, _GAUSSIAN[-2::-1]])[:, None]
    return x[0] * np.exp(-0.5 * x[1] * (t - x[2]) ** 2) - y


def _box(x: Array) -> Array:
    t = 0.1 * np.arange(1.0, 11.0)[:, None]
    return np.exp(-t * x[0]) - np.exp(-t * x[1]) - x[2] * (np.exp(-t) - np.exp(-10.0 * t))


def _powell_singular(x: Array) -> Array:
    a, b, c, d = x[::4], x[1::4], x[2::4], x[3::4]
    return np.concatenate([a + 10.0 * b, np.sqrt(5.0) * (c - d), (b - 2.0 * c) ** 2, np.sqrt(10.0) * (a - d) ** 2])


def _wood(x: Array) -> Array:
    a, b, c, d = x
    root = np.sqrt(10.0)
    return np.array([
        10.0 * (b - a**2), 1.0 - a, np.sqrt(90.0) * (d - c**2), 1.0 - c, root * (b + d - 2.0), (b - d) / root,
    ])  # fmt: skip


_KOWALIK_Y = np.array([0.1957, 0.1947, 0.1735, 0.16, 0.0844, 0.0627, 0.0456, 0.0342, 0.0323, 0.0235, 0.0246])[:, None]
_KOWALIK_U = np.array([4.0, 2.0, 1.0, 0.5, 0.25, 0.167, 0.125, 0.1, 0.0833, 0.0714, 0.0625])[:, None]


def _kowalik_osborne(x: Array) -> Array:
    u = _KOWALIK_U
    return _KOWALIK_Y - x[0] * (u**2 + u * x[1]) / (u**2 + u * x[2] + x[3])


def _brown_dennis(x: Array) -> Array:
    t = np.arange(1.0, 21.0)[:, None] / 5.0
    return (x[0] + t * x[1] - np.exp(t)) ** 2 + (x[2] + x[3] * np.sin(t) - np.cos(t)) ** 2


def _biggs(x: Array) -> Array:
    t = 0.1 * np.arange(1.0, 14.0)[:, None]
    y = np.exp(-t) - 5.0 * np.exp(-10.0 * t) + 3.0 * np.exp(-4.0 * t)
    return x[2] * np.exp(-t * x[0]) - x[3] * np.exp(-t * x[1]) + x[5] * np.exp(-t * x[4]) - y


_WATSON_POWERS = (np.arange(1.0, 30.0)[:, None] / 29.0) ** np.arange(6.0)
_WATSON_SLOPES = np.arange(1.0, 6.0) * _WATSON_POWERS[:, :5]


def _watson(x: Array) -> Array:
    curve = _WATSON_SLOPES @ x[1:] - (_WATSON_POWERS @ x) ** 2 - 1.0
    return np.concatenate([curve, x[:1], x[1:2] - x[:1] ** 2 - 1.0])


def _penalty(x: Array) -> Array:
    return np.concatenate([np.sqrt(1e-5) * (x - 1.0), np.sum(x**2, axis=0, keepdims=True) - 0.25])


def _variably_dimensioned(x: Array) -> Array:
    moment = np.arange(1.0, len(x) + 1.0)[None] @ (x - 1.0)
    return np.concatenate([x - 1.0, moment, moment**2])


def _trigonometric(x: Array) -> Array:
    i = np.arange(1.0, len(x) + 1.0)[:, None]
    return len(x) - np.sum(np.cos(x), axis=0) + i * (1.0 - np.cos(x)) - np.sin(x)


def _brown_almost_linear(x: Array) -> Array:
    linear = x[:-1] + np.sum(x, axis=0) - (len(x) + 1.0)
    return np.concatenate([linear, np.prod(x, axis=0, keepdims=True) - 1.0])


def _boundary_value(x: Array) -> Array:
    h = 1.0 / (len(x) + 1)
    t = h * np.arange(1.0, len(x) + 1.0)[:, None]
    padded = np.pad(x, ((1, 1), (0, 0)))
    return 2.0 * x - padded[:-2] - padded[2:] + 0.5 * h**2 * (x + t + 1.0) ** 3


def _broyden_tridiagonal(x: Array) -> Array:
    padded = np.pad(x, ((1, 1), (0, 0)))
    return (3.0 - 2.0 * x) * x - padded[:-2] - 2.0 * padded[2:] + 1.0


def _broyden_banded(x: Array) -> Array:
    n = len(x)
    band = np.tri(n, k=1) - np.tri(n, k=-6) - np.eye(n)
    return x * (2.0 + 5.0 * x**2) + 1.0 - band @ (x * (1.0 + x))

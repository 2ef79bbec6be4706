"""Families of problems, by their data: what both suites draw from, each with its own."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.special import expit

from npgm._common.array import Floats
from npgm.lab.experiments.contest.problems.base import Function, of_columns


def quadratic(eigenvalues: Floats, rng: np.random.Generator) -> Function:
    """Return ½ (x-b)ᵀ A (x-b), A of the given eigenvalues in a random basis, b normal."""
    n = len(eigenvalues)
    basis = np.linalg.qr(rng.standard_normal((n, n)))[0]
    return quadratic_form(basis * eigenvalues @ basis.T, rng.standard_normal(n))


def quadratic_form(A: Floats, b: Floats) -> Function:
    """Return ½ (x-b)ᵀ A (x-b)."""

    def fun(x: Floats) -> tuple[float, Floats]:
        grad = A @ (x - b)
        return 0.5 * float(grad @ (x - b)), grad

    return fun


def design(m: int, n: int, rng: np.random.Generator, *, spread: float = 1.0, correlation: float = 0.0) -> Floats:
    """Return a normal matrix.

    Args:
        m, n: its shape.
        rng: the generator.
        spread: the ratio of the largest to the least scale of a column.
        correlation: that of any two columns, before they are scaled.
    """
    common = rng.standard_normal((m, 1))
    columns = np.sqrt(1.0 - correlation) * rng.standard_normal((m, n)) + np.sqrt(correlation) * common
    return np.asarray(columns * np.geomspace(1.0, 1.0 / spread, n))


def logistic(X: Floats, rng: np.random.Generator, l2: float, *, noise: float = 1.0) -> Function:
    """Return logistic regression, on labels from a normal x."""
    signal = X @ rng.standard_normal(X.shape[1])
    labels = np.sign(signal / np.std(signal) + noise * rng.logistic(size=len(X)))

    def loss(z: Floats) -> tuple[Floats, Floats]:
        return np.logaddexp(0.0, -labels * z), -labels * expit(-labels * z)

    return of_columns(X, loss, l2)


def softmax_regression(X: Floats, classes: int, rng: np.random.Generator, l2: float) -> Function:
    """Return multinomial regression, on labels from normal weights; x holds a weight a feature and class."""
    m, n = X.shape
    labels = np.argmax(X @ rng.standard_normal((n, classes)) + rng.gumbel(size=(m, classes)), axis=1)
    hot = np.eye(classes)[labels]

    def fun(x: Floats) -> tuple[float, Floats]:
        scores = X @ x.reshape(n, classes)
        scores -= scores.max(axis=1, keepdims=True)
        weights = np.exp(scores)
        total = weights.sum(axis=1, keepdims=True)
        f = np.mean(np.log(total[:, 0]) - np.sum(hot * scores, axis=1)) + 0.5 * l2 * (x @ x)
        return float(f), (X.T @ (weights / total - hot) / m).ravel() + l2 * x

    return fun


def pseudo_huber(X: Floats, rng: np.random.Generator, delta: float) -> Function:
    """Return regression with the loss δ²(√(1 + (r/δ)²) - 1), on data with outliers."""
    y = _with_outliers(X, rng)

    def loss(z: Floats) -> tuple[Floats, Floats]:
        root = np.sqrt(1.0 + ((z - y) / delta) ** 2)
        return delta**2 * (root - 1.0), (z - y) / root

    return of_columns(X, loss)


def cauchy(X: Floats, rng: np.random.Generator, width: float) -> Function:
    """Return regression with the loss of Cauchy's density, ln(1 + (r/width)²), which is not convex."""
    y = _with_outliers(X, rng)

    def loss(z: Floats) -> tuple[Floats, Floats]:
        r = (z - y) / width
        return np.log1p(r * r), 2.0 * r / (1.0 + r * r) / width

    return of_columns(X, loss)


def poisson(X: Floats, rng: np.random.Generator, *, rate: float) -> Function:
    """Return Poisson regression with the canonical link, eᶻ - yz, on counts about ``rate``."""
    signal = X @ rng.standard_normal(X.shape[1])
    y = rng.poisson(rate * np.exp(signal / np.std(signal)))

    def loss(z: Floats) -> tuple[Floats, Floats]:
        with np.errstate(over="ignore"):
            e = np.exp(z)
        return e - y * z, e - y

    return of_columns(X, loss)


def log_sum_exp(A: Floats, b: Floats, smoothing: float) -> Function:
    """Return μ ln Σ exp((Ax - b)/μ), a smooth maximum."""

    def fun(x: Floats) -> tuple[float, Floats]:
        z = (A @ x - b) / smoothing
        top = z.max()
        e = np.exp(z - top)
        total = e.sum()
        return float(smoothing * (top + np.log(total))), A.T @ (e / total)

    return fun


def phase_retrieval(A: Floats, y: Floats) -> Function:
    """Return the mean of ((aᵀx)² - y)²/4."""

    def loss(z: Floats) -> tuple[Floats, Floats]:
        return 0.25 * (z * z - y) ** 2, (z * z - y) * z

    return of_columns(A, loss)


def network(X: Floats, y: Floats, widths: tuple[int, ...], l2: float) -> Function:
    """Return the mean square error of a tanh network with biases, halved; x has the layers' matrices one by one.

    Args:
        X: the inputs, one a row.
        y: the outputs wanted, likewise.
        widths: of the hidden layers.
        l2: the weight of ‖x‖²/2.
    """
    sizes = (X.shape[1], *widths, y.shape[1])
    shapes = [(a + 1, b) for a, b in pairwise(sizes)]
    ends = np.cumsum([a * b for a, b in shapes])

    def with_ones(h: Floats) -> Floats:
        return np.hstack([h, np.ones((len(h), 1))])

    def fun(x: Floats) -> tuple[float, Floats]:
        matrices = [part.reshape(shape) for part, shape in zip(np.split(x, ends[:-1]), shapes, strict=True)]
        inputs, h = [], X
        for i, W in enumerate(matrices):
            inputs.append(with_ones(h))
            z = inputs[-1] @ W
            h = z if i == len(matrices) - 1 else np.tanh(z)
        residual = h - y
        f = 0.5 * np.sum(residual**2) / len(X) + 0.5 * l2 * (x @ x)
        slope, grads = residual / len(X), []
        for i in reversed(range(len(matrices))):
            grads.append((inputs[i].T @ slope).ravel())
            if i:
                slope = (slope @ matrices[i][:-1].T) * (1.0 - inputs[i][:, :-1] ** 2)
        return float(f), np.concatenate(grads[::-1]) + l2 * x

    return fun


def network_start(inputs: int, widths: tuple[int, ...], outputs: int, rng: np.random.Generator) -> Floats:
    """Return normal weights of variance 1/fan-in, and biases of zero."""
    sizes = (inputs, *widths, outputs)
    layers = [np.vstack([rng.standard_normal((a, b)) / np.sqrt(a), np.zeros((1, b))]) for a, b in pairwise(sizes)]
    return np.concatenate([layer.ravel() for layer in layers])


def low_rank(target: Floats, rank: int) -> Function:
    """Return ‖XYᵀ - target‖²/2; x has X and Y one after the other, a row of the target and a column each."""
    m, n = target.shape

    def fun(x: Floats) -> tuple[float, Floats]:
        X, Y = x[: m * rank].reshape(m, rank), x[m * rank :].reshape(n, rank)
        residual = X @ Y.T - target
        return 0.5 * float(np.sum(residual**2)), np.concatenate([(residual @ Y).ravel(), (residual.T @ X).ravel()])

    return fun


def _with_outliers(X: Floats, rng: np.random.Generator) -> Floats:
    """Return X z plus noise, a tenth of it of 20 times the size."""
    noise = 0.5 * rng.standard_normal(len(X))
    noise[: len(X) // 10] *= 20.0
    return np.asarray(X @ rng.standard_normal(X.shape[1]) + noise)

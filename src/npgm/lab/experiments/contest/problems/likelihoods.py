"""Negative log-likelihoods on the data that scikit-learn brings along, per observation, with columns as they are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.special import digamma, expit, gammaln, log_ndtr

from npgm._common.array import Bools, Floats
from npgm.lab.experiments.contest.problems.base import ContestProblem, Function, of_columns

RIDGE = 1e-6
"""The weight of ½‖x‖² where classes can be told apart, so that a minimiser exists."""


def problems() -> Iterator[ContestProblem]:
    """Yield the problems, always in the same order.

    Raises:
        ModuleNotFoundError: if scikit-learn is not installed.
    """
    from sklearn import datasets

    def table(name: str) -> tuple[Floats, Floats]:
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        return np.hstack([X, np.ones((len(X), 1))]), np.asarray(y, dtype=np.float64)

    diabetes, progression = table("diabetes")
    high = np.where(progression > np.median(progression), 1.0, -1.0)
    cancer, benign = table("breast_cancer")
    iris, species = table("iris")
    wine, cultivar = table("wine")
    digits, digit = table("digits")
    gym, exercises = table("linnerud")[::-1]  # chin-ups, sit-ups and jumps by weight, waist and pulse
    gym, exercises = np.hstack([gym, np.ones((len(gym), 1))]), exercises[:, :-1]

    functions = {
        "logistic, diabetes": (logistic(diabetes, high), 11),
        "logistic, breast cancer": (logistic(cancer, 2.0 * benign - 1.0), 31),
        "logistic, wine": (logistic(wine, np.where(cultivar == 1.0, 1.0, -1.0)), 14),
        "probit, diabetes": (probit(diabetes, high), 11),
        "probit, breast cancer": (probit(cancer, 2.0 * benign - 1.0), 31),
        "Poisson, diabetes": (poisson(diabetes, progression), 11),
        "Poisson, chin-ups": (poisson(gym, exercises[:, 0]), 4),
        "Poisson, sit-ups": (poisson(gym, exercises[:, 1]), 4),
        "negative binomial, diabetes": (negative_binomial(diabetes, progression), 12),
        "negative binomial, chin-ups": (negative_binomial(gym, exercises[:, 0]), 5),
        "negative binomial, sit-ups": (negative_binomial(gym, exercises[:, 1]), 5),
        "Cox, diabetes": (cox(diabetes[:, :-1], progression, progression < 200.0), 10),
        "Cox, wine by alcohol": (cox(wine[:, 1:-1], wine[:, 0], wine[:, 0] < 14.0), 12),
        "multinomial, iris": (multinomial(iris, species), 15),
        "multinomial, wine": (multinomial(wine, cultivar), 42),
        "multinomial, digits 0 to 2": (multinomial(digits[digit < 3.0], digit[digit < 3.0]), 195),
    }
    for name, (fun, n) in functions.items():
        yield ContestProblem(name, fun, np.zeros(n))


def logistic(X: Floats, labels: Floats) -> Function:
    """Return logistic regression on labels of ±1."""

    def loss(z: Floats) -> tuple[Floats, Floats]:
        return np.logaddexp(0.0, -labels * z), -labels * expit(-labels * z)

    return of_columns(X, loss, RIDGE)


def probit(X: Floats, labels: Floats) -> Function:
    """Return probit regression on labels of ±1."""

    def loss(z: Floats) -> tuple[Floats, Floats]:
        log_share = log_ndtr(labels * z)
        return -log_share, -labels * np.exp(-0.5 * z * z - 0.5 * np.log(2.0 * np.pi) - log_share)

    return of_columns(X, loss, RIDGE)


def poisson(X: Floats, counts: Floats) -> Function:
    """Return Poisson regression with the canonical link."""

    def loss(z: Floats) -> tuple[Floats, Floats]:
        with np.errstate(over="ignore"):
            mean = np.exp(z)
        return mean - counts * z + gammaln(counts + 1.0), mean - counts

    return of_columns(X, loss)


def negative_binomial(X: Floats, counts: Floats) -> Function:
    """Return negative binomial regression with the link of Poisson's; the last variable is minus ln of its shape r.

    The variance of a count of mean μ is μ + μ²/r.
    """

    def fun(x: Floats) -> tuple[float, Floats]:
        z, log_r = X @ x[:-1], -x[-1]
        with np.errstate(over="ignore", invalid="ignore"):
            mean, r = np.exp(z), np.exp(log_r)
            log_total = np.logaddexp(log_r, z)
            losses = gammaln(r) - gammaln(counts + r) + gammaln(counts + 1.0) + (counts + r) * log_total
            losses -= r * log_r + counts * z
            share = (counts + r) / (mean + r)
            shape = digamma(r) - digamma(counts + r) + log_total - log_r + share - 1.0
            slopes = mean * share - counts
        return float(np.mean(losses)), np.append(X.T @ slopes / len(X), -r * np.mean(shape))

    return fun


def cox(X: Floats, times: Floats, seen: Bools) -> Function:
    """Return Cox's partial likelihood, with ties as Breslow has them; times not ``seen`` to end are censored."""
    order = np.argsort(-times, kind="stable")
    X, times, events = X[order] - X.mean(axis=0), times[order], seen[order].astype(np.float64)
    at_risk = np.searchsorted(-times, -times, side="right") - 1  # the last of those whose time is as long or longer

    with np.errstate(divide="ignore"):
        log_ends = np.log(np.bincount(at_risk, events, len(times)))

    def fun(x: Floats) -> tuple[float, Floats]:
        z = X @ x
        log_totals = np.logaddexp.accumulate(z)
        f = np.sum(events * (log_totals[at_risk] - z)) / events.sum()
        log_shares = np.logaddexp.accumulate((log_ends - log_totals)[::-1])[::-1]
        return float(f), X.T @ (np.exp(z + log_shares) - events) / events.sum()

    return fun


def multinomial(X: Floats, classes: Floats) -> Function:
    """Return multinomial regression; x holds a weight a column and class."""
    hot = np.eye(int(classes.max()) + 1)[classes.astype(int)]

    def fun(x: Floats) -> tuple[float, Floats]:
        scores = X @ x.reshape(X.shape[1], -1)
        scores -= scores.max(axis=1, keepdims=True)
        totals = np.sum(np.exp(scores), axis=1, keepdims=True)
        f = np.mean(np.log(totals[:, 0]) - np.sum(hot * scores, axis=1)) + 0.5 * RIDGE * (x @ x)
        return float(f), (X.T @ (np.exp(scores) / totals - hot) / len(X)).ravel() + RIDGE * x

    return fun

"""Runs whose stepsizes a rule found, held to the bounds that need no L."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import npgm
from npgm.problems import registry
from npgm.solvers import History
from npgm.solvers.methods.npgm import NPGM
from npgm.theory import certify

PHI = npgm.reference("isotropic-cosh")


def known(method, rule):
    """Return a method that finds its stepsize by a rule."""
    object.__setattr__(method, "lr", rule)
    return method


def backtracking(problem, x, momentum, steps=60):
    """The heavy ball with the descent test, spelled out."""
    m, lr, records = np.zeros_like(x), 50.0, []
    for _ in range(steps):
        f, grad = problem(x)
        u = PHI.precondition(grad)
        following = momentum * m + (1 - momentum) * u
        taken = problem(x - lr * following)[0] <= f + lr * PHI(u - following) - lr * PHI(u)
        records.append((f, PHI.stationarity(grad), lr, taken, PHI(m)))
        x, m, lr = (x - lr * following, following, lr) if taken else (x, m, 0.5 * lr)
    names = ("fun", "stationarity", "lr", "taken", "momentum")
    return dict(zip(names, map(np.array, zip(*records, strict=True)), strict=True))


@pytest.mark.parametrize("momentum", [0.0, 0.25, 0.45])
@pytest.mark.parametrize("key", ["quartic", "double-well", "quadratic"])
def test_backtracking_is_certified_without_a_constant(key, momentum):
    problem = registry[key]()
    arrays = backtracking(problem, problem.start, momentum)
    method = known(NPGM(1.0, momentum, PHI), SimpleNamespace(key="backtracking"))
    result = certify.auto(History(arrays, method), minimum=0.0)
    certificate = next(c for c in result.certificates if c.bound.theorem == "Theorem 2.2, variable stepsizes")
    assert certificate.holds
    assert len(certificate.observed) == arrays["taken"][:-1].sum() < len(arrays["taken"]) - 1
    total = np.sum((arrays["lr"] * arrays["stationarity"])[:-1][arrays["taken"][:-1]])
    assert total <= arrays["fun"][0] / (1 - 2 * momentum)
    gammas = arrays["lr"][:-1][arrays["taken"][:-1]]
    assert certificate.observed[-1] == pytest.approx(total / gammas.sum())
    # the same arrays of another method, or a measure that is too large
    assert "descent test" in certify.auto(History(arrays, NPGM(1.0)), minimum=0.0).refused[certificate.bound.theorem]
    wrong = {**arrays, "stationarity": 1e4 * arrays["stationarity"]}
    assert certify.auto(History(wrong, method), minimum=0.0).verdict == "violated"


def test_nonmonotone_descent_is_read_off_the_history():
    problem = registry["quadratic"]()
    history = npgm.minimize(problem, problem.start, lr=0.04, reference=PHI, maxiter=80, tol=0.0, history=True).history
    assert np.isfinite(certify.auto(history, minimum=0.0).certificates[0].bound.values).all()  # W = 1 was enough
    result = certify.auto(history, minimum=0.0, window=10)
    assert result.holds
    (certificate,) = result.certificates
    assert certificate.bound.theorem == "Nonmonotone descent"
    assert np.isnan(certificate.bound.values[:9]).all()
    tight = certify.auto(history, minimum=0.0, window=1, decrease=1.0)
    assert tight.holds
    assert tight.certificates[0].ratio > certificate.ratio
    jumping = History(
        {**history, "fun": np.where(np.arange(len(history["fun"])) == 30, 1e3, history["fun"])}, history.method
    )
    result = certify.auto(jumping, minimum=0.0)
    assert result.verdict == "refused"
    assert "step 29 does not" in result.refused["Nonmonotone descent"]
    whole = npgm.minimize(problem, problem.start, method="adgd", history=True).history
    with pytest.raises(ValueError, match="history has no 'lr'"):
        certify.auto(History({name: whole[name] for name in ("fun", "stationarity")}, whole.method), minimum=0.0)


@pytest.mark.parametrize(
    "options", [{}, {"lr": "auto"}, {"lr": "backtracking", "momentum": 0.3}, {"lr": "backtracking"}]
)
@pytest.mark.parametrize("key", ["quartic", "double-well", "quadratic"])
def test_the_rules_of_the_solvers_are_certified(key, options):
    problem = registry[key]()
    history = npgm.minimize(problem, problem.start, tol=1e-8, maxiter=200, history=True, **options).history
    result = certify.auto(history, minimum=0.0)
    assert result.holds, result.refused
    backtracks = options.get("lr") == "backtracking"
    assert ("Theorem 2.2, variable stepsizes" in {c.bound.theorem for c in result.certificates}) == backtracks
    assert "Nonmonotone descent" in {c.bound.theorem for c in result.certificates} or backtracks
    assert not certify.deterministic(history, smoothness=5.0, minimum=0.0).certificates

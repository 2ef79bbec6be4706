"""Runs whose stepsizes a rule found, held to the bounds that need no L."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import npgm
from npgm.problems import registry
from npgm.solvers import History
from npgm.solvers.methods.npgm import NPGM
from npgm.theory import bounds, certify
from npgm.theory.bounds import AssumptionError

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
    assert "descent test" in certify.auto(History(arrays, NPGM("auto")), minimum=0.0).refused[certificate.bound.theorem]
    wrong = {**arrays, "stationarity": 1e4 * arrays["stationarity"]}
    assert certify.auto(History(wrong, method), minimum=0.0).verdict == "violated"


@pytest.mark.parametrize("momentum", [0.5, 0.9])
@pytest.mark.parametrize("key", ["quartic", "double-well", "quadratic"])
def test_backtracking_with_any_momentum_is_certified(key, momentum):
    """Theorem B with stepsizes that vary; its second test, that of ‖u⁺ - u‖, is checked along the run."""
    problem, points = registry[key](), []
    result = npgm.minimize(
        problem, problem.start, lr="backtracking", momentum=momentum, reference=PHI, maxiter=60, tol=0.0, history=True,
        callback=points.append,
    )  # fmt: skip
    report = certify.auto(result.history, minimum=0.0)
    name = "Theorem B, variable stepsizes"
    certificate = next(c for c in report.certificates if c.bound.theorem == name)
    assert report.holds
    assert 0.1 < certificate.ratio < 1.0
    taken = result.history["taken"][:-1]
    x = np.stack([problem.start, *points])
    u = PHI.precondition(problem(x)[1], axis=-1)
    change, step = (np.linalg.norm(np.diff(v, axis=0), axis=-1)[taken] for v in (u, x))
    m = step / result.history["lr"][:-1][taken]
    assert (momentum * change <= 3**-0.5 * (1 - momentum) * m * (1 + 1e-6)).all()
    assert (np.diff(result.history["lr"][:-1]) <= 0.0).all()
    larger = np.where(np.arange(len(x)) > 0, 1e4, 1.0) * result.history["stationarity"]
    wrong = {**result.history, "stationarity": larger}
    with pytest.raises(ValueError, match="'stationarity' of the history is not that of its 'grad_norm'"):
        certify.auto(History(wrong, result.history.method), minimum=0.0)
    del wrong["grad_norm"]
    assert certify.auto(History(wrong, result.history.method), minimum=0.0).verdict == "violated"


def test_what_the_variable_form_of_theorem_b_refuses():
    arguments = {"stepsizes": [1.0, 0.5], "tau": 0.5, "gap": 1.0, "first": 1.0}
    bound = bounds.momentum_after_variable(PHI, momentum=0.5, **arguments)
    np.testing.assert_allclose(bound.values, 1.5 / 0.75 / np.array([1.0, 1.5]))
    for options, message in (
        ({"stepsizes": [1.0, 1.1]}, "γ rises at step 1"),
        ({"tau": 1.0}, "τ < 1"),
        ({"reference": npgm.reference("separable-cosh")}, "φ isotropic"),
    ):
        with pytest.raises(AssumptionError, match=message):
            bounds.momentum_after_variable(**({"reference": PHI, "momentum": 0.5} | arguments | options))
    problem = registry["quartic"]()
    history = npgm.minimize(problem, problem.start, lr="backtracking", momentum=0.3, maxiter=9, history=True).history
    assert "made for β >= 1/2" in certify.auto(history, minimum=0.0).refused["Theorem B, variable stepsizes"]


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

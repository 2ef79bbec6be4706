"""Theorems A, A' and B against random runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import npgm
from npgm.solvers import History
from npgm.theory import bounds, certify
from npgm.theory.bounds import AssumptionError

SHAPE = (3, 2)
FULL = [
    f"{lift}-{kernel}" for lift in ("isotropic", "separable", "spectral") for kernel in ("cosh", "exp", "mix3", "mix4")
]
BOUNDED = [
    f"{lift}-{kernel}"
    for lift in ("isotropic", "separable", "spectral")
    for kernel in ("log", "sqrt", "lncos", "huber", "artanh")
]
NOISES = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "skewed": lambda rng, n: np.where(rng.random(n) < 0.9, -1.0 / 3.0, 3.0),
    "heavy": lambda rng, n: rng.standard_t(3.0, n) / 3.0**0.5,
}


def reference(name, scale=1.0):
    phi = npgm.reference(name, scale=scale)
    return npgm.Blocks(phi, [SHAPE]) if phi.lift == "spectral" else phi


def least_squares(seed):
    """A random convex quadratic with the Lipschitz constant 2 and the minimum 0, and a start."""
    rng = np.random.default_rng(seed)
    q = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    H = q @ np.diag(np.geomspace(0.02, 2.0, 6)) @ q.T
    return (lambda x: (0.5 * x @ H @ x, H @ x)), 10.0 ** rng.uniform(-1, 1.5) * rng.standard_normal(6)


def of_theorem(report, name):
    assert name not in report.refused, report.refused
    return next(c for c in report.certificates if c.bound.theorem == name)


def runs_before(names, theorem, trials):
    """Return the ratios of random stochastic runs and the bound, without a margin."""
    ratios, (iterations, seeds) = [], (60, 8) if trials > 10 else (15, 3)
    for i in range(trials):
        rng = np.random.default_rng(i)
        f, start = least_squares(i)
        phi = reference(names[i % len(names)], 10.0 ** rng.uniform(-1, 1))
        beta, noise = (0.0, 0.3, 0.9, 0.99)[rng.integers(4)], NOISES[[*NOISES][i % 3]]
        sigma = 10.0 ** rng.uniform(-1, 1)
        history = certify.simulate(
            f, lambda rng, x: f(x)[1] + sigma / 6**0.5 * noise(rng, 6), phi, start,  # noqa: B023
            lr=(1 - beta) * phi.scale / 2.0, iterations=iterations, seeds=range(seeds), momentum=beta,
        )  # fmt: skip
        report = certify.stochastic(
            history, smoothness=2.0 / phi.scale, variance=sigma**2, minimum=0.0, gradient_lipschitz=2.0
        )
        assert report.verdict == "holds"
        certificate = of_theorem(report, theorem)
        ratios.append(np.max(certificate.observed / certificate.bound.values))
    return np.array(ratios)


@pytest.mark.parametrize("trials", [5, pytest.param(36, marks=pytest.mark.slow)])
def test_theorem_a_holds_on_random_runs(trials):
    assert runs_before(FULL, "Theorem A", trials).max() < 1.0


def test_theorem_a_is_tight_for_the_quadratic_kernel():
    f, _ = least_squares(0)
    phi = npgm.reference("isotropic-quad")
    # along the steepest eigenvector
    start = np.linalg.eigh(np.stack([f(e)[1] for e in np.eye(6)]))[1][:, -1]
    history = certify.simulate(f, lambda rng, x: f(x)[1], phi, start, lr=0.5, iterations=3, seeds=range(3))
    report = certify.stochastic(history, smoothness=2.0, variance=0.0, minimum=0.0, gradient_lipschitz=2.0)
    certificate = of_theorem(report, "Theorem A")
    assert 0.4 < np.max(certificate.observed / certificate.bound.values) <= 1.0


@pytest.mark.parametrize("trials", [9, pytest.param(36, marks=pytest.mark.slow)])
def test_theorem_a_prime_holds_on_random_runs(trials):
    assert runs_before(BOUNDED, "Theorem A'", trials).max() < 1.0


@pytest.mark.parametrize(("name", "entries"), [("isotropic-log", 1), ("separable-log", 6), ("spectral-log", 2)])
def test_theorem_a_prime_has_the_radius_of_its_lift(name, entries):
    f, start = least_squares(0)
    phi = reference(name)
    history = npgm.minimize(
        f, start, reference=phi, lr=0.01, momentum=0.5, momentum_order="before", maxiter=20, history=True
    ).history
    bound = of_theorem(
        certify.deterministic(history, smoothness=2.0, gradient_lipschitz=2.0, minimum=0.0), "Theorem A'"
    )
    # the largest Euclidean norm of a direction far away
    radius = np.linalg.norm(phi.precondition(1e9 * np.random.default_rng(0).standard_normal(6)))
    assert radius == pytest.approx(entries**0.5)
    first = np.linalg.norm(f(start)[1])
    last = f(start)[0] / (0.01 * 21) + 2 * radius * first / 21 + 4 * radius**2 * 0.01 + radius**2 * 0.01
    assert bound.bound.values[-1] == pytest.approx(last)
    conjugates = [phi.conjugate(f(start)[1])]
    np.testing.assert_allclose(bound.observed[:1], conjugates)


@pytest.mark.parametrize(
    ("options", "theorem"),
    [
        ({"lr": 0.01, "momentum_order": "before"}, "Theorem A"),
        ({"lr": 0.01, "momentum_order": "before", "reference": "separable-log"}, "Theorem A'"),
        ({"lr": "backtracking"}, "Theorem 2.2, variable stepsizes"),
    ],
)
def test_histories_with_momentum_have_their_heads(options, theorem):
    f, start = least_squares(0)
    history = npgm.minimize(f, start, momentum=0.4, maxiter=40, tol=0.0, history=True, **options).history
    cut = History({name: values[5:] for name, values in history.items()}, history.method, size=6)

    def report(history):
        if theorem.startswith("Theorem A"):
            return certify.deterministic(history, smoothness=2.0, gradient_lipschitz=2.0, minimum=0.0)
        return certify.auto(history, minimum=0.0)

    assert of_theorem(report(history), theorem).holds
    assert "assumes the history from the start on" in report(cut).refused[theorem]


def test_a_stochastic_history_has_its_head():
    f, start = least_squares(0)
    history = certify.simulate(
        f, lambda rng, x: f(x)[1], "isotropic-cosh", start, lr=0.1, iterations=9, seeds=range(3), momentum=0.5
    )
    cut = History(
        {name: history[name][4:] for name in history if name not in ("batch", "seeds")}, history.method, size=6
    )
    report = certify.stochastic(cut, smoothness=2.0, variance=1.0, minimum=0.0, gradient_lipschitz=2.0)
    assert "assumes the history from the start on" in report.refused["Theorem A"]


@pytest.mark.parametrize("batch", [1, 3])
def test_variance_reduction_is_that_of_storm(batch):
    problem, phi = npgm.problems.registry["two-quadratics"](), npgm.reference("isotropic-log", scale=2.0)
    options = {"lr": 0.3, "momentum": 0.8, "iterations": 12, "seeds": [5, 8], "batch": batch}
    history = certify.simulate(problem, problem.sample, phi, problem.start, variance_reduction=True, **options)
    for column, seed in enumerate(options["seeds"]):
        # a factor for each of the two quadratics in a batch: how often it was drawn
        draws = np.random.default_rng(seed).integers(2, size=(12, batch))
        x = last = problem.start
        m = None
        for k, drawn in enumerate(draws):
            assert history["fun"][k, column] == pytest.approx(problem(x)[0], rel=1e-12)
            here, before = (np.mean([problem.gradients(z)[i] for i in drawn], axis=0) for z in (x, last))
            m = here if m is None else here + 0.8 * (m - before)
            last, x = x, x - 0.3 * phi.precondition(m)
    report = certify.stochastic(history, smoothness=1.5, variance=1.0, minimum=3.0, gradient_lipschitz=3.0)
    assert report.verdict == "refused"
    assert "variance reduction" in report.refused["Theorem A'"]


def test_theorem_a_prime_is_tight_far_from_a_minimiser():
    phi = npgm.reference("isotropic-huber")
    history = npgm.minimize(
        lambda x: (0.5 * x @ x, x), np.array([30.0]), reference=phi, lr=0.05, momentum=0.1, momentum_order="before",
        maxiter=700, tol=0.0, history=True,
    ).history  # fmt: skip
    report = certify.deterministic(history, smoothness=1.0, gradient_lipschitz=1.0, minimum=0.0)
    assert 0.4 < of_theorem(report, "Theorem A'").ratio < 1.0


@pytest.mark.parametrize("trials", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_theorems_a_and_b_hold_without_noise(trials):
    ratios = {"Theorem A": [], "Theorem B": []}
    for i in range(trials):
        rng = np.random.default_rng(i)
        f, start = least_squares(i)
        beta = (0.1, 0.5, 0.9, 0.99)[i % 4]
        for theorem, order in (("Theorem A", "before"), ("Theorem B", "after")):
            phi = reference(FULL[(i // 4) % (4 if order == "after" else 12)], 10.0 ** rng.uniform(-1, 1))
            L = 2.0 / phi.scale
            lr = (1 - beta) / L if order == "before" else min(0.5 * (1 - beta) / beta, 1.0) / L
            history = npgm.minimize(
                f, start, reference=phi, lr=lr, momentum=beta, momentum_order=order, maxiter=100, tol=0.0, history=True
            ).history
            report = certify.deterministic(history, smoothness=L, lipschitz=L, gradient_lipschitz=2.0, minimum=0.0)
            ratios[theorem].append(of_theorem(report, theorem).ratio)
            assert report.verdict == "holds"
    assert all(max(found) < 1.0 for found in ratios.values())
    assert max(ratios["Theorem B"]) > 0.4


def test_theorem_b_is_sharper_than_theorem_2_7_at_its_step():
    phi, beta = npgm.reference("isotropic-cosh"), 0.9
    common = {"smoothness": 1.0, "lipschitz": 1.0, "momentum": beta, "gap": 1.0, "first": 0.1, "iterations": 100}
    paper = bounds.theorem_2_7(phi, lr=(1 - beta) ** 2, **common)
    same = bounds.momentum_after(phi, lr=(1 - beta) ** 2, **common)
    longer = bounds.momentum_after(phi, lr=(1 - beta) / (beta * 3**0.5), **common)
    assert longer.values[-1] < 0.3 * paper.values[-1]
    assert same.values[-1] < paper.values[-1]


def test_what_the_theorems_do_not_say_is_refused():
    common = {"lipschitz": 2.0, "momentum": 0.9, "gap": 1.0, "first": 1.0, "iterations": 5}
    for name, message in (("isotropic-log", "bounded domain"), ("isotropic-expsq", "does not satisfy")):
        with pytest.raises(AssumptionError, match=f"Proposition 3.2.*{message}"):
            bounds.momentum_before(npgm.reference(name), lr=0.01, **common)
    with pytest.raises(AssumptionError, match=r"Theorem A does not apply.*that is"):
        bounds.momentum_before("isotropic-cosh", lr=0.5, **common)
    with pytest.raises(AssumptionError, match="Theorem A' does not apply: it assumes dom φ bounded"):
        bounds.momentum_before_bounded("isotropic-cosh", lr=0.5, **common)
    with pytest.raises(AssumptionError, match="Theorem B does not apply: it assumes φ isotropic"):
        bounds.momentum_after("separable-cosh", smoothness=2.0, lr=0.01, **common)
    with pytest.raises(AssumptionError, match=r"τ = βγL_p/\(1-β\) < 1"):
        bounds.momentum_after("isotropic-cosh", smoothness=2.0, lr=0.5, **common)


@given(
    p=st.floats(1.05, 2.0),
    x=hnp.arrays(np.float64, 3, elements=st.floats(-1e3, 1e3)),
    y=hnp.arrays(np.float64, 3, elements=st.floats(-1e3, 1e3)),
)
def test_the_inequality_behind_a_bounded_moment(p, x, y):
    """‖x+y‖^p ≤ ‖x‖^p + p‖x‖^{p-2}⟨x, y⟩ + 2^{2-p}‖y‖^p."""
    r, size = np.linalg.norm(x), np.linalg.norm(y)
    slope = p * r ** (p - 2.0) * (x @ y) if r > 0.0 else 0.0
    right = r**p + slope + 2.0 ** (2.0 - p) * size**p
    assert np.linalg.norm(x + y) ** p <= right + 1e-9 * (r**p + size**p)


def test_the_noise_of_a_bounded_moment():
    common = {
        "lipschitz": 1.0,
        "lr": 1e-9,
        "momentum": 0.99,
        "gap": 0.0,
        "first": 0.0,
        "deviation": 3.0,
        "iterations": 1,
    }
    for p, factor in ((2.0, 1.0), (1.5, 2.0 ** (1.0 / 3.0))):
        bound = bounds.momentum_before_bounded("isotropic-log", moment=p, **common)
        assert bound.values[0] == pytest.approx(2.0 * factor * 3.0 * 0.01 ** (1.0 - 1.0 / p), rel=1e-5)


def test_the_schedule_needs_no_constant():
    assert npgm.theory.schedule(10_000) == pytest.approx((1e-3, 0.99))
    ends = []
    for K in (10**4, 10**6):
        lr, beta = npgm.theory.schedule(K, 1.5)
        bound = bounds.momentum_before_bounded(
            "isotropic-log", lipschitz=1.0, lr=lr, momentum=beta, gap=1.0, first=1.0, deviation=1.0, moment=1.5,
            iterations=K - 1,
        )  # fmt: skip
        ends.append(bound.values[-1])
    assert ends[1] / ends[0] == pytest.approx(100 ** -(0.5 / 2.5), rel=0.05)
    for moment in (1.0, 2.5):
        with pytest.raises(ValueError, match="moment must be above 1 and at most 2"):
            npgm.theory.schedule(10, moment)

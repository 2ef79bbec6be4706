"""Every theorem that applies holds on every known problem, at the largest step that it allows."""

from __future__ import annotations

import numpy as np
import pytest

import npgm
from npgm.problems import registry
from npgm.solvers import History
from npgm.solvers.methods.npgm import NPGM
from npgm.theory import bounds, certify
from npgm.theory.bounds import AssumptionError

PROBLEMS = [cls() for cls in registry.values()] + [registry["double-well"](a=10.0), registry["cosh-sum"](c=(1.0, 3.0))]


def known():
    for problem in PROBLEMS:
        names = [name for name in npgm.references.names() if npgm.reference(name).kernel.strongly_convex_c2]
        if problem.key == "scaled-reference":
            names = ["isotropic-cosh"]
        elif problem.key == "quadratic":  # known for every kernel
            names = ["isotropic-log", "separable-mix3", "isotropic-quad", "isotropic-logx2"]
        for name in names:
            phi = npgm.reference(name)
            try:
                yield problem, phi, problem.constants(phi)
            except ValueError:
                continue


KNOWN = list(known())
each_known = pytest.mark.parametrize(("problem", "phi", "constants"), KNOWN, ids=repr)


def run(problem, phi, lr, momentum=0.0, maxiter=120):
    return npgm.minimize(
        problem, problem.start, lr=lr, momentum=momentum, reference=phi, maxiter=maxiter, tol=0.0, history=True
    ).history


def report(problem, phi, constants, lr, momentum):
    return certify.deterministic(
        run(problem, phi, lr, momentum),
        smoothness=constants.smoothness,
        lipschitz=constants.lipschitz,
        pl=constants.pl,
        minimum=problem.minimum(problem.start.size),
        convex=problem.convex,
        distance=None if problem.minimiser is None else float(np.linalg.norm(problem.start - problem.minimiser)),
    )


@each_known
@pytest.mark.parametrize("momentum", [0.0, 0.25, 0.49])
def test_bounds_hold_at_the_largest_step(problem, phi, constants, momentum):
    result = report(problem, phi, constants, 1 / constants.smoothness, momentum)
    assert result.holds, [(c.bound.theorem, c.ratio) for c in result.certificates if not c.holds]
    found = {c.bound.theorem for c in result.certificates}
    assert "Theorem 2.2" in found
    assert ("The base bound" in found) == (momentum == 0)
    assert ("Theorem 2.4" in found) == (constants.pl is not None and momentum > 0)
    assert ("Theorem 2.4, refined" in found) == (constants.pl is not None)


@pytest.mark.parametrize(
    ("problem", "phi", "constants"), [case for case in KNOWN if isinstance(case[1], npgm.Isotropic)], ids=repr
)
@pytest.mark.parametrize("momentum", [0.1, 0.5, 0.9])
def test_theorem_2_7_holds_at_its_step(problem, phi, constants, momentum):
    L = max(constants.smoothness, constants.lipschitz)
    result = report(problem, phi, constants, (1 - momentum) ** 2 / L, momentum)
    assert result.holds
    assert {"Theorem 2.7", "Theorem 2.7, tight"} <= {c.bound.theorem for c in result.certificates}


@each_known
def test_large_steps_of_the_base_method(problem, phi, constants):
    lr = 1.9 / constants.smoothness
    bound = bounds.base_method(phi, smoothness=constants.smoothness, lr=lr, gap=1.0, iterations=0)
    assert bound.values[0] == pytest.approx(1 / (lr * 0.1))
    result = report(problem, phi, constants, lr, 0.0)
    assert [c.bound.theorem for c in result.certificates] == ["The base bound"]
    assert result.holds


@each_known
def test_descent_inequality_holds_along_runs_and_between_random_points(problem, phi, constants):
    points = [problem.start]
    for momentum in (0.0, 0.6):
        npgm.minimize(
            problem, problem.start, lr=1 / constants.smoothness, momentum=momentum, reference=phi, maxiter=60, tol=0.0,
            callback=points.append,
        )  # fmt: skip
    points = np.concatenate([points, 3 * np.random.default_rng(0).standard_normal((400, problem.start.size))])
    slack = certify.descent(problem, phi, points, constants.smoothness)
    scale = 1 + np.abs(problem(points)[0])
    assert (slack >= -1e-9 * np.maximum(scale[1:], scale[:-1])[:, None]).all()


def test_too_small_a_constant_is_refuted():
    problem, phi = registry["cosh"](), npgm.reference("isotropic-log")
    points = np.linspace(-2, 2, 81)[:, None]
    for L, holds in ((0.5, False), (0.9, False), (1.0, True)):
        assert (certify.descent(problem, phi, points, L).min() > -1e-12) == holds


def test_a_violated_bound_is_reported():
    problem, phi = registry["quadratic"](), npgm.reference("isotropic-cosh")
    history = run(problem, phi, 0.05)
    result = certify.deterministic(history, smoothness=1.0, minimum=0.0)
    assert result.holds
    wrong = History({**history, "stationarity": 1e3 * history["stationarity"]}, history.method)
    lie = certify.deterministic(wrong, smoothness=1.0, minimum=0.0)
    assert not lie.holds
    assert lie.certificates[0].ratio > 1
    assert (lie.certificates[0].slack < 0).any()


def test_the_run_and_not_the_caller_says_how_it_was_made():
    problem, phi = registry["quadratic"](), npgm.reference("isotropic-cosh")
    arguments = {"smoothness": 20.0, "minimum": 0.0}
    # at 20/L and β = 0.9 no theorem applies, whatever the observed quantities
    result = certify.deterministic(run(problem, phi, 1.0, 0.9), **arguments)
    assert not result.certificates
    assert "γ = 1" in result.refused["Theorem 2.2"]
    # with λ = 3 the measure is that of λ = 3
    scaled = npgm.reference("isotropic-cosh", scale=3.0)
    assert certify.deterministic(run(problem, scaled, 0.05), **arguments).holds


@pytest.mark.parametrize(
    ("key", "options", "covered"),
    [
        ("gd", {}, True),
        ("gdm", {"momentum": 0.3}, True),
        ("npgm", {"momentum": 0.3, "momentum_order": "before"}, False),
        ("npgm", {"momentum_order": "before"}, True),
        ("npgm", {"momentum": 0.3, "momentum_order": "before", "reference": npgm.reference("isotropic-quad")}, True),
        ("adgd", {}, False),
        ("adgd_accel", {}, False),
        ("nesterov", {}, False),
        ("clipped_gd", {"nu": 0.5, "momentum": 0.5}, False),
    ],
)
def test_only_algorithm_1_is_held_to_the_theorems(key, options, covered):
    problem = registry["quadratic"]()
    history = npgm.minimize(
        problem, problem.start, method=key, lr=0.05, maxiter=50, tol=0.0, history=True, **options
    ).history
    result = certify.deterministic(history, smoothness=20.0, lipschitz=20.0, pl=1.0, minimum=0.0)
    assert bool(result.certificates) == covered
    if covered:
        assert result.holds
    else:
        assert {"Theorem 2.2", "Theorem 2.4", "Theorem 2.7"} <= set(result.refused)
        assert all(f"Algorithm 1 of the paper, but the run is one of {type(history.method).__name__}" in reason
                   for reason in result.refused.values())  # fmt: skip


def test_no_stochastic_theorem_is_about_momentum():
    history = History({"fun": np.ones((5, 3)), "stationarity": np.ones((5, 3))}, NPGM(0.1, momentum=0.5))
    result = certify.stochastic(history, smoothness=1.0, minimum=0.0, noise=1.0, pl=0.5)
    assert not result.certificates
    assert "β = 0, but β = 0.5" in result.refused["Theorem 3.1"]


@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-cosh", "separable-mix4", "isotropic-exp"])
def test_stochastic_bounds_hold_over_seeds(name):
    phi = npgm.reference(name, scale=2.0)
    problem = registry["scaled-reference"](reference=phi, c=1.0)
    constants, sigma = problem.constants(phi), 0.7

    def gradient(rng, x):
        return problem(x)[1] + sigma / np.sqrt(x.size) * rng.standard_normal(x.shape)

    history = certify.simulate(problem, gradient, phi, problem.start, lr=0.5, iterations=80, seeds=range(40))
    assert history["fun"].shape == (81, 40)
    result = certify.stochastic(
        history, smoothness=constants.smoothness, variance=sigma**2, pl=constants.pl, minimum=0.0
    )
    assert result.holds
    assert [c.bound.theorem for c in result.certificates] == ["Theorem 3.1", "Theorem 3.5"]
    # a thousandth of the noise is not what these runs have
    assert not certify.stochastic(
        history, smoothness=constants.smoothness, noise=1e-5, pl=constants.pl, minimum=0.0
    ).holds


def test_growing_batches_satisfy_theorem_3_4():
    phi = npgm.Isotropic(npgm.Cosh(), scale=0.5)
    problem = registry["scaled-reference"](reference=phi)
    K, sigma = 50, 3.0

    def gradient(rng, x):
        return problem(x)[1] + sigma / np.sqrt(x.size * K) * rng.standard_normal(x.shape)

    history = certify.simulate(problem, gradient, phi, problem.start, lr=0.5, iterations=K - 1, seeds=range(20))
    bound = bounds.theorem_3_4(
        phi, smoothness=2.0, lr=0.5, gap=history["fun"][0, 0], variance=sigma**2, iterations=K - 1
    )
    assert history["stationarity"].mean() <= bound.values[-1]


def test_report_is_drawn(tmp_path):
    problem, phi = registry["cosh-sum"](), npgm.reference("isotropic-cosh")
    report(problem, phi, problem.constants(phi), 0.5, 0.0).plot(tmp_path / "report.png")
    assert (tmp_path / "report.png").stat().st_size > 10_000
    certify.Report([], {}).plot(tmp_path / "empty.svg")


def test_bad_histories_are_named():
    phi = npgm.reference("isotropic-cosh")
    history = run(registry["quartic"](), phi, 0.1)
    arguments = {"smoothness": 2.2, "minimum": 0.0}
    for certificates in (certify.deterministic, certify.stochastic):
        with pytest.raises(TypeError, match=r"history must be that of npgm\.minimize.*not dict"):
            certificates(dict(history), **arguments)
    with pytest.raises(ValueError, match="history has no 'stationarity'"):
        certify.deterministic(History({"fun": history["fun"], "grad_norm": history["fun"]}, NPGM(0.1)), **arguments)
    with pytest.raises(ValueError, match="of one run"):
        certify.deterministic(History({k: np.stack([v, v]) for k, v in history.items()}, NPGM(0.1)), **arguments)
    with pytest.raises(ValueError, match="is above f at iteration"):
        certify.deterministic(history, **{**arguments, "minimum": 1.0})
    with pytest.raises(ValueError, match="exactly one of noise and variance"):
        certify.stochastic(history, **arguments)
    with pytest.raises(ValueError, match="points must have shape"):
        certify.descent(registry["quartic"](), phi, np.ones(3), 1.0)
    with pytest.raises(AssumptionError, match="bounded domain"):
        certify.stochastic(History({}, NPGM(0.1, reference=npgm.reference("isotropic-log"))), variance=1.0, **arguments)


def test_a_bound_below_the_rounding_of_the_run_is_held_to_the_rounding():
    bound = bounds.Bound("a theorem", "gap", np.array([254.0, 0.0, 0.0]), "proved", np.zeros(3, bool))
    zeros = np.zeros(3)
    held = certify.Certificate(bound, np.array([254.0, 1e-31, 0.0]), zeros)
    assert held.holds
    assert held.ratio <= 1.0
    broken = certify.Certificate(bound, np.array([254.0, 1e-10, 0.0]), zeros)
    assert not broken.holds
    assert broken.ratio > 1.0

"""Every theorem that applies holds on every known problem, at the largest step that it allows."""

from __future__ import annotations

import numpy as np
import pytest

import npgm
from npgm.problems import registry
from npgm.solvers import History
from npgm.solvers.methods.npgm import NPGM
from npgm.theory import bounds, certify

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


def alike(problem, phi, constants):
    """What a case tests: on the line, where the lifts are one function, they are one case unless their constants differ."""
    return (problem, phi.kernel if problem.start.size == 1 else phi, constants)


KNOWN = {alike(*case): case for case in reversed([*known()])}.values()  # of several lifts, the isotropic one
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
        exact=True,
        convex=problem.convex,
        distance=None if problem.minimiser is None else float(np.linalg.norm(problem.start - problem.minimiser)),
    )


def holding(result):
    """Whether all bounds hold; where all are vacuous, as of kernels whose measure saturates, that decides nothing."""
    vacuous = all(c.bound.vacuous[np.isfinite(c.bound.values)].all() for c in result.certificates)
    return all(c.holds for c in result.certificates) and result.verdict == ("undecided" if vacuous else "holds")


@each_known
@pytest.mark.parametrize("momentum", [0.0, 0.49])
def test_bounds_hold_at_the_largest_step(problem, phi, constants, momentum):
    result = report(problem, phi, constants, 1 / constants.smoothness, momentum)
    assert holding(result)
    found = {c.bound.theorem for c in result.certificates}
    assert "Theorem 2.2" in found
    assert ("The base bound" in found) == (momentum == 0)
    assert ("Theorem 2.4" in found) == (constants.pl is not None and momentum > 0)
    assert ("Theorem 2.4, refined" in found) == (constants.pl is not None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "phi", "constants"), [case for case in KNOWN if isinstance(case[1], npgm.Isotropic)], ids=repr
)
@pytest.mark.parametrize("momentum", [0.1, 0.9])
def test_theorem_2_7_holds_at_its_step(problem, phi, constants, momentum):
    L = max(constants.smoothness, constants.lipschitz)
    result = report(problem, phi, constants, (1 - momentum) ** 2 / L, momentum)
    assert holding(result)
    assert {"Theorem 2.7", "Theorem 2.7, tight"} <= {c.bound.theorem for c in result.certificates}


@each_known
def test_large_steps_of_the_base_method(problem, phi, constants):
    lr = 1.9 / constants.smoothness
    bound = bounds.base_method(phi, smoothness=constants.smoothness, lr=lr, gap=1.0, iterations=0)
    assert bound.values[0] == pytest.approx(1 / (lr * 0.1))
    result = report(problem, phi, constants, lr, 0.0)
    assert [c.bound.theorem for c in result.certificates] == ["The base bound"]
    assert holding(result)


@each_known
def test_descent_inequality_holds_on_runs_and_random_points(problem, phi, constants):
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
    diverging = run(problem, phi, 0.5)
    lie = certify.deterministic(diverging, smoothness=1.0, minimum=0.0)
    assert lie.verdict == "violated"
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
    result = certify.deterministic(history, smoothness=20.0, lipschitz=20.0, pl=1.0, minimum=0.0, exact=True)
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-cosh", "separable-mix4", "isotropic-exp"])
def test_stochastic_bounds_hold_over_seeds(name):
    phi = npgm.reference(name, scale=2.0)
    problem = registry["scaled-reference"](reference=phi, c=1.0)
    constants, sigma = problem.constants(phi), 0.7

    def gradient(rng, x):
        return problem(x)[1] + sigma / np.sqrt(x.size) * rng.standard_normal(x.shape)

    history = certify.simulate(problem, gradient, phi, problem.start, lr=0.5, iterations=60, seeds=range(20))
    assert history["fun"].shape == (61, 20)
    result = certify.stochastic(
        history, smoothness=constants.smoothness, variance=sigma**2, pl=constants.pl, minimum=0.0, exact=True
    )
    assert result.holds
    assert [c.bound.theorem for c in result.certificates] == ["Theorem 3.1", "Theorem 3.5"]
    # a thousandth of the noise is not what these runs have
    assert not certify.stochastic(
        history, smoothness=constants.smoothness, noise=1e-5, pl=constants.pl, minimum=0.0, exact=True
    ).holds


@pytest.mark.slow
def test_growing_batches_satisfy_theorem_3_4():
    phi = npgm.Isotropic(npgm.Cosh(), scale=0.5)
    problem, sigma = registry["scaled-reference"](reference=phi), 3.0

    def gradient(rng, x):
        return problem(x)[1] + sigma / np.sqrt(x.size) * rng.standard_normal(x.shape)

    def runs(K, batch, seeds=20):
        return certify.simulate(
            problem, gradient, phi, problem.start, lr=0.5, iterations=K, batch=batch, seeds=range(seeds)
        )

    arguments = {"smoothness": 2.0, "minimum": 0.0}
    grown = [runs(K, K) for K in (4, 9, 24)]
    result = certify.growing_batches(grown, variance=sigma**2, **arguments)
    (certificate,) = result.certificates
    assert result.holds
    np.testing.assert_array_equal(np.flatnonzero(~np.isnan(certificate.observed)), [3, 8, 23])
    assert certificate.observed[23] == pytest.approx(grown[2]["stationarity"][:-1].mean())
    # with a batch that does not grow, the bound is broken
    fixed = runs(24, 1)
    assert certify.growing_batches([fixed], variance=sigma**2, **arguments).verdict == "refused"
    lie = History({"fun": fixed["fun"], "stationarity": 10 * fixed["stationarity"], "batch": 24}, fixed.method)
    assert certify.growing_batches([lie], variance=sigma**2 / 48, **arguments).verdict == "violated"
    assert certify.growing_batches([runs(4, 4, seeds=1)], variance=1.0, **arguments).verdict == "undecided"
    other = certify.simulate(problem, gradient, phi, problem.start, lr=0.4, iterations=4, batch=4, seeds=range(2))
    with pytest.raises(ValueError, match="one method"):
        certify.growing_batches([grown[0], other], variance=1.0, **arguments)


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
    log = NPGM(0.1, reference=npgm.reference("isotropic-log"))
    bounded = History({"fun": np.ones((3, 2)), "stationarity": np.ones((3, 2))}, log)
    assert "bounded domain" in certify.stochastic(bounded, variance=1.0, **arguments).reason


def test_a_bound_is_held_to_the_margin():
    bound = bounds.Bound("a theorem", "gap", np.array([254.0, 0.0, 0.0]), "proved", np.zeros(3, bool))
    margin = np.full(3, 1e-13)
    held = certify.Certificate(bound, np.array([254.0, 1e-31, 0.0]), margin)
    assert held.holds
    assert held.ratio <= 1.0
    broken = certify.Certificate(bound, np.array([254.0, 1e-10, 0.0]), margin)
    assert not broken.holds
    assert broken.ratio > 1.0
    assert not certify.Certificate(bound, np.array([254.0, 1e-300, 0.0]), np.zeros(3)).holds
    assert not certify.Certificate(bound, np.array([254.0, np.nan, 0.0]), margin).holds


def test_no_verdict_without_a_bound():
    assert certify.Report([], {}).verdict == "undecided"
    assert not certify.Report([], {}).holds


@pytest.mark.parametrize("momentum", [0.0, 0.25])
def test_a_lower_bound_of_f_bounds_no_gap(momentum):
    problem, phi = registry["cosh-sum"](), npgm.reference("isotropic-cosh")
    history = run(problem, phi, 0.5, momentum)
    arguments = {"smoothness": 2.0, "pl": 1.0, "convex": True, "distance": 4.0}
    result = certify.deterministic(history, minimum=-1.0, **arguments)
    assert result.holds  # D0 is larger than it is
    assert all(c.bound.quantity != "gap" for c in result.certificates)
    names = ["Theorem 2.4, refined", "The convex bound on f"] if momentum == 0.0 else ["Theorem 2.4"]
    assert all("minimum = -1.0 is a lower bound; say exact=True" in result.refused[name] for name in names)
    noisy = certify.simulate(problem, lambda rng, x: problem(x)[1], phi, [4.0], lr=0.5, iterations=20, seeds=range(3))
    stochastic = certify.stochastic(noisy, smoothness=2.0, pl=1.0, noise=0.01, minimum=-1.0)
    assert stochastic.holds
    assert list(stochastic.refused) == ["Theorem 3.5"]


def test_rounding_is_that_of_the_terms_of_f():
    """Two functions whose least values, or terms, are large: every bound holds, down to the last iteration."""
    rng = np.random.default_rng(0)
    A, b = rng.standard_normal((60, 5)) * 3.0, rng.standard_normal(60) * 100.0
    H = A.T @ A
    mu, L = np.linalg.eigvalsh(H)[[0, -1]]
    solution = np.linalg.solve(H, A.T @ b)
    lowest = 0.5 * np.sum((A @ solution - b) ** 2)
    assert lowest > 1e5
    c = rng.standard_normal(5) * 1e3

    def least_squares(x):
        return 0.5 * np.sum((A @ x - b) ** 2), A.T @ (A @ x - b)

    def expanded(x):
        return x @ x - 2.0 * (c @ x) + c @ c, 2.0 * (x - c)

    for fun, start, (mu_f, L_f), minimum in (
        (least_squares, np.zeros(5), (mu, L), lowest),
        (expanded, np.zeros(5), (2.0, 2.0), 0.0),
        (expanded, c + 5.0 * rng.standard_normal(5), (2.0, 2.0), 0.0),
    ):
        for momentum in (0.0, 0.3):
            history = npgm.minimize(
                fun, start, method="gdm", lr=0.7 / L_f, momentum=momentum, maxiter=400, tol=0.0, history=True
            ).history
            report = certify.deterministic(history, smoothness=L_f, pl=mu_f, minimum=minimum, exact=True)
            assert report.holds, [(c.bound.theorem, c.ratio) for c in report.certificates]
            assert "Theorem 2.4, refined" in [c.bound.theorem for c in report.certificates]
            # that f is not decreased to below a thousandth is no rounding
            wrong = {**history, "fun": np.maximum(history["fun"], minimum + 1e-3 * (history["fun"][0] - minimum))}
            wrong = History(wrong, history.method)
            assert not certify.deterministic(wrong, smoothness=L_f, pl=mu_f, minimum=minimum, exact=True).holds
            estimate = npgm.theory.pl_constant(history["fun"], history["stationarity"], minimum)
            assert mu_f * (1 - 1e-9) <= estimate.value <= 1.1 * L_f


def test_what_rounding_does_not_explain_is_an_error():
    with pytest.raises(
        ValueError, match=r"minimum = 0.0 is above f at iteration 1 of the run, by 0.001; if f is a small"
    ):
        certify.resolution([1.0, -1e-3], 0.0)
    with pytest.raises(ValueError, match="above f at iteration 1"):
        certify.resolution([1.0, -1e-12], 0.0, given=1e-13)
    assert certify.resolution([1.0, -1e-3], 0.0, given=1e-2) == 1e-2
    assert certify.resolution([1e6, 3.0], 1.0, eps=2.0**-23) == pytest.approx(64 * 2.0**-23 * 1e6)
    phi = npgm.reference("isotropic-cosh")
    history = History(
        {"fun": np.array([[2.0, 2.0], [-1.0, 1.0]]), "stationarity": np.ones((2, 2))}, NPGM(0.1, reference=phi)
    )
    with pytest.raises(ValueError, match="above f at iteration 1"):
        certify.stochastic(history, smoothness=1.0, minimum=0.0, noise=1.0)


def test_single_precision_is_held_to_its_own_rounding():
    problem, phi = registry["quadratic"](), npgm.reference("isotropic-cosh")
    history = npgm.minimize(
        problem, problem.start.astype(np.float32), lr=0.05, reference=phi, maxiter=300, tol=0.0, history=True
    ).history
    assert certify.deterministic(history, smoothness=20.0, minimum=0.0, convex=True, distance=75**0.5, exact=True).holds


@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-cosh", "isotropic-mix4"])
@pytest.mark.parametrize("momentum", [0.1, 0.4])
def test_the_lyapunov_function_of_theorem_2_4(name, momentum):
    phi = npgm.reference(name, scale=2.0)
    problem = registry["scaled-reference"](reference=phi, c=2.0)
    x, m = problem.start, np.zeros(3)
    want = []
    for _ in range(16):
        want.append(float(phi(m)))
        m = momentum * m + (1 - momentum) * phi.precondition(problem(x)[1])
        x = x - 0.5 * m
    history = run(problem, phi, 0.5, momentum, maxiter=15)
    np.testing.assert_allclose(history["momentum"], want, rtol=1e-6, atol=1e-25)
    result = report(problem, phi, problem.constants(phi), 0.5, momentum)
    paper = next(c for c in result.certificates if c.bound.theorem == "Theorem 2.4")
    assert paper.holds
    np.testing.assert_allclose(paper.observed[:16], 0.5 * np.array(want) + history["fun"], rtol=1e-6, atol=1e-15)
    assert "momentum" not in run(problem, phi, 0.5)


def test_the_momentum_of_clipping_stays_in_its_domain():
    phi = npgm.Isotropic(npgm.Huber(0.1))
    history = npgm.minimize(
        lambda x: (50 * np.sum(np.abs(x - 1e4)), -50 * np.ones(2)), np.zeros(2), reference=phi, lr=1.0, momentum=0.4,
        maxiter=80, tol=0.0, history=True,
    ).history  # fmt: skip
    assert history["momentum"][-1] == pytest.approx(0.005, rel=1e-5)


def test_one_seed_decides_nothing():
    phi = npgm.reference("separable-cosh")
    problem, sigma = registry["quadratic"](), 2.0

    def gradient(rng, x):
        return problem(x)[1] + sigma / np.sqrt(3) * rng.standard_normal(3)

    arguments = {"smoothness": 20.0, "minimum": 0.0, "variance": sigma**2}
    history = certify.simulate(problem, gradient, phi, np.zeros(3), lr=0.05, iterations=30, seeds=[0])
    result = certify.stochastic(history, **arguments)
    assert result.verdict == "undecided"
    assert "two seeds at least" in result.undecided["Theorem 3.1"]
    # of many pairs of seeds, not one is said to violate a theorem that holds
    for i in range(50):
        pair = certify.simulate(problem, gradient, phi, np.zeros(3), lr=0.05, iterations=5, seeds=[2 * i, 2 * i + 1])
        assert certify.stochastic(pair, **arguments).holds

"""What once fooled a certificate, or its neighbours."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import npgm
from backends import without_native
from npgm.problems import registry
from npgm.solvers import History
from npgm.solvers.methods.npgm import NPGM
from npgm.solvers.stepsizes.edge_of_stability import EdgeOfStability
from npgm.theory import bounds, certify
from npgm.theory.bounds import AssumptionError

PHI = npgm.reference("isotropic-cosh")


class FrobeniusQuartic:
    """f(x) = ¼‖x‖⁴, on flat vectors."""

    def __call__(self, x):
        return 0.25 * (x @ x) ** 2, (x @ x) * x

    def hvp(self, x, d):
        return (x @ x) * d + 2.0 * (x @ d) * x


def test_a_spectral_reference_needs_its_matrices():
    points = 0.6 * np.random.default_rng(0).standard_normal((20, 16))
    f, spectral = FrobeniusQuartic(), npgm.reference("spectral-cosh")
    for work in (
        lambda phi: npgm.theory.anisotropic_smoothness(f, phi, points),
        lambda phi: npgm.theory.preconditioned_lipschitz(f, phi, points),
        lambda phi: npgm.theory.noise(phi, points),
        lambda phi: certify.descent(f, phi, points, 1.0),
        lambda phi: certify.simulate(f, lambda rng, x: f(x)[1], phi, points[0], lr=0.1, iterations=1, seeds=[0, 1]),
    ):
        with pytest.raises(ValueError, match=r"vector of 16 entries as one column.*npgm\.Blocks"):
            work(spectral)
        work(npgm.Blocks(spectral, [(4, 4)]))
    assert npgm.theory.anisotropic_smoothness(registry["quartic"](), spectral, [[1.0]]).value > 0.0


def noisy(draw, seeds=20, trials=60):
    """Return how many reports of S = ``draw``(rng) at the equality E S = 1 are violated."""
    wrong = 0
    for trial in range(trials):
        S = draw(np.random.default_rng(trial), (2, seeds))
        history = History({"fun": np.ones((2, seeds)), "stationarity": S}, NPGM(1.0, reference=PHI))
        wrong += certify.stochastic(history, smoothness=1.0, minimum=1.0, noise=1.0).verdict == "violated"
    return wrong


def test_chance_is_not_a_violation_whatever_the_distribution():
    # all seeds agree with probability .82
    assert noisy(lambda rng, shape: np.where(rng.random(shape) < 0.99, 1.0 / 0.99, 0.0)) == 0
    assert noisy(lambda rng, shape: 1.1 * rng.beta(5.0, 0.5, shape)) == 0
    assert noisy(lambda rng, shape: np.exp(2.0 * rng.standard_normal(shape) - 2.0)) == 0
    assert noisy(lambda rng, shape: 4.0 * rng.random(shape) + 2.0) == 60  # a mean of 4 is seen


def test_what_chance_explains_does_not_hold():
    S = np.full((2, 3), [2.0, 4.0, 6.0])
    history = History({"fun": np.ones((2, 3)), "stationarity": S}, NPGM(1.0, reference=PHI))
    report = certify.stochastic(history, smoothness=1.0, minimum=1.0, noise=1.0)
    assert report.verdict == "undecided"
    assert "4 against 1" in report.reason
    assert "more seeds decide" in report.reason


@pytest.mark.parametrize("seeds", [[], [0, 0], [0, np.int64(0), 1]])
def test_seeds_differ(seeds):
    problem = registry["quadratic"]()
    with pytest.raises(ValueError, match="seeds must be distinct, and at least one"):
        certify.simulate(problem, lambda rng, x: problem(x)[1], PHI, problem.start, lr=0.05, iterations=1, seeds=seeds)


def run(maxiter, **options):
    problem = registry["quadratic"]()
    options = {"lr": 0.05, "reference": PHI, "tol": 0.0} | options
    return npgm.minimize(problem, problem.start, maxiter=maxiter, history=True, **options).history


def test_nothing_holds_where_nothing_was_compared():
    start = run(0)
    arguments = {"smoothness": 20.0, "minimum": 0.0}
    for report in (
        certify.deterministic(start, **arguments),
        certify.auto(start, minimum=0.0),
        certify.auto(run(5), minimum=0.0, window=20),
    ):
        assert report.verdict == "undecided"
        assert not report.holds
        assert report.reason
    history = run(5)
    unknown = History({**history, "stationarity": np.full(6, np.nan)}, history.method)
    report = certify.deterministic(unknown, **arguments)
    assert report.verdict == "undecided"
    assert "'stationarity' of the history is NaN somewhere" in report.reason
    for value in (np.nan, np.inf):
        lost = History({**history, "fun": np.where(np.arange(6) == 3, value, history["fun"])}, history.method)
        with pytest.raises(ValueError, match="f must be finite along the run, but is not at iteration 3"):
            certify.deterministic(lost, **arguments)


def test_a_history_with_momentum_has_its_head():
    history = run(60, momentum=0.3)
    cut = History({name: values[5:] for name, values in history.items()}, history.method)
    arguments = {"smoothness": 20.0, "pl": 0.1, "minimum": 0.0, "exact": True}
    assert certify.deterministic(history, **arguments).verdict == "holds"
    report = certify.deterministic(cut, **arguments)
    assert report.verdict == "refused"
    assert "from the start on" in report.reason


def test_a_rule_without_decrease_is_refused():
    rule = EdgeOfStability(decrease=0.0)
    assert certify.auto(run(20, lr=rule), minimum=0.0).verdict == "refused"


def test_a_window_is_a_number_of_steps():
    history = run(20)
    for options, message in (({"window": 0}, "window must be at least 1"), ({"decrease": -1.0}, "decrease must")):
        with pytest.raises(ValueError, match=message):
            certify.auto(history, minimum=0.0, **options)
    assert certify.auto(history, minimum=0.0, window=10**9).verdict == "undecided"


@pytest.mark.parametrize("native", [True, False])
def test_a_run_that_leaves_the_domain_of_f_is_refused(native):
    def f(x):
        with np.errstate(invalid="ignore", divide="ignore"):
            return x[0] - np.log(x[0]), 1.0 - 1.0 / x

    with contextlib.nullcontext() if native else without_native():
        result = npgm.minimize(f, np.array([18.0]), reference=PHI, lr=5.0, maxiter=9, history=True)
    assert not result.success
    taken = result.history["taken"]
    assert not taken[result.nit - 1]
    report = certify.deterministic(result.history, smoothness=0.2, minimum=1.0)
    assert report.verdict == "refused"
    assert "f finite on ℝⁿ" in report.reason


def test_proximal_steps_that_are_no_minimisers_are_refused():
    center, sphere = np.array([3.0, 1.0, 0.2]), npgm.proximal.Sphere(1.0)
    start = sphere.prox(np.array([0.1, -0.9, 0.3]), 1.0)

    def verdict(prox, start, phi):
        history = npgm.minimize(
            lambda x: (0.5 * np.sum((x - center) ** 2), x - center), start, prox=prox, lr="auto", reference=phi,
            maxiter=40, tol=0.0, history=True,
        ).history  # fmt: skip
        return certify.auto(history, minimum=0.0).verdict

    rows = npgm.proximal.Rows(sphere)
    assert verdict(sphere, start, "isotropic-log") == verdict(rows, start[None], "isotropic-log") == "holds"
    assert verdict(sphere, start, "separable-log") == verdict(rows, start[None], "separable-log") == "refused"


def test_runs_of_one_length_do_not_hide_each_other():
    problem = registry["quadratic"]()

    def runs(lr):
        return certify.simulate(
            problem, lambda rng, x: problem(x)[1], PHI, problem.start, lr=lr, iterations=4, batch=4, seeds=range(2)
        )

    with pytest.raises(ValueError, match="must differ in their numbers of iterations, but two have 4"):
        certify.growing_batches([runs(0.05), runs(0.05)], smoothness=20.0, minimum=0.0, variance=1.0)


def test_vacuity_is_judged_at_the_scale_of_the_run():
    tanh = npgm.reference("isotropic-artanh")
    history = run(20, lr="backtracking", reference=tanh, scale="auto")
    report = certify.auto(history, minimum=0.0)
    (bound,) = (c.bound for c in report.certificates if "2.2" in c.bound.theorem)
    limit = 0.1 * history["grad_norm"][0] * np.log(2.0)
    np.testing.assert_array_equal(bound.vacuous, bound.values >= limit)


def test_a_bound_that_is_vacuous_decides_nothing():
    sqrt = npgm.reference("isotropic-sqrt")
    for maxiter, verdict in ((20, "undecided"), (20_000, "holds")):
        report = certify.deterministic(run(maxiter, reference=sqrt), smoothness=20.0, minimum=0.0)
        assert all(certificate.holds for certificate in report.certificates)
        assert report.verdict == verdict
        assert report.reason.endswith("its bound is vacuous") == (verdict == "undecided")


class OnTheLine(npgm.kernels.FromPrimal):
    """A kernel that states the noise inequality on the line, and not that h'(t)/t rises."""

    key, mu, noise_inequality, nonincreasing_rescaling = "on-the-line", 1.0, True, False

    def h(self, xp, a):
        return a**2 / 2 + a**4 / 4

    def h_prime(self, xp, a):
        return a + a**3


def test_the_inequality_on_the_line_is_not_that_of_vectors():
    kernel = OnTheLine()
    assert bounds.proposition_3_2(npgm.Separable(kernel), 1.0) == 0.5
    with pytest.raises(AssumptionError, match=r"h'\(t\)/t nondecreasing"):
        bounds.proposition_3_2(npgm.Isotropic(kernel), 1.0)
    monotone = type("Monotone", (npgm.kernels.Quartic,), {})()
    assert bounds.proposition_3_2_provenance(npgm.Isotropic(monotone)) == "numerical"
    blocks = npgm.Blocks(npgm.Spectral(monotone), [(2, 2)])
    for phi in (npgm.Spectral(monotone), blocks, npgm.Blocks(blocks, [(4,)])):
        with pytest.raises(AssumptionError, match=r"condition \(C'\)"):
            bounds.proposition_3_2(phi, 1.0)


def test_what_a_kernel_of_ones_own_states_is_numerical():
    kernel = type("Mine", (npgm.kernels.Quartic,), {})()
    common = {"smoothness": 1.0, "lr": 0.5, "gap": 1.0, "iterations": 3}
    for own, others in ((kernel, "numerical"), (npgm.kernels.Quartic(), "proved")):
        phi = npgm.Isotropic(own)
        for bound in (
            bounds.theorem_2_2(phi, momentum=0.1, **common),
            bounds.theorem_2_4(phi, momentum=0.1, pl=0.1, **common),
            bounds.theorem_3_1(phi, noise=1.0, **common),
            bounds.theorem_3_5(phi, noise=1.0, pl=0.1, **common),
        ):
            assert bound.provenance == others


def at_scale(name, scale, **options):
    """Return the report of a run of the quadratic at 1/L, and the least slack of (4) along it."""
    problem, phi, points = registry["quadratic"](), npgm.reference(name, scale=scale), []
    constants = problem.constants(phi, problem.start.size)
    history = npgm.minimize(
        problem, problem.start, reference=phi, lr=1.0 / constants.smoothness, maxiter=20, tol=0.0, history=True,
        callback=points.append, **options,
    ).history  # fmt: skip
    report = certify.deterministic(
        history, smoothness=constants.smoothness, lipschitz=constants.lipschitz, pl=constants.pl, minimum=0.0,
        gradient_lipschitz=problem.constants("isotropic-quad", problem.start.size).smoothness,
    )  # fmt: skip
    return report, certify.descent(problem, phi, np.stack(points), constants.smoothness).min()


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("kernel", [k for k in npgm.kernels.registry if k != "pow"])
@pytest.mark.parametrize("lift", ["isotropic", "separable"])
def test_no_scale_fools_a_certificate(lift, kernel):
    for options in ({}, {"momentum": 0.3}, {"momentum": 0.5, "momentum_order": "before"}):
        limit, _ = at_scale(f"{lift}-{kernel}", 1e20, **options)  # where φ is all but quadratic
        for scale in (1e-300, 1e-160, 1e160, 1e300):
            report, slack = at_scale(f"{lift}-{kernel}", scale, **options)
            assert report.verdict != "violated"
            assert not slack < -1e-9
            if scale > 1.0:
                ratios = {c.bound.theorem: c.ratio for c in limit.certificates if c.bound.theorem != "Theorem A'"}
                found = {c.bound.theorem: c.ratio for c in report.certificates if c.bound.theorem in ratios}
                assert found == pytest.approx(ratios, rel=1e-6)


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_measure_that_overflows_decides_nothing():
    report, slack = at_scale("isotropic-quad", 1e-300)
    assert report.verdict == "undecided"
    assert report.reason.endswith("'stationarity' of the history overflows; take a larger λ")
    assert np.isnan(slack)


def test_the_lipschitz_constant_is_found_at_every_scale():
    problem = registry["quadratic"]()
    for scale in (1e-300, 1e300):
        phi = npgm.reference("separable-cosh", scale=scale)
        found = npgm.theory.preconditioned_lipschitz(problem, phi, np.zeros(problem.start.size)).value
        assert found * scale == pytest.approx(20.0)


def test_descent_needs_finite_values():
    with pytest.raises(ValueError, match="must be finite, but are not at point 1"):
        certify.descent(lambda x: (np.log(x[0]), 1.0 / x), PHI, [[1.0], [np.nan]], 1.0)


def edited(history, **arrays):
    return History({**history, **arrays}, history.method, history.eps, history.size)


def test_arrays_that_are_not_of_one_run_are_refused():
    history = run(9)
    for name in ("fun", "stationarity", "grad_norm", "conjugate", "lr", "taken"):
        cut = edited(history, **{name: history[name][:-2]})
        for work in (
            lambda h: certify.deterministic(h, smoothness=20.0, minimum=0.0),
            lambda h: certify.auto(h, minimum=0.0),
        ):
            with pytest.raises(ValueError, match="must have one shape, of at least one iterate"):
                work(cut)
    for arrays, message in (
        ({name: values[:0] for name, values in history.items()}, "at least one iterate"),
        ({"stationarity": -history["stationarity"]}, "'stationarity' of the history must not be negative"),
        ({"stationarity": 0.5 * history["stationarity"]}, "not that of its 'grad_norm' and of Isotropic"),
        ({"conjugate": 0.5 * history["conjugate"]}, "'conjugate' of the history is not that of its 'grad_norm'"),
        ({"lr": 1e-9 + 0.0 * history["lr"]}, r"'lr' of the history is not that of NPGM\(lr=0.05"),
        ({"taken": ~history["taken"]}, "step 0 of the history was not taken, but f changed"),
        ({name: values[::-1] for name, values in history.items()}, "not taken, but f changed"),
    ):
        with pytest.raises(ValueError, match=message):
            certify.deterministic(edited(history, **arrays), smoothness=20.0, minimum=0.0)
    other = History(dict(history), NPGM(0.05, reference=npgm.reference("isotropic-cosh", scale=7.0)))
    with pytest.raises(ValueError, match=r"'stationarity' .* scale=7\.0"):
        certify.deterministic(other, smoothness=20.0, minimum=0.0)


def test_a_measure_that_is_nan_decides_nothing():
    history = run(9)
    for name in ("grad_norm", "stationarity", "conjugate"):
        report = certify.deterministic(edited(history, **{name: np.full(10, np.nan)}), smoothness=20.0, minimum=0.0)
        assert report.verdict == "undecided"
        assert report.reason.endswith(f"{name!r} of the history is NaN somewhere")


@pytest.mark.parametrize("name", ["smoothness", "lipschitz", "pl", "gradient_lipschitz", "minimum", "resolution"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, "1", True])
def test_no_constant_is_nan_or_infinite(name, value):
    constants = {"smoothness": 20.0, "minimum": 0.0} | {name: value}
    with pytest.raises((TypeError, ValueError), match=f"{name} must be"):
        certify.deterministic(run(3), **constants)


def test_a_resolution_above_the_gap_decides_nothing():
    report = certify.deterministic(run(9), smoothness=20.0, minimum=0.0, resolution=1e4)
    assert report.verdict == "undecided"
    assert "within rounding, 1e+04, of the minimum" in report.reason


def test_a_bound_that_is_exact_at_the_start_is_not_the_closest():
    report = certify.deterministic(run(9), smoothness=20.0, pl=0.01, minimum=0.0, exact=True)
    assert "at k = 0" not in report.reason


def test_seeds_do_not_count_twice():
    problem = registry["quadratic"]()
    history = certify.simulate(
        problem, lambda rng, x: problem(x)[1], PHI, problem.start, lr=0.05, iterations=4, seeds=range(2)
    )
    assert history["seeds"] == [0, 1]
    twice = {name: np.concatenate([history[name]] * 2, axis=-1) for name in history if name not in ("batch", "seeds")}
    for seeds in ([0, 1], [0, 1, 0, 1]):
        with pytest.raises(ValueError, match="each of the 4 runs must have its own seed"):
            certify.stochastic(edited(history, **twice, seeds=seeds), smoothness=20.0, minimum=0.0, variance=1.0)


def test_a_stochastic_gradient_has_the_shape_of_x():
    problem = registry["quadratic"]()
    with pytest.raises(ValueError, match="gradient must return an array of shape"):
        certify.simulate(problem, lambda rng, x: 1.0, PHI, problem.start, lr=0.05, iterations=1, seeds=range(2))


def test_a_kernel_of_ones_own_that_lies_is_refused():
    lying = type("Lying", (npgm.kernels.Power,), {"mu": 1.0, "strongly_convex_c2": True, "two_subhomogeneous": True})
    phi = npgm.Isotropic(lying(1.5))
    with pytest.raises(ValueError, match=r"mu = 1\.0 is stated, but does not hold"):
        bounds.theorem_2_2(phi, smoothness=1.0, lr=0.5, momentum=0.1, gap=1.0, iterations=3)

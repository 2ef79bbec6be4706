"""The formulas of the bounds, and that a run just outside the assumptions is refused with the one that fails."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import npgm
from npgm.theory import bounds
from npgm.theory.bounds import AssumptionError

COSH, LOG, SEPARABLE = (npgm.reference(n) for n in ("isotropic-cosh", "isotropic-log", "separable-cosh"))
RUN = {"smoothness": 2.0, "lr": 0.5, "gap": 10.0, "iterations": 3}
OVER = 0.5 * (1 + 1e-9)


def test_formulas():
    k = np.arange(4)
    np.testing.assert_allclose(bounds.theorem_2_2(COSH, momentum=0.25, **RUN).values, 10 / (0.5 * (k + 1) * 0.5))
    np.testing.assert_allclose(bounds.base_method(COSH, **RUN).values, 20 / (k + 1))
    np.testing.assert_allclose(bounds.base_method(COSH, **{**RUN, "lr": 0.75}).values, 10 / (0.75 * 0.5 * (k + 1)))
    np.testing.assert_allclose(bounds.theorem_3_1(COSH, noise=0.3, **RUN).values, 20 / (k + 1) + 0.3)
    np.testing.assert_allclose(bounds.theorem_3_5(COSH, noise=0.3, pl=0.5, **RUN).values, 0.75**k * 10 + 0.6)
    np.testing.assert_allclose(bounds.theorem_3_4(COSH, variance=0.6, **RUN).values, 20.3 / (k + 1))
    A = max(1 - 0.25 * (0.25 - 0.125), 0.25 + 0.125)
    np.testing.assert_allclose(bounds.theorem_2_4(COSH, pl=0.5, momentum=0.25, **RUN).values, 10 * A**k)
    bound = bounds.theorem_2_7(COSH, lipschitz=4.0, momentum=0.5, first=0.6, **{**RUN, "lr": 0.0625})
    np.testing.assert_allclose(bound.values[1:], (10 / (0.5 * 0.0625) + 1.2) / k[1:])
    tight = bounds.theorem_2_7(COSH, lipschitz=4.0, momentum=0.5, first=0.6, tight=True, **{**RUN, "lr": 0.0625})
    np.testing.assert_allclose(tight.values[1:], (10 / (0.5 * 0.0625) + 0.6) / k[1:])
    assert np.isnan(bound.values[0])
    assert bound.vacuous[0]
    assert (bound.provenance, tight.provenance) == ("proved", "derived")


def test_bounds_of_line_searches():
    gammas = np.array([2.0, 1.0, 1.0, 0.25])
    bound = bounds.theorem_2_2_variable("isotropic-cosh", stepsizes=gammas, momentum=0.25, gap=3.0, slack=1.0)
    np.testing.assert_allclose(bound.values, 4.0 / (0.5 * np.array([2.0, 3.0, 4.0, 4.25])))
    # with one stepsize it is Theorem 2.2
    constant = bounds.theorem_2_2_variable(COSH, stepsizes=np.full(4, 0.5), momentum=0.25, gap=10.0)
    np.testing.assert_allclose(constant.values, bounds.theorem_2_2(COSH, momentum=0.25, **RUN).values)
    bound = bounds.nonmonotone_descent(sigma=0.1, window=3, gap=2.0, steps=7)
    np.testing.assert_allclose(bound.values, [np.nan, np.nan, 20.0, 20.0, 20.0, 10.0, 10.0])
    for wrong in ([], [0.5, -1.0], [np.nan], 0.5):
        with pytest.raises(ValueError, match="stepsizes must be a sequence of positive finite numbers"):
            bounds.theorem_2_2_variable(COSH, stepsizes=wrong, momentum=0.0, gap=1.0)


def test_every_bound_takes_a_reference_by_name():
    assert bounds.theorem_2_2("isotropic-cosh", momentum=0.25, **RUN).values[0] == 40.0
    assert bounds.gradient_norm("isotropic-cosh", 1.0) == bounds.gradient_norm(COSH, 1.0)
    assert bounds.proposition_e_1("isotropic-cosh") == bounds.proposition_e_1(COSH)
    with pytest.raises(ValueError, match="unknown reference 'cosh'"):
        bounds.theorem_3_1("cosh", noise=0.1, **RUN)


@pytest.mark.parametrize(("beta", "rate"), [(0.05, 0.508), (0.25, 0.673), (0.4, 0.866), (0.49, 0.987)])
def test_refined_rate_of_theorem_2_4(beta, rate):
    run = {**RUN, "gap": 1.0, "iterations": 1, "pl": 1.0}
    refined = bounds.theorem_2_4(COSH, momentum=beta, refined=True, **run).values[1]
    assert refined == pytest.approx(rate, abs=6e-4)
    assert refined <= bounds.theorem_2_4(COSH, momentum=beta, **run).values[1]
    assert bounds.theorem_2_4(COSH, momentum=0.0, refined=True, **run).values[1] == 0.5


def test_scale_enters_the_noise():
    assert bounds.proposition_3_2(npgm.reference("isotropic-cosh", scale=1000.0), 2.0) == 1e-3
    assert bounds.proposition_3_2_provenance(COSH) == "proved"
    assert bounds.proposition_3_2_provenance(npgm.reference("separable-exp")) == "derived"
    for name in ("isotropic-exp", "separable-mix3", "isotropic-mix4"):
        assert bounds.proposition_3_2_provenance(name) == "derived"

    class Stated(npgm.kernels.FromPrimal):
        key, mu, noise_inequality = "stated", 1.0, True

        def h(self, xp, a):
            return a**2 / 2 + a**4 / 4

        def h_prime(self, xp, a):
            return a + a**3

    # that a grid found no violation is no proof
    assert bounds.proposition_3_2_provenance(npgm.Separable(Stated())) == "numerical"
    assert bounds.proposition_3_2(npgm.Separable(Stated()), 1.0) == 0.5


def test_a_start_at_the_minimum_is_no_accident():
    run = {**RUN, "gap": 0.0, "lr": 0.1}
    bound = bounds.theorem_2_7(COSH, lipschitz=2.0, momentum=0.5, first=0.0, **run)
    assert np.isnan(bound.values[0])
    assert not bound.values[1:].any()
    assert not bounds.convex_conjugate(COSH, convex=True, **run).values[1:].any()


def test_bounds_above_what_is_known_anyway_are_vacuous():
    tanh = npgm.reference("isotropic-artanh", scale=2.0)
    bound = bounds.base_method(tanh, smoothness=1.0, lr=1.0, gap=5.0, iterations=9)
    np.testing.assert_array_equal(bound.vacuous, bound.values >= 2 * np.log(2))
    assert bound.vacuous[0]
    assert not bound.vacuous[-1]
    assert not bounds.base_method(COSH, **RUN).vacuous.any()
    assert bounds.theorem_3_5(COSH, noise=100.0, pl=1.0, **RUN).vacuous.all()


REFUSED = [
    (lambda: bounds.theorem_2_2(COSH, momentum=0.25, **{**RUN, "lr": OVER}), "γ <= 1/L = 0.5"),
    (lambda: bounds.theorem_2_2(COSH, momentum=0.5, **RUN), "β < 1/2"),
    (lambda: bounds.convex_conjugate("isotropic-huber", convex=True, **RUN), r"Assumption 1\.2"),
    (lambda: bounds.theorem_3_1("isotropic-huber", noise=0.1, **RUN), r"Assumption 1\.2"),
    (lambda: bounds.theorem_2_2_variable(COSH, stepsizes=[1.0, 0.5, 0.6], momentum=0.2, gap=1.0), "not increase"),
    (lambda: bounds.theorem_2_2_variable(COSH, stepsizes=[1.0], momentum=0.5, gap=1.0), "β < 1/2"),
    (lambda: bounds.theorem_2_2(npgm.reference("isotropic-pow"), momentum=0.2, **RUN), r"Assumption 1\.2"),
    (lambda: bounds.base_method(COSH, **{**RUN, "lr": 1.0}), "γ < 2/L"),
    (lambda: bounds.theorem_2_4(COSH, pl=1.0, momentum=0.0, **RUN), "β > 0"),
    (lambda: bounds.theorem_2_4(COSH, pl=1.0, momentum=0.5, **RUN), "β < 1/2"),
    (lambda: bounds.theorem_2_4(COSH, pl=2.1, momentum=0.2, **RUN), "μ <= L"),
    (lambda: bounds.theorem_2_4(COSH, pl=1.0, momentum=0.2, **{**RUN, "lr": OVER}), "γ <= 1/L"),
    (lambda: bounds.theorem_2_7(SEPARABLE, lipschitz=2.0, momentum=0.5, first=1.0, **RUN), "φ isotropic"),
    (lambda: bounds.theorem_2_7(COSH, lipschitz=2.0, momentum=0.0, first=1.0, **RUN), "β > 0"),
    (lambda: bounds.theorem_2_7(COSH, lipschitz=9.0, momentum=0.5, first=1.0, **RUN), r"\(1-β\)²/L = 0\.0277778"),
    (lambda: bounds.theorem_3_1(LOG, noise=0.1, **RUN), "dom φ = ℝⁿ"),
    (lambda: bounds.theorem_3_1(COSH, noise=0.1, **{**RUN, "lr": OVER}), "γ <= 1/L"),
    (lambda: bounds.theorem_3_4(LOG, variance=0.1, **RUN), "dom φ = ℝⁿ"),
    (lambda: bounds.theorem_3_4(npgm.reference("isotropic-expsq"), variance=0.1, **RUN), r"\(y-z\)²/2"),
    (lambda: bounds.theorem_3_5(LOG, noise=0.1, pl=1.0, **RUN), "dom φ = ℝⁿ"),
    (lambda: bounds.convex_conjugate(COSH, convex=False, **RUN), "f convex"),
    (
        lambda: bounds.convex_isotropic(
            SEPARABLE, smoothness=2.0, lr=0.5, gap=1.0, distance=1.0, gradient_norms=[1.0], convex=True
        ),
        "φ isotropic",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("call", "assumption"), REFUSED)
def test_a_run_outside_the_assumptions_is_refused_by_name(call, assumption):
    with pytest.raises(AssumptionError, match=rf"does not apply: it assumes .*{assumption}"):
        call()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"smoothness": -1.0}, "smoothness must be positive"),
        ({"lr": 0.0}, "lr must be positive"),
        ({"gap": -1.0}, "gap must be nonnegative"),
        ({"gap": np.nan}, "gap must be nonnegative"),
        ({"iterations": -1}, "iterations must be at least 0"),
        ({"momentum": 1.0}, "momentum must lie in"),
    ],
)
def test_bad_numbers_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        bounds.theorem_2_2(COSH, **{"momentum": 0.1, **RUN, **change})
    with pytest.raises(TypeError, match="reference must be a reference function"):
        bounds.theorem_2_2(npgm.Cosh(), momentum=0.1, **RUN)


@pytest.mark.parametrize("values", [[], [[1.0]], [1.0, -1.0], [1.0, np.nan], [1.0, np.inf]])
def test_numbers_of_the_steps_are_checked(values):
    with pytest.raises(ValueError, match="stepsizes must be a sequence of positive finite numbers, one a step"):
        bounds.theorem_2_2_variable(COSH, stepsizes=values, momentum=0.2, gap=1.0)
    with pytest.raises(ValueError, match="gradient_norms must be a sequence of nonnegative finite numbers"):
        bounds.convex_isotropic(COSH, smoothness=2.0, lr=0.5, gap=1.0, distance=1.0, gradient_norms=values, convex=True)


@given(
    st.sampled_from(["cosh", "exp", "log", "sqrt", "artanh", "quad", "mix4"]), st.floats(1e-3, 1e3), st.floats(1e-3, 20)
)
def test_gradient_norm_inverts_the_measure(key, scale, r):
    phi = npgm.reference(f"isotropic-{key}", scale=scale)
    measure = float(phi.stationarity(np.array([r * scale])))
    if measure < phi.stationarity_limit * (1 - 1e-9):
        assert bounds.gradient_norm(phi, measure) == pytest.approx(r * scale, rel=1e-4)


def test_gradient_norm_at_the_ends():
    assert bounds.gradient_norm(npgm.reference("isotropic-sqrt"), 1.0) == np.inf
    assert bounds.gradient_norm(npgm.reference("isotropic-exp"), 0.0) == 0.0
    assert bounds.gradient_norm(COSH, 1.0) == pytest.approx(np.sqrt(3.0))
    with pytest.raises(TypeError, match="isotropic"):
        bounds.gradient_norm(SEPARABLE, 1.0)


@given(st.floats(1e-3, 1e3), st.floats(1e-2, 1e2))
def test_example_e_2_is_tight(radius, scale):
    phi = npgm.reference("isotropic-cosh", scale=scale)
    c = bounds.example_e_2(radius, scale)
    r = np.linspace(0, radius, 50)[:, None]
    measure = phi.stationarity(r, axis=-1)
    assert (measure >= c * r[:, 0] ** 2 * (1 - 1e-12)).all()
    assert measure[-1] == pytest.approx(c * radius**2)


@pytest.mark.parametrize(
    "phi",
    [
        npgm.reference(name, scale=3.0)
        for name in npgm.references.names()
        if npgm.reference(name).kernel.strongly_convex_c2
    ],
    ids=repr,
)
def test_proposition_e_1(phi):
    c, C = bounds.proposition_e_1(phi)
    y = np.random.default_rng(0).standard_normal((200, 3)) * np.logspace(-4, 8, 200)[:, None]
    quotient = phi.stationarity(y, axis=-1) / np.sum(y**2, axis=-1)
    assert quotient.max() == pytest.approx(C, rel=1e-3)
    assert quotient.max() <= C * (1 + 1e-12)
    assert quotient.min() >= c * (1 - 1e-12)
    assert (c > 0) == (quotient.min() > 0.5 * C)  # else it tends to 0 at infinity
    with pytest.raises(AssumptionError, match=r"Proposition E\.1 does not apply"):
        bounds.proposition_e_1(npgm.reference("isotropic-pow"))


def test_proposition_2_6():
    phi, L = bounds.proposition_2_6(2.0, 5.0)
    assert (phi, L) == (npgm.Isotropic(npgm.Log(), scale=0.4), 5.0)
    g = np.array([3.0, -4.0])
    np.testing.assert_allclose(phi.precondition(g) / L, g / (2.0 + 5.0 * 5.0))

"""Euclidean proximal points that are exact, against the conditions for them; and the helpers that all functions share."""

import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds

import npgm
from npgm import proximal
from npgm.proximal.roots import positive_root

numbers = st.one_of(st.floats(-1e3, 1e3), st.integers(-3, 3).map(float))
points = st.lists(numbers, min_size=1, max_size=12).map(np.array)
weights = st.sampled_from([0.0, 1e-3, 0.5, 1.0, 10.0, 1e12])


@given(points, weights, st.sampled_from([0.0, 1e6]))
def test_total_variation_is_the_taut_string(y, tau, offset):
    y = y + offset
    z = proximal.TotalVariation(tau).prox(y, 1.0)
    rounding = 1e-12 * (1.0 + np.abs(y).max())
    # the sums of y - z are multipliers: within ±τ, at an end of which z jumps, and zero at the end
    sums, jumps = np.cumsum(y - z), np.diff(z)
    assert abs(sums[-1]) <= rounding
    assert (np.abs(sums) <= tau + rounding).all()
    large = np.abs(jumps) > rounding
    np.testing.assert_allclose(sums[:-1][large], -tau * np.sign(jumps[large]), rtol=0, atol=rounding)


@given(points, st.floats(0.01, 10.0), st.integers(0, 5))
def test_sorted_l1_leaves_a_subgradient(y, t, seed):
    g = proximal.SortedL1(-np.sort(-np.abs(np.random.default_rng(seed).standard_normal(y.size))))
    p = (y - g.prox(y, t)) / t
    # the dual ball: the k largest magnitudes add up to at most the k largest weights; and ⟨p, z⟩ = g(z)
    rounding = 1e-12 * (1.0 + np.abs(y).max()) / t
    assert (np.cumsum(-np.sort(-np.abs(p))) <= np.cumsum(g.weights) + rounding).all()
    z = g.prox(y, t)
    assert p @ z == pytest.approx(float(g(z)), rel=1e-9, abs=rounding * np.abs(y).max())


@given(points, st.floats(0.1, 100.0))
def test_projections_on_simplex_and_l1_ball(y, size):
    rounding = 1e-12 * (size + np.abs(y).max())
    for g, rows in ((proximal.Simplex(size), y), (proximal.L1Ball(size), np.abs(y))):
        z = g.prox(y, 1.0)
        assert g(z) == 0.0
        # all that is left of the entries has come down by one number, below which the others were
        down = rows - np.abs(z)
        c = down[z != 0.0].max(initial=-math.inf)
        assert (down[z != 0.0] >= c - rounding).all()
        assert (down[z == 0.0] <= max(c, 0.0) + rounding).all()


def test_equal_weights_of_sorted_l1_are_l1():
    y = np.random.default_rng(0).standard_normal((3, 4))
    np.testing.assert_allclose(proximal.SortedL1(np.full(12, 0.3)).prox(y, 2.0), proximal.L1(0.3).prox(y, 2.0))


@pytest.mark.parametrize("lift", ["isotropic", "separable"])
def test_groups_by_labels_and_by_indices_are_rows(lift):
    y, phi = np.random.default_rng(0).standard_normal((4, 3)), npgm.reference(f"{lift}-cosh")
    labels = np.repeat([7, 1, 3, 5], 3).reshape(4, 3)
    rows = proximal.GroupL2([0.1, 0.5, 0.6, 0.9])
    for g in (
        proximal.GroupL2([0.5, 0.6, 0.9, 0.1], groups=labels),
        proximal.GroupL2([0.1, 0.5, 0.6, 0.9], groups=np.arange(12).reshape(4, 3).tolist()),
    ):
        np.testing.assert_allclose(g.step(phi, y, 0.7), rows.step(phi, y, 0.7), rtol=1e-12)
        assert g(y) == pytest.approx(float(rows(y)))


def test_an_unpenalised_entry_stays():
    y = np.array([3.0, -0.2, 5.0])
    for lift in ("isotropic", "separable"):
        for g in (
            proximal.L1([1.0, 1.0, 0.0]),
            proximal.GroupL2(groups=[[0, 1]]),
            proximal.ElasticNet([1, 1, 0], [1, 1, 0]),
        ):
            z = g.step(npgm.reference(f"{lift}-cosh"), y, 1.0)
            assert z[2] == 5.0
            assert z[0] < 3.0


def test_functions_compare_by_the_entries_of_their_arrays():
    made = [
        proximal.L1([1.0, 0.0]),
        proximal.L1([1.0, -0.0]),
        proximal.L1(torch.tensor([1.0, 0.0])),
        pickle.loads(pickle.dumps(proximal.L1(np.array([1.0, 0.0])))),
    ]
    assert len(set(made)) == 1
    assert (
        len({*made, proximal.L1([0.0, 1.0]), proximal.L1(1.0), proximal.Box([1.0, 0.0]), proximal.Nonnegative()}) == 5
    )
    assert proximal.GroupL2(groups=[[0], [1, 2]]) == proximal.GroupL2(groups=([0], np.array([1, 2])))
    with pytest.raises(ValueError, match="read-only"):
        made[0].weight[0] = 2.0


@pytest.mark.parametrize(
    ("bounds", "shape"),
    [
        ([(0.0, None), (None, 1.0), (-math.inf, math.inf), (2.0, 2.0)], 4),
        (np.array([[0.0, math.inf], [-math.inf, 1.0], [-math.inf, math.inf], [2.0, 2.0]]), (2, 2)),
        (Bounds([0.0, -math.inf, -math.inf, 2.0], [math.inf, 1.0, math.inf, 2.0]), (4,)),
        (proximal.Box([0.0, -math.inf, -math.inf, 2.0], [math.inf, 1.0, math.inf, 2.0]), 4),
    ],
)
def test_bounds_of_scipy_make_a_box(bounds, shape):
    box = proximal.as_box(bounds, shape)
    y = np.full(shape, 9.0)
    np.testing.assert_array_equal(box.prox(y, 1.0).ravel(), [9.0, 1.0, 9.0, 2.0])
    np.testing.assert_array_equal(box.prox(-y, 1.0).ravel(), [0.0, -9.0, -9.0, 2.0])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: proximal.as_box([(0.0, 1.0)], 2), ValueError, "bounds has 1 pairs, but x0 has 2 entries"),
        (lambda: proximal.as_box([(1.0, 0.0)], 1), ValueError, r"lower must be at most upper, not 1\.0 > 0\.0"),
        (lambda: proximal.as_box([(math.nan, 0.0)], 1), ValueError, "lower must be finite, -inf or None, not nan"),
        (lambda: proximal.as_box([(math.inf, None)], 1), ValueError, "lower must be finite, -inf or None, not inf"),
        (lambda: proximal.as_box(3, 1), TypeError, r"bounds must be a scipy.optimize.Bounds, or a pair"),
        (lambda: proximal.as_box([1.0, 2.0], 2), TypeError, "a pair"),
        (lambda: proximal.as_box(Bounds([0.0, 0.0], 1.0), 3), ValueError, r"bounds have the shapes \(2,\)"),
        (
            lambda: proximal.Box([0.0, 1.0], [1.0] * 3),
            ValueError,
            r"must broadcast to one shape, not \(2,\) and \(3,\)",
        ),
        (lambda: proximal.L1([1.0, -1.0]), ValueError, r"weight must be nonnegative and finite, not -1\.0 in an array"),
        (lambda: proximal.L1("a"), TypeError, "weight must be a real number or an array of them, not 'a'"),
        (lambda: proximal.L1([1.0] * 3).prox(np.ones(2), 1.0), ValueError, r"weight has the shape \(3,\), but a point"),
        (lambda: proximal.SortedL1([1.0, 2.0]), ValueError, "weights must not increase"),
        (lambda: proximal.SortedL1([2.0, 1.0])(np.ones(3)), ValueError, "weights has 2 numbers, but a point 3"),
        (lambda: proximal.GroupL2(groups=[[0], [0, 1]]), ValueError, "the entry 0 is in more than one"),
        (lambda: proximal.GroupL2(groups=[[0], []]), ValueError, "not empty"),
        (lambda: proximal.GroupL2(groups=[[-1]]), ValueError, "indices from 0 on, not -1"),
        (lambda: proximal.GroupL2(groups=[0.5, 1.0]), TypeError, "groups must be an array of integer labels"),
        (lambda: proximal.GroupL2(along=-2, groups=[0, 1]), ValueError, "along must not be given with groups"),
        (lambda: proximal.GroupL2([1.0], groups=[0, 1]), ValueError, "there are 2 groups"),
        (lambda: proximal.GroupL2(groups=[0, 1])(np.ones(3)), ValueError, "points of 2 entries, not 3"),
        (lambda: proximal.GroupL2(groups=[[5]])(np.ones(3)), ValueError, "points of more than 5 entries, not 3"),
    ],
)
def test_errors_name_what_is_wrong(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("g", [proximal.SortedL1([2.0, 1.0]), proximal.TotalVariation(), proximal.Simplex()], ids=repr)
def test_nan_is_not_silent(g):
    z = g.prox(np.array([[1.0, math.nan], [2.0, math.inf], [0.5, 0.5]]), 1.0, -1)
    assert np.isnan(z[:2]).all()
    assert np.isfinite(z[2]).all()


EDGES = np.array([1e-200, 0.3, math.pi, 1e7])
RISING = {
    "line": (lambda x: x - EDGES, 30),
    "logarithm": (lambda x: np.log(x / EDGES), 30),
    "sinh": (lambda x: np.sinh(x / EDGES) - math.sinh(1.0), 40),
    "jump": (lambda x: np.where(x < EDGES, -1.0, math.nan), 80),
}


@pytest.mark.parametrize("guess", [1.0, 1e-100, 1e300, math.nan])
@pytest.mark.parametrize("name", RISING)
def test_roots_are_found_from_any_guess(name, guess):
    rising, limit = RISING[name]
    calls = []

    def counted(x):
        calls.append(x)
        return rising(x)

    np.testing.assert_allclose(positive_root(np, counted, np.full(4, guess)), EDGES, rtol=1e-14)
    assert len(calls) <= limit


def test_a_function_of_one_sign_has_its_root_at_an_end():
    limits, ones = np.finfo(np.float64), np.ones(2)
    np.testing.assert_array_equal(positive_root(np, lambda x: -ones, ones), limits.max)
    np.testing.assert_array_equal(positive_root(np, lambda x: ones, ones), limits.smallest_normal)

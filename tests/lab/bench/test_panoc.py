"""PANOC, a peer in ``npgm bench peers``, against its definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import npgm
from npgm.lab.bench import _panoc
from npgm.lab.bench._panoc import panoc
from npgm.proximal import L1

RNG = np.random.default_rng(0)
A, B, G = RNG.standard_normal((40, 12)), RNG.standard_normal(40), L1(6.0)
L = float(np.linalg.norm(A, 2)) ** 2


def fun(x):
    return 0.5 * float((A @ x - B) @ (A @ x - B)), A.T @ (A @ x - B)


@pytest.mark.parametrize("lipschitz", [L, None])
def test_the_envelope_is_its_definition_and_falls(lipschitz):
    points = [*itertools.islice(panoc(fun, np.ones(12), G, lipschitz), 20)]
    for point in points:
        assert lipschitz is None or point.gamma == _panoc.ALPHA / L
        ahead = point.x - point.gamma * point.grad
        z = G.prox(ahead, point.gamma)
        moreau = G(z) + np.sum((z - ahead) ** 2) / (2 * point.gamma)
        assert point.envelope == pytest.approx(point.f - point.gamma / 2 * np.sum(point.grad**2) + moreau)
        np.testing.assert_allclose(point.residual, (point.x - z) / point.gamma, atol=1e-10)
    for here, there in itertools.pairwise(points):
        if here.gamma == there.gamma:
            sigma = _panoc.BETA * here.gamma * (1 - _panoc.ALPHA) / 2
            rounding = 1e-12 * abs(here.envelope)
            assert there.envelope <= here.envelope - sigma * np.sum(here.residual**2) + rounding
    assert len({point.gamma for point in points}) < 10


@pytest.mark.parametrize("lipschitz", [L, None])
def test_it_ends_where_minimize_does(lipschitz):
    *_, last = itertools.islice(panoc(fun, np.ones(12), G, lipschitz), 60)
    want = npgm.minimize(fun, np.zeros(12), prox=G, tol=1e-10).x
    np.testing.assert_allclose(last.forward, want, atol=1e-8)


def test_the_product_is_that_of_the_bfgs_matrix():
    pairs = [(s, A.T @ A @ s) for s in RNG.standard_normal((3, 12))]
    s, y = pairs[-1]
    H = (s @ y) / (y @ y) * np.eye(12)
    for s, y in pairs:
        V = np.eye(12) - np.outer(y, s) / (s @ y)
        H = V.T @ H @ V + np.outer(s, s) / (s @ y)
    residual = RNG.standard_normal(12)
    np.testing.assert_allclose(_panoc._product(pairs, residual), H @ residual)

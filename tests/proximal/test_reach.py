"""Steps of a φ with a bounded domain are NaN exactly where no point of finite g lies in it."""

import math

import numpy as np
import pytest
from scipy import optimize

import npgm
from npgm import proximal


def between(lower, upper):
    return lambda low, high: bool((np.maximum(low, lower) <= np.minimum(high, upper)).all())


def least(low, high):
    """The point of a cube that is closest to zero."""
    return np.clip(0.0, low, high)


FUNCTIONS = {
    "box": (proximal.Box(-0.5, [0.8, 0.3, 0.6]), between(-0.5, [0.8, 0.3, 0.6])),
    "barrier": (proximal.Scalar(lambda z: z - np.log(z), lambda z: 1.0 - 1.0 / z, lower=0.0), between(0.0, math.inf)),
    "interval": (proximal.Scalar(np.square, lambda z: 2.0 * z, lower=0.1, upper=0.6), between(0.1, 0.6)),
    "ball": (proximal.Ball(0.9), lambda low, high: np.linalg.norm(least(low, high)) <= 0.9),
    "l1-ball": (proximal.L1Ball(0.9), lambda low, high: np.abs(least(low, high)).sum() <= 0.9),
    "simplex": (
        proximal.Simplex(1.0),
        lambda low, high: high.min() >= 0.0 and np.maximum(low, 0.0).sum() <= 1.0 <= high.sum(),
    ),
}
"""Functions g, and whether the cube between two corners meets their domain."""


def distance(name, lift, y):
    """How far y is from the domain of g, in the norm of the domain of φ."""
    g, meets = FUNCTIONS[name]
    if lift == "separable":
        return optimize.bisect(lambda r: 0.5 - meets(y - r, y + r), 0.0, 100.0, xtol=1e-13) if not meets(y, y) else 0.0
    nearest = g.prox(y, 1.0) if g.indicator else np.clip(y, g.lower, g.upper)
    return np.linalg.norm(y - nearest)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["log", "sqrt", "root"])
@pytest.mark.parametrize("lift", ["isotropic", "separable"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_step_is_nan_where_nothing_is_within_reach(name, lift, kernel):
    g, rng = FUNCTIONS[name][0], np.random.default_rng(0)
    unreachable = 0
    for _ in range(12):
        y, lr, scale = rng.standard_normal(3), rng.choice([0.1, 0.5, 2.0]), rng.choice([0.01, 10.0])
        phi = npgm.reference(f"{lift}-{kernel}", scale=scale)
        z, reach = g.step(phi, y, lr), lr * phi.radius
        if distance(name, lift, y) >= reach:
            unreachable += 1
            assert np.isnan(z).all()
        else:
            assert g(z) < math.inf
            moved = np.linalg.norm(z - y) if lift == "isotropic" else np.abs(z - y).max()
            assert moved <= reach * (1.0 + 1e-12)
    assert 0 < unreachable < 12


@pytest.mark.parametrize("lift", ["isotropic", "spectral"])
@pytest.mark.parametrize("g", [proximal.Ball(0.5), proximal.SpectralBall(0.5), proximal.NuclearBall(0.5)], ids=repr)
def test_no_matrix_of_finite_g_is_within_reach(g, lift):
    y, phi = np.diag([3.0, 1.0, 0.1]), npgm.reference(f"{lift}-log")
    assert np.isnan(g.step(phi, y, 1.0)).all()
    assert g(g.step(phi, y, 5.0)) == 0.0

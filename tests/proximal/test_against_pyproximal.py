"""The Euclidean proximal maps, which the quadratic kernel makes of the steps, against an established library."""

import numpy as np
import pytest

import npgm
from npgm import proximal

ROWS, COLUMNS = 5, 4
NAMES = ("l1", "box", "l2", "ball", "group-l2", "nuclear", "simplex", "l1-ball")
SIZE = ROWS * COLUMNS


@pytest.fixture(scope="module")
def pairs():
    import pyproximal  # a second, and these tests may be another worker's

    return {
        "l1": (proximal.L1(0.7), pyproximal.L1(sigma=0.7), lambda y: y.ravel()),
        "box": (proximal.Box(-0.5, 0.8), pyproximal.Box(-0.5, 0.8), lambda y: y.ravel()),
        "l2": (proximal.L2(0.9), pyproximal.Euclidean(sigma=0.9), lambda y: y.ravel()),
        "ball": (proximal.Ball(1.5), pyproximal.EuclideanBall(0.0, 1.5), lambda y: y.ravel()),
        "group-l2": (proximal.GroupL2(0.6), pyproximal.L21(COLUMNS, sigma=0.6), lambda y: y.T.ravel()),
        "simplex": (
            proximal.Simplex(1.5),
            pyproximal.Simplex(SIZE, 1.5, maxiter=200, ftol=1e-15, xtol=1e-15),
            lambda y: y.ravel(),
        ),
        "l1-ball": (proximal.L1Ball(1.5), pyproximal.L1Ball(SIZE, 1.5, maxiter=200, xtol=1e-15), lambda y: y.ravel()),
        "nuclear": (proximal.NuclearNorm(0.8), pyproximal.Nuclear((ROWS, COLUMNS), sigma=0.8), lambda y: y.ravel()),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "lift"),
    [(name, "isotropic") for name in NAMES]
    + [(name, "separable") for name in NAMES if name != "nuclear"]
    + [(name, "spectral") for name in ("l2", "ball", "nuclear")],
)
def test_the_quadratic_kernel_makes_the_steps_of_pyproximal(pairs, name, lift):
    g, other, flat = pairs[name]
    rng = np.random.default_rng(0)
    for _ in range(6):
        y, lr, scale = 2.0 * rng.standard_normal((ROWS, COLUMNS)), rng.uniform(0.1, 2.0), rng.uniform(0.5, 2.0)
        z = g.step(npgm.reference(f"{lift}-quad", scale=scale), y, lr)
        np.testing.assert_allclose(flat(z), other.prox(flat(y).copy(), lr / scale), rtol=1e-10, atol=1e-12)

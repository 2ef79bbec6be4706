"""The anisotropic proximal steps against their definition."""

import contextlib
import math

import numpy as np
import pytest

import npgm
from backends import JAX, TORCH
from npgm import proximal

SHAPE = (4, 3)
FUNCTIONS = {
    "l1": proximal.L1(0.7),
    "l1-weights": proximal.L1([[0.7, 0.0, 2.0]]),
    "elastic-net": proximal.ElasticNet(0.5, [[0.3], [0.0], [2.0], [1.0]]),
    "box": proximal.Box(-0.5, 1.5),
    "box-arrays": proximal.Box([[-1.0], [-np.inf], [0.0], [0.2]], [1.5, 2.0, np.inf]),
    "nonnegative": proximal.Nonnegative(),
    "scalar-square": proximal.Scalar(lambda z: z * z, lambda z: 2.0 * z),
    "scalar-barrier": proximal.Scalar(lambda z: z - np.log(z), lambda z: 1.0 - 1.0 / z, lower=0.0),
    "scalar-abs": proximal.Scalar(np.abs, np.sign),
    "l2": proximal.L2(0.9),
    "group-l2": proximal.GroupL2(0.6),
    "group-l2-columns": proximal.GroupL2([0.6, 0.0, 1.0], along=-2),
    "group-l2-sizes": proximal.GroupL2([0.6, 0.3, 1.0], groups=[[0, 4, 5, 8], [1, 2], [11]]),
    "ball": proximal.Ball(2.0),
    "simplex": proximal.Simplex(1.5),
    "l1-ball": proximal.L1Ball(2.0),
    "sorted-l1": proximal.SortedL1(np.linspace(1.0, 0.0, 12)),
    "total-variation": proximal.TotalVariation(0.4, l1=0.2),
    "set": proximal.ConvexSet(lambda y: y - y.mean((-2, -1), keepdims=True)),
    "nuclear": proximal.NuclearNorm(0.8),
    "spectral-ball": proximal.SpectralBall(1.2),
    "nuclear-ball": proximal.NuclearBall(1.2),
}
KERNELS = ["cosh", "exp", "log", "mix4"]


SPECTRAL = ("l2", "ball", "nuclear", "spectral-ball", "nuclear-ball")
ISOTROPIC_ALONE = ("set", "nuclear", "spectral-ball", "nuclear-ball", "sorted-l1", "total-variation")
PAIRS = [
    *((name, "isotropic") for name in FUNCTIONS),
    *((name, "separable") for name in FUNCTIONS if name not in ISOTROPIC_ALONE),
    *((name, "spectral") for name in SPECTRAL),
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_which_steps_are_known(name):
    for lift in npgm.references.lifts:
        raises = contextlib.nullcontext() if (name, lift) in PAIRS else pytest.raises(ValueError, match="has no step")
        with raises:
            FUNCTIONS[name].step(npgm.reference(f"{lift}-cosh"), np.zeros(SHAPE), 1.0)


def point(name: str, size: float, seed: int) -> np.ndarray:
    """A point within reach of the domain of every g by φ of radius 1, as the points of a method are."""
    rng = np.random.default_rng(seed)
    y = size * rng.standard_normal(SHAPE)
    return FUNCTIONS[name].prox(y, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["cosh", "log"])
@pytest.mark.parametrize(("name", "lift"), PAIRS)
def test_the_step_satisfies_the_inequality_that_defines_it(name, lift, kernel):
    # z minimises g + γ φ((· - y)/γ) iff p = -∇φ((z - y)/γ) is a subgradient of g at z
    g = FUNCTIONS[name]
    rng = np.random.default_rng(0)
    sizes, lrs = [1.0, 3.0, 0.2, 1e-3], np.array([0.5, 0.1, 2.0, 1.0])
    phi = npgm.reference(f"{lift}-{kernel}", scale=0.3)
    moves = [lr * phi.precondition(rng.standard_normal(SHAPE)) for lr in lrs]
    ys = np.stack([point(name, size, 1) - move for size, move in zip(sizes, moves, strict=True)])
    for y, z, lr in zip(ys, g.step(phi, ys, lrs[:, None, None], axis=(1, 2)), lrs, strict=True):
        assert math.isfinite(g(z))
        p = -phi.gradient((z - y) / lr)
        for distance in (1e-3, 0.1, 3.0):
            for _ in range(3):
                w = g.prox(z + distance * rng.standard_normal(SHAPE), 1e-9)  # of finite g
                assert g(w) >= g(z) + np.sum(p * (w - z)) - 1e-9 * (1.0 + abs(g(z)) + np.abs(p).max() * distance)


@pytest.mark.slow
@pytest.mark.parametrize("lift", ["isotropic", "separable"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_against_brute_force(lift, kernel):
    phi, lr, y = npgm.reference(f"{lift}-{kernel}", scale=0.5), 0.8, np.array([0.3, -0.6])
    grid = np.linspace(-1.0, 1.0, 201)
    points = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1)
    for g in (proximal.L1(0.3), proximal.L2(0.4), proximal.Box(-0.2, 0.1), proximal.Ball(0.4)):
        z = g.step(phi, y, lr)
        values = g(points, axis=-1) + lr * phi((points - y) / lr, axis=-1)
        assert g(z) + lr * phi((z - y) / lr) <= values.min() + 1e-12
        best = points[np.unravel_index(np.argmin(values), values.shape)]
        np.testing.assert_allclose(z, best, atol=0.05)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_quadratic_kernel_makes_the_euclidean_step(name):
    g, y = FUNCTIONS[name], point(name, 1.0, 2) + 0.3
    for scale in (1.0, 4.0):
        phi = npgm.reference("isotropic-quad", scale=scale)
        np.testing.assert_allclose(g.step(phi, y, 0.7), g.prox(y, 0.7 / scale), rtol=1e-12, atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "lift"), dict(reversed(PAIRS)).items())
def test_points_of_a_batch_have_their_own_stepsizes(name, lift):
    g, phi = FUNCTIONS[name], npgm.reference(f"{lift}-cosh", scale=0.5)
    ys = np.stack([point(name, 1.0, seed) + 0.1 for seed in range(3)])
    lrs = np.array([0.1, 1.0, 3.0])
    if name == "set":
        ys = ys - 0.1
    together = g.step(phi, ys, lrs[:, None, None], axis=(1, 2))
    for z, y, lr in zip(together, ys, lrs, strict=True):
        np.testing.assert_allclose(z, g.step(phi, y, float(lr)), rtol=1e-11, atol=1e-13)
    if name != "set":  # whose projection is of the last axes
        columns = np.moveaxis(ys, 0, -1)
        turned = g.step(phi, columns, lrs, axis=(0, 1))
        np.testing.assert_allclose(turned, np.moveaxis(together, 0, -1), rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(g(columns, axis=(0, 1)), g(ys, axis=(1, 2)), rtol=1e-11)


ONCE = ["l1-separable", "box-separable", "nonnegative-isotropic", "l2-isotropic", "group-l2-isotropic", "ball-separable",
        "set-isotropic", "nuclear-spectral", "l1-weights-separable", "box-arrays-isotropic", "group-l2-sizes-isotropic",
        "simplex-separable", "l1-ball-isotropic", "sorted-l1-isotropic", "total-variation-isotropic", "spectral-ball-isotropic"]  # fmt: skip
"""Each function that is not of NumPy alone, with one lift: JAX is slow where nothing is compiled."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "lift", "backend"),
    [
        *((name, lift, TORCH) for name, lift in PAIRS if not name.startswith("scalar")),
        *((*pair.rsplit("-", 1), JAX) for pair in ONCE),
    ],
)
def test_array_libraries_agree(name, lift, backend):
    g, phi, y = FUNCTIONS[name], npgm.reference(f"{lift}-cosh", scale=0.5), point(name, 1.0, 3) + 0.2
    if name == "set":
        y = y - 0.2
    z = g.step(phi, backend.array(y.astype(np.float32)), 0.5)
    assert backend.numpy(z).dtype == np.float32
    np.testing.assert_allclose(backend.numpy(z), g.step(phi, y, 0.5), rtol=1e-4, atol=2e-5)


def test_largest_singular_values_are_kept():
    y = np.random.default_rng(0).standard_normal((5, 4))
    u, s, vt = np.linalg.svd(y, full_matrices=False)
    for lift in ("isotropic", "spectral"):
        z = proximal.Rank(2).step(npgm.reference(f"{lift}-cosh"), y, 1.0)
        np.testing.assert_allclose(z, (u[:, :2] * s[:2]) @ vt[:2], atol=1e-12)
    assert proximal.Rank(2)(z) == 0.0
    assert proximal.Rank(1)(z) == math.inf


def test_what_cannot_be_reached_is_nan():
    far = np.array([5.0, 0.0])
    for lift in ("isotropic", "separable"):
        assert np.isnan(proximal.Box(-1.0, 1.0).step(npgm.reference(f"{lift}-log"), far, 1.0)[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: proximal.L1(-1.0), "weight must be nonnegative and finite, not -1.0"),
        (lambda: proximal.Box(1.0, 0.0), "lower must be at most upper, not 1.0 > 0.0"),
        (lambda: proximal.GroupL2(1.0, along=0), "along must be a negative integer"),
        (lambda: proximal.Ball(math.nan), "radius must be positive and finite, not nan"),
        (lambda: proximal.Rank(0), "rank must be at least 1, not 0"),
        (lambda: proximal.NuclearNorm().step(npgm.reference("isotropic-cosh"), np.ones(3), 1.0), "matrices"),
    ],
)
def test_errors_name_what_is_wrong(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("lift", ["isotropic", "separable", "spectral"])
@pytest.mark.parametrize("kernel", ["log", "sqrt", "huber"])
def test_a_step_is_feasible_or_nan(lift, kernel):
    rng, phi = np.random.default_rng(0), npgm.reference(f"{lift}-{kernel}")
    half = proximal.Scalar(lambda z: -np.log(z), lambda z: -1 / z, lower=0.0)
    seen = set()
    for g in (proximal.Ball(0.9), proximal.SpectralBall(0.9), proximal.Box(-0.3, 0.4), half):
        ys = rng.standard_normal((20, 3, 2))
        try:
            zs = g.step(phi, ys, 0.4, axis=(1, 2))
        except ValueError:
            continue  # no step for this φ
        for y, z in zip(ys, zs, strict=True):
            lost = np.isnan(z).any()
            seen.add(bool(lost))
            assert lost or np.isfinite(g(z))
            assert lost or np.isfinite(phi((z - y) / (0.4 * (1 + 1e-9))))
    assert seen == {True, False}
    y = np.array([-0.518, 1.039, -0.823])
    assert np.isnan(proximal.Ball(0.9).step(npgm.reference("separable-sqrt"), y, 0.1066)).any()

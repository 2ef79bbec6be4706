"""Functions of rows, spheres, and arrays that are one point."""

import numpy as np
import pytest
import torch

import npgm
from npgm.proximal import L1, L2, Ball, Rows, Sphere
from npgm.proximal.joint import joint_step, step_or_prox

ISOTROPIC = ["isotropic-cosh", "isotropic-log", "isotropic-exp", "isotropic-quad"]


@pytest.mark.parametrize("name", ISOTROPIC)
@pytest.mark.parametrize(("weight", "lr"), [(0.3, 0.5), (5.0, 0.02), (0.01, 8.0)])
def test_parts_of_a_vector_step_as_the_vector(name, weight, lr):
    phi, y = npgm.reference(name, scale=0.5), 3.0 * np.random.default_rng(0).normal(size=12)
    want = L1(weight).step(phi, y, lr)
    parts = [y[:5], y[5:].reshape(7, 1)]
    for convert in (np.asarray, torch.tensor):
        got = joint_step(phi, [L1(weight)] * 2, [convert(part) for part in parts], [lr, lr])
        np.testing.assert_allclose(np.concatenate([np.ravel(z) for z in got]), want, rtol=1e-9, atol=1e-12)


def test_different_stepsizes_satisfy_the_condition_of_optimality():
    phi, rng = npgm.reference("isotropic-cosh", scale=0.5), np.random.default_rng(0)
    ys, lrs = [rng.normal(size=4), rng.normal(size=3)], [0.1, 0.4]
    zs = joint_step(phi, [L1(0.3), L2(0.5)], ys, lrs)
    push = -phi.gradient(np.concatenate([(z - y) / lr for z, y, lr in zip(zs, ys, lrs, strict=True)]))
    moved = zs[0] != 0
    assert moved.any()
    np.testing.assert_allclose(push[:4][moved], 0.3 * np.sign(zs[0][moved]), rtol=1e-7)
    assert np.all(np.abs(push[:4]) <= 0.3 * (1 + 1e-7))
    np.testing.assert_allclose(push[4:], 0.5 * zs[1] / np.linalg.norm(zs[1]), rtol=1e-7)


@pytest.mark.parametrize("name", ["separable-cosh", "isotropic-cosh"])
@pytest.mark.parametrize("index", [0, -1])
def test_rows_have_a_step_each(name, index):
    phi, y = npgm.reference(name), np.random.default_rng(0).normal(size=(2, 3, 4))
    z = Rows(Ball(0.5), index).step(phi, y, 0.3, axis=(1, 2))
    for k in range(2):
        for row in range(y.shape[1 if index == 0 else 2]):
            at = (k, row) if index == 0 else (k, slice(None), row)
            np.testing.assert_allclose(z[at], Ball(0.5).step(phi, y[at], 0.3), rtol=1e-12)
    values = Rows(L2(1.0), index)(y, axis=(1, 2))
    np.testing.assert_allclose(values, np.linalg.norm(y, axis=2 if index == 0 else 1).sum(axis=1))


def test_a_vector_has_no_rows():
    with pytest.raises(ValueError, match="two axes or more"):
        Rows(Ball()).prox(np.ones(3), 1.0)


@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-cosh", "spectral-sqrt"])
def test_a_step_to_a_sphere_is_the_closest_point(name):
    y = np.random.default_rng(0).normal(size=(3, 4))
    z = step_or_prox(Sphere(2.0), npgm.reference(name), y, 0.1)
    np.testing.assert_allclose(z, 2.0 * y / np.linalg.norm(y), rtol=1e-12)
    assert Sphere(2.0)(z) == 0.0
    assert Sphere(2.0)(y) == np.inf
    np.testing.assert_allclose(Sphere(2.0).prox(np.zeros(4), 1.0), np.ones(4))

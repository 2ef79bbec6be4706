"""`npgm.minimize` with a spectral φ, which sees matrices where the methods see rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import npgm

PHI = npgm.Spectral(npgm.Sqrt(), scale=0.7)
A = np.random.default_rng(0).standard_normal((5, 3))


def fun(X):
    return 0.5 * ((X - A) ** 2).sum((-2, -1)), X - A


@pytest.mark.parametrize("order", ["after", "before"])
def test_steps_are_those_of_the_matrix(order):
    start = np.random.default_rng(1).standard_normal((5, 3))
    X, m = start, np.zeros_like(start)
    for _ in range(10):
        if order == "after":
            m = 0.9 * m + 0.1 * PHI.precondition(X - A)
            X = X - 0.3 * m
        else:
            m = 0.9 * m + 0.1 * (X - A)
            X = X - 0.3 * PHI.precondition(m)
    options = {"lr": 0.3, "momentum": 0.9, "momentum_order": order, "maxiter": 10, "tol": 0.0}
    got = npgm.minimize(fun, start, reference=PHI, history=True, **options)
    np.testing.assert_allclose(got.x, X, rtol=1e-12)
    assert got.history["stationarity"][-1] == pytest.approx(float(PHI.stationarity(X - A)), rel=1e-10)
    batch = npgm.minimize(fun, np.stack([start, 2 * start]), reference=PHI, batch=True, **options)
    np.testing.assert_allclose(batch.x[0], X, rtol=1e-12)
    blocks = npgm.Blocks(PHI, [(2, 3), (3, 3)])
    split = npgm.minimize(fun, start, reference=blocks, **options | {"maxiter": 1, "momentum": 0.0})
    want = start - 0.3 * np.concatenate([PHI.precondition((start - A)[:2]), PHI.precondition((start - A)[2:])])
    np.testing.assert_allclose(split.x, want, rtol=1e-12)


def test_a_scale_beside_the_reference_is_its_own():
    for reference in ("spectral-sqrt", npgm.Blocks(npgm.Spectral(npgm.Sqrt()), [(2, 3), (3, 3)])):
        scaled = npgm.reference(reference).with_scale(2.0) if isinstance(reference, str) else reference.with_scale(2.0)
        got, want = (
            npgm.minimize(fun, A + 1.0, lr=0.3, maxiter=5, tol=0.0, **options).x
            for options in ({"reference": reference, "scale": 2.0}, {"reference": scaled})
        )
        np.testing.assert_array_equal(got, want)


def test_stationarity_tolerance_and_other_libraries():
    def on_torch(X):
        return 0.5 * ((X - torch.from_numpy(A)) ** 2).sum(), X - torch.from_numpy(A)

    got = npgm.minimize(on_torch, torch.zeros(5, 3, dtype=torch.float64), reference=PHI, lr=0.5, stationarity_tol=1e-8)
    assert got.success
    np.testing.assert_allclose(got.x.numpy(), A, atol=1e-3)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"has 6 entries, but the variables have the shape \(5, 3\)"):
        npgm.minimize(fun, A, lr=0.1, reference=npgm.Blocks(PHI, [(2, 3)]))
    with pytest.raises(ValueError, match="unknown momentum_order 'inside'; accepted: after, before"):
        npgm.minimize(fun, A, lr=0.1, momentum_order="inside")


@pytest.mark.slow
def test_the_matrix_factorisation_converges_from_every_start(ratings):
    problem = npgm.problems.MatrixFactorization(ratings, 10)
    phi = npgm.Blocks(npgm.Spectral(npgm.Cosh(), scale=100.0), [(n, 10) for n in ratings.shape])
    starts = np.stack([problem.start(seed) for seed in range(3)])
    got = npgm.minimize(problem, starts, reference=phi, lr=1.0, momentum=0.9, maxiter=500, tol=0.0, batch=True)
    assert (np.linalg.norm(got.jac.reshape(3, -1), axis=1) <= 1e-6).all()

"""Clipped gradient descent under the deterministic theorems: the descent inequality for hard clipping, and certificates."""

from __future__ import annotations

import numpy as np
import pytest

import npgm
from npgm.problems import registry
from npgm.theory import bounds, certify

ROTATION = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]


def cosh_sum(x):
    """(L0, L1) = (1, 1)-smooth, in directions that are not the axes."""
    y = x @ ROTATION
    return np.sum(np.cosh(y), axis=-1), np.sinh(y) @ ROTATION.T


WAVES, PHASES, SIZES = (np.random.default_rng(1).uniform(-1, 1, shape) for shape in ((12, 2), 12, 12))


def waves(x):
    """Nonconvex, with gradients far beyond the thresholds of the tests."""
    angles = 3.0 * x @ WAVES.T + PHASES
    return np.sin(angles) @ SIZES * 4.0, (np.cos(angles) * SIZES * 12.0) @ WAVES


def waves_hessian(x):
    return -36.0 * np.einsum("...i,ij,ik->...jk", np.sin(3.0 * x @ WAVES.T + PHASES) * SIZES, WAVES, WAVES)


def slack(fun, phi, L, x, y):
    """The right side of the descent inequality (4) minus its left side, for pairs of points."""
    (f, g), (target, _) = fun(x), fun(y)
    u = phi.precondition(g, axis=-1)
    return f + (phi(L * (y - x) + u, axis=-1) - phi.stationarity(g, axis=-1)) / L - target


def pairs(fun, phi, L, n, count, spread, rng):
    """Pairs whose second point the inequality speaks of: w = L(y-x) + ∇φ*(∇f(x)) in the domain, often at its boundary."""
    x = spread * rng.uniform(-1, 1, (count, n))
    w = rng.standard_normal((count, n))
    norm = (
        np.linalg.norm(w, axis=-1, keepdims=True)
        if isinstance(phi, npgm.Isotropic)
        else np.abs(w).max(-1, keepdims=True)
    )
    w *= phi.radius * (1 - 1e-12) * np.minimum(1.0, rng.uniform(0, 3, (count, 1))) / norm
    return x, x + (w - phi.precondition(fun(x)[1], axis=-1)) / L


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [0.1, 1.0, 5.0])
def test_the_descent_inequality_of_hard_clipping(threshold):
    phi, L = bounds.clipping(1.0, 1.0, threshold)
    assert (phi, L) == (npgm.Isotropic(npgm.Huber(threshold)), 1.0 + threshold)
    rng = np.random.default_rng(2)
    x, y = pairs(cosh_sum, phi, L, 3, 100_000, 4.0, rng)
    assert (slack(cosh_sum, phi, L, x, y) >= -1e-12 * cosh_sum(x)[0]).all()
    x, y = pairs(cosh_sum, phi, 0.6 * L, 3, 100_000, 4.0, rng)  # not with any constant
    assert (slack(cosh_sum, phi, 0.6 * L, x, y) < -1e-6).any()


@pytest.mark.slow
@pytest.mark.parametrize(
    "phi", [npgm.Isotropic(npgm.Huber(2.0), scale=1.5), npgm.Separable(npgm.Huber(2.0), scale=1.5)], ids=repr
)
def test_it_holds_with_the_constant_of_the_clipped_gradient(phi):
    rng = np.random.default_rng(3)
    x = rng.uniform(-4, 4, (50_000, 2))
    g, H = waves(x)[1] / phi.scale, waves_hessian(x) / phi.scale
    if isinstance(phi, npgm.Isotropic):
        r = np.linalg.norm(g, axis=-1)[:, None, None]
        direction = g[:, :, None] / r
        J = np.where(r > 2.0, 2.0 / r * (H - direction @ (direction.swapaxes(1, 2) @ H)), H)
    else:
        J = np.where(np.abs(g)[:, :, None] > 2.0, 0.0, H)
    L = np.linalg.norm(J, ord=2, axis=(1, 2)).max() * 1.001
    assert np.mean(np.linalg.norm(g, axis=-1) > 2.0) > 0.5  # most points are clipped
    x, y = pairs(waves, phi, L, 2, 50_000, 3.0, rng)
    assert slack(waves, phi, L, x, y).min() >= -1e-11
    # local search from the tightest pairs
    tight = np.argsort(slack(waves, phi, L, x, y))[:200]
    x, y = x[tight], y[tight]
    size = 0.1
    for _ in range(200):
        trial = x + size * rng.standard_normal(x.shape)
        w = L * (y - x) + phi.precondition(waves(x)[1], axis=-1)
        moved = trial + (w - phi.precondition(waves(trial)[1], axis=-1)) / L
        better = slack(waves, phi, L, trial, moved) < slack(waves, phi, L, x, y)
        x, y = np.where(better[:, None], trial, x), np.where(better[:, None], moved, y)
        size *= 0.97
    assert slack(waves, phi, L, x, y).min() >= -1e-11


@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.9])
def test_clipped_gradient_descent_is_certified(momentum):
    phi, L = bounds.clipping(1.0, 1.0)
    lr = 1 / L if momentum < 0.5 else (1 - momentum) ** 2 / L
    start = ROTATION @ np.array([1.5, -1.0, 0.1])
    history = npgm.minimize(
        cosh_sum, start, reference=phi, lr=lr, momentum=momentum, maxiter=2000, tol=0.0, history=True
    ).history
    report = certify.deterministic(history, smoothness=L, lipschitz=L, minimum=3.0)
    assert report.holds
    assert {c.bound.theorem for c in report.certificates} >= {
        0.0: {"The base bound", "Theorem 2.2"}, 0.3: {"Theorem 2.2"}, 0.9: {"Theorem 2.7"},
    }[momentum]  # fmt: skip
    assert all(c.bound.provenance == "derived" for c in report.certificates)


def test_clipped_gd_is_certified_where_it_clips_the_gradient():
    kwargs = {"lr": 0.5, "max_step": 0.5, "maxiter": 60, "tol": 0.0, "history": True}
    start = np.array([2.0, -1.0, 0.1])
    clipped = npgm.minimize(cosh_sum, start, method="clipped_gd", **kwargs).history
    del kwargs["max_step"]
    same = npgm.minimize(cosh_sum, start, reference=npgm.Isotropic(npgm.Huber(1.0)), **kwargs).history
    for name in ("fun", "stationarity"):
        np.testing.assert_allclose(clipped[name], same[name], rtol=1e-9, atol=1e-12)
    report = certify.deterministic(clipped, smoothness=2.0, minimum=3.0)
    assert report.holds
    assert "Theorem 2.2" in {c.bound.theorem for c in report.certificates}


def test_stochastic_theorems_refuse_clipping():
    phi = npgm.Isotropic(npgm.Huber(1.0))
    problem = registry["quadratic"]()
    history = certify.simulate(
        problem, lambda rng, x: problem(x)[1], phi, problem.start, lr=0.01, iterations=5, seeds=range(3)
    )
    report = certify.stochastic(history, smoothness=20.0, noise=0.1, pl=0.1, minimum=0.0)
    assert not report.certificates
    assert all("Assumption 1.2" in reason for reason in report.refused.values())

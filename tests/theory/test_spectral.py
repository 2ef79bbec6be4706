"""The theory of a spectral φ on matrices: a function with known constants, and what the theorems say of it."""

from __future__ import annotations

import numpy as np
import pytest

import npgm
from npgm.theory import bounds, certify
from npgm.theory.bounds import AssumptionError

SHAPE = (4, 3)
PHI = npgm.Blocks(npgm.Spectral(npgm.Cosh()), [SHAPE])
L = 3**0.5 * 2 ** (1 / 3)  # that of x⁴/4 relative to cosh, as for every function of the singular values


class Quartic:
    """f(X) = ¼ Σ σ_i⁴ = ¼ tr (XᵀX)², on flat vectors."""

    def __call__(self, x):
        X = x.reshape(SHAPE)
        grad = X @ X.T @ X
        return 0.25 * np.sum(X * grad), grad.ravel()

    def hvp(self, x, d):
        X, D = x.reshape(SHAPE), d.reshape(SHAPE)
        return (D @ X.T @ X + X @ D.T @ X + X @ X.T @ D).ravel()


def test_the_spectral_constant_is_the_one_on_the_line():
    rng = np.random.default_rng(0)
    u, v = (np.linalg.qr(rng.standard_normal((n, 3)))[0] for n in SHAPE)
    points = [((u * (t * np.array([1.0, r, 0.3]))) @ v.T).ravel() for t in np.linspace(0.5, 1.5, 21) for r in (1, 0.5)]
    found = npgm.theory.anisotropic_smoothness(Quartic(), PHI, np.stack(points)).value
    assert found == pytest.approx(L, rel=1e-3)
    assert found <= L * (1 + 1e-9)


@pytest.mark.parametrize("momentum", [0.0, 0.3])
def test_runs_keep_the_bounds_and_the_others_are_refused(momentum):
    start = np.random.default_rng(1).standard_normal(12) * 2
    options = {"lr": 1 / L, "momentum": momentum, "reference": PHI, "maxiter": 150, "tol": 0.0, "history": True}
    constants = {"smoothness": L, "lipschitz": L, "minimum": 0.0}
    run = npgm.minimize(Quartic(), start, **options)
    report = certify.deterministic(run.history, **constants)
    assert report.holds
    assert "Theorem 2.2" in {c.bound.theorem for c in report.certificates}
    assert "it assumes φ isotropic, but φ is spectral-cosh in 1 block" in report.refused["Theorem 2.7"]
    before = npgm.minimize(Quartic(), start, momentum_order="before", **options)
    assert bool(certify.deterministic(before.history, **constants).certificates) == (momentum == 0)


def test_stochastic_theorems():
    run = {"smoothness": 1.0, "lr": 0.5, "gap": 1.0, "iterations": 10}
    assert bounds.theorem_3_4(PHI, variance=1.0, **run).provenance == "derived"
    assert bounds.theorem_3_4(npgm.Spectral(npgm.Exp()), variance=1.0, **run).provenance == "derived"
    assert bounds.theorem_3_1(PHI, noise=1.0, **run).provenance == "proved"
    for phi in (npgm.Spectral(npgm.Sqrt()), npgm.Blocks(npgm.Spectral(npgm.Sqrt()), [SHAPE])):
        with pytest.raises(AssumptionError, match="dom φ"):
            bounds.theorem_3_1(phi, noise=1.0, **run)

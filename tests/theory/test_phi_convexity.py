"""Appendix A: Φ-convexity, with the coupling Φ(x, y) = -(1/L)⋆φ(x - y) of anisotropic smoothness, on grids of the line."""

from __future__ import annotations

import numpy as np
import pytest

import npgm
from npgm.problems import registry

PHI = npgm.reference("isotropic-cosh")
X = np.linspace(-2.5, 2.5, 501)


def coupling(L, x, y):
    """Return Φ(x, y) = -(1/L)⋆φ(x - y) = -(1/L) φ(L(x - y)) for all pairs."""
    return -PHI(L * (x[:, None] - y)[..., None], axis=-1) / L


def double_well(x):
    f, grad = registry["double-well"]()(x[:, None])
    return f, PHI.precondition(grad, axis=-1)[:, 0]


def smoothness():
    return registry["double-well"]().constants(PHI).smoothness


def conjugate(values, couplings):
    """Return sup over the rows of Φ - f: the Φ-conjugate at each y, and of couplings transposed the biconjugate."""
    return np.max(couplings - values[:, None], axis=0)


@pytest.mark.parametrize(("factor", "equal"), [(1.0, True), (1.3, True), (0.9, False)])
def test_smoothness_is_phi_convexity_of_minus_f(factor, equal):
    """-f is its Φ-biconjugate, so that f is the infimal convolution of (1/L)⋆φ and (-f)^Φ, if and only if (4) holds."""
    f, u = double_well(X)
    L = factor * smoothness()
    y = X - u / L
    couplings = coupling(L, X, y)
    dual = conjugate(-f, couplings)
    convolution = np.min(dual - couplings, axis=1)  # inf over y of (1/L)⋆φ(x - y) + (-f)^Φ(y)
    np.testing.assert_allclose(-conjugate(dual, couplings.T), convolution)
    assert (np.max(np.abs(convolution - f)) < 1e-12) == equal


def test_the_phi_subgradient_of_minus_f_is_the_iterate():
    """∂_Φ(-f)(x) = {x - (1/L) ∇φ*(∇f(x))}: no other y satisfies the inequality of Definition A.3 for all points."""
    f, u = double_well(X)
    L = 1.1 * smoothness()
    for i in (40, 222, 250, 377):
        y = np.concatenate([[X[i] - u[i] / L], X[i] - u[i] / L + np.geomspace(1e-2, 3.0, 60)])
        y = np.concatenate([y, 2 * y[0] - y[1:]])
        couplings = coupling(L, X, y)
        slack = -f[:, None] + f[i] - couplings + couplings[i]
        subgradient = (slack >= -1e-12).all(axis=0)
        assert subgradient[0]
        assert not subgradient[1:].any()


def test_couplings_with_known_conjugates():
    """⟨x, y⟩ gives the convex conjugate, and -|x - y|²/(2γ) the negative Moreau envelope."""
    y = np.linspace(-3.0, 3.0, 61)
    x = np.linspace(-8.0, 8.0, 16_001)
    cosh = PHI(x[:, None], axis=-1)
    np.testing.assert_allclose(conjugate(cosh, x[:, None] * y), PHI.conjugate(y[:, None], axis=-1), atol=1e-6)
    huber = np.where(np.abs(y) <= 0.5, y**2, np.abs(y) - 0.25)  # the envelope of |x| with γ = 1/2
    np.testing.assert_allclose(conjugate(np.abs(x), -((x[:, None] - y) ** 2)), -huber, atol=1e-6)

"""Statements of the paper on which its theorems rest, against random numbers: Lemma B.1, Propositions B.2, B.3 and C.1."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import npgm
from npgm.problems import registry

REFERENCES = [npgm.reference(name, scale=2.0) for name in npgm.references.names("isotropic", "separable")]
each_reference = pytest.mark.parametrize("phi", REFERENCES, ids=repr)


@given(st.floats(1e-6, 2.0 - 1e-6), st.floats(0.0, 1e3), st.floats(1e-9, 1e3), st.lists(st.floats(0, 1), max_size=60))
def test_lemma_b_1(alpha, first, theta, shares):
    """δ_k <= |1-α|^k δ_0 + θ/(1-|1-α|) for a nonnegative sequence with δ_{k+1} <= (1-α) δ_k + θ."""
    delta = first
    for k, share in enumerate([*shares, 1.0]):
        bound = abs(1 - alpha) ** k * first + theta / (1 - abs(1 - alpha))
        assert delta <= bound * (1 + 1e-12)
        largest = (1 - alpha) * delta + theta
        if largest < 0.0:  # there is no such sequence
            return
        delta = share * largest


def points(phi, *shape):
    """Points of dom φ, some of them at its boundary."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((*shape, 3)) * rng.uniform(0, 3, (*shape, 1))
    if phi.radius < np.inf:
        size = np.linalg.norm(x, axis=-1, keepdims=True) if isinstance(phi, npgm.Isotropic) else np.abs(x)
        x *= phi.radius * (1 - 1e-9) / np.maximum(size, phi.radius * (1 - 1e-9))
    return x


@each_reference
def test_proposition_b_2(phi):
    """φ(Σ λ_i x_i) <= Σ λ_i φ(x_i) for weights that add up to λ <= 1, and λ times that if φ is 2-subhomogeneous."""
    rng = np.random.default_rng(1)
    x = points(phi, 4000, 5)
    total = rng.uniform(0, 1, (4000, 1))
    weights = rng.dirichlet(np.full(5, 0.4), 4000) * total
    left = phi(np.sum(weights[..., None] * x, axis=1), axis=-1)
    right = np.sum(weights * phi(x, axis=-1), axis=1)
    assert (left <= right * (1 + 1e-12) + 1e-14).all()
    if phi.kernel.two_subhomogeneous:
        assert (left <= total[:, 0] * right * (1 + 1e-9) + 1e-14).all()
    else:
        assert (left > total[:, 0] * right * (1 + 1e-9)).any()


@pytest.mark.parametrize(
    "name", ["isotropic-cosh", "separable-cosh", "isotropic-log", "separable-artanh", "isotropic-huber"]
)
def test_proposition_b_3(name):
    """The right side of the descent inequality between two points increases with L."""
    phi, rng = npgm.reference(name), np.random.default_rng(2)
    u = points(phi, 20_000)
    step = rng.standard_normal(u.shape) * rng.uniform(0, 1, (20_000, 1))
    low, high = np.sort(rng.uniform(0.05, 3.0, (2, 20_000)), axis=0)

    def right(L):
        return (phi(L[:, None] * step + u, axis=-1) - phi(u, axis=-1)) / L

    assert np.isfinite(right(high)).mean() > 0.1
    assert (right(low) <= right(high) + 1e-9 * (1 + np.abs(right(low)))).all()


def test_proposition_c_1_and_assumption_2_5():
    """The preconditioned gradient is Lipschitz with the largest norm of its Jacobian, and with no smaller constant."""
    problem, phi = registry["bump"](), npgm.reference("isotropic-cosh")
    x, y = np.random.default_rng(3).uniform(-6, 6, (2, 200_000, 1))
    y[::2] = x[::2] + 1e-3 * y[::2]
    change = np.abs(phi.precondition(problem(x)[1], axis=-1) - phi.precondition(problem(y)[1], axis=-1))[:, 0]
    quotient = change / np.abs(x - y)[:, 0]
    assert 0.999 * 4.8 < quotient.max() <= 4.8 * (1 + 1e-9)


def test_anisotropic_strong_convexity_implies_the_pl_inequality():
    """If φ*/μ - f* is convex, f is μ-PL relative to φ (the remark after Definition 2.3): ∇²φ*(∇f) ∇²f >= μ I for all x.

    (f*)'' = 1/f''(x) and (φ*)'' at y = f'(x) for a function of one variable: the condition is h*''(f') f'' >= μ.
    """
    x = np.linspace(-6.0, 6.0, 20_001)[:, None]
    for problem, name in (
        (registry["cosh-sum"](c=3.0), "isotropic-cosh"),
        (registry["exponential-penalty"](), "isotropic-exp"),
    ):
        phi = npgm.reference(name)
        f, grad = problem(x)
        products = phi.kernel.curvature(grad[:, 0]) * problem.hvp(x, np.ones_like(x))[:, 0]
        mu = products.min()
        gap = f - problem.minimum(1)
        assert mu > 0.0
        assert (phi.stationarity(grad, axis=-1) >= mu * gap * (1 - 1e-9) - 1e-15).all()


def test_the_majorant_is_least_at_the_next_iterate():
    """Equation (2): the right side of the descent inequality, as a function of x, is least at x⁺ = x - (1/L) ∇φ*(∇f(x))."""
    problem, L = registry["quartic"](), 2.2
    rng = np.random.default_rng(4)
    for name in ("isotropic-cosh", "separable-exp", "isotropic-sqrt"):
        phi = npgm.reference(name)
        x = rng.uniform(-2, 2, 3)
        u = phi.precondition(problem(x)[1])
        following = x - u / L
        assert phi(L * (following - x) + u) == pytest.approx(0.0, abs=1e-20)
        assert (phi(L * (following + 0.1 * rng.standard_normal((100, 3)) - x) + u, axis=-1) > 0.0).all()


def test_f_is_an_infimum_of_shifted_reference_functions():
    """Appendix A: f(x) = inf over x̄ of f(x̄) + (1/L)[φ(L(x - ȳ)) - φ(L(x̄ - ȳ))] with ȳ = x̄ - (1/L) ∇φ*(∇f(x̄))."""
    problem, phi = registry["double-well"](), npgm.reference("isotropic-cosh")
    L = problem.constants(phi).smoothness
    x = np.linspace(-2.5, 2.5, 301)[:, None]
    f, grad = problem(x)
    u = phi.precondition(grad, axis=-1)
    majorants = f + (phi(L * (x[:, None] - x) + u, axis=-1) - phi.stationarity(grad, axis=-1)) / L
    np.testing.assert_allclose(majorants.min(axis=1), f, atol=1e-12)


def test_smoothness_is_strong_convexity_of_the_conjugate():
    """Appendix A: f* - φ*/L is convex if and only if (4) holds with L; here with both conjugates by grids."""
    problem, phi = registry["quartic"](), npgm.reference("isotropic-cosh")
    L = problem.constants(phi).smoothness
    slopes = np.linspace(-6.0, 6.0, 241)
    x = np.linspace(-3.0, 3.0, 60_001)
    conjugate = np.max(slopes[:, None] * x - problem(x[:, None])[0], axis=1)
    dual = phi.conjugate(slopes[:, None], axis=-1)
    assert (np.diff(conjugate - dual / L, 2) >= -1e-7).all()
    assert (np.diff(conjugate - dual / (0.9 * L), 2) < -1e-5).any()

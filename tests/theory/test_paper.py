"""What the paper says without a theorem of its own, or on the way to one, against random numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import npgm
from npgm.problems import registry
from npgm.theory import bounds, certify

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


@pytest.mark.parametrize("phi", [phi for phi in REFERENCES if phi.mu > 0.0], ids=repr)
def test_lipschitz_gradients_satisfy_every_assumption(phi):
    """After Assumption 2.5: if ∇f is ℓ-Lipschitz, (4) and Assumption 2.5 hold with ℓ/μ_φ, of a nonconvex f too."""
    H = np.array([[1.0, 2.0], [2.0, -1.0]])
    ell = np.linalg.norm(H, 2) + 1.5

    def function(x):
        return 0.5 * np.sum(x * (x @ H), axis=-1) + 1.5 * np.sum(np.cos(x), axis=-1), x @ H - 1.5 * np.sin(x)

    x = np.random.default_rng(5).standard_normal((4000, 2)) * np.geomspace(1e-2, 30.0, 4000)[:, None]
    x[::2] = x[1::2] + 1e-2 * x[::2]
    assert (certify.descent(function, phi, x, ell / phi.mu) >= -1e-9 * (1 + np.abs(function(x)[0][1:, None]))).all()
    u = phi.precondition(function(x)[1], axis=-1)
    change, step = (np.linalg.norm(np.diff(v, axis=0), axis=-1) for v in (u, x))
    assert (change <= ell / phi.mu * step * (1 + 1e-9) + 1e-12).all()


def test_the_constant_of_lipschitz_gradients_is_least():
    for phi in REFERENCES:
        if phi.mu > 0.0:
            points = 1e-3 * np.array([[0.0], [1.0]])
            slack = certify.descent(lambda x: (0.5 * x @ x, x), phi, points, 0.9 / phi.mu)
            assert (slack[0] > 0.0).all() == (phi.curvature_at_zero * phi.mu < 0.85)


def test_assumption_2_5_is_weaker_than_l0_l1_smoothness():
    """exp(x²) satisfies it relative to log, and with a growing range needs an L1 as large as one likes."""
    problem, phi = registry["exp-square"](), npgm.reference("isotropic-log")
    x = np.linspace(-8.0, 8.0, 8001)[:, None]
    u = phi.precondition(problem(x)[1], axis=-1)
    assert (np.abs(np.diff(u[:, 0])) <= 2.0 * np.diff(x[:, 0]) * (1 + 1e-9)).all()
    far = np.array([[5.0], [10.0], [20.0]])
    least = (problem.hvp(far, np.ones_like(far)) - 1e9) / problem(far)[1]  # L1, for this L0
    assert (least > 1.99 * far).all()


def test_an_l0_l1_smooth_function_has_a_tighter_constant():
    """Remark 1.4: x⁴/4 is (4, 1)-smooth with no smaller L0, and (4) holds with half of L1 relative to its φ."""
    problem = registry["quartic"]()
    x = np.linspace(-5.0, 5.0, 2001)[:, None]
    size, hessian = np.abs(problem(x)[1][:, 0]), problem.hvp(x, np.ones_like(x))[:, 0]
    assert np.max(hessian - size) == pytest.approx(4.0)
    phi, L1 = bounds.proposition_2_6(4.0, 1.0)
    L = problem.constants(phi, n=1).smoothness
    assert L < 0.55 * L1
    points = np.random.default_rng(6).permutation(x)
    assert certify.descent(problem, phi, points, L).min() > -1e-9
    assert certify.descent(problem, phi, x, 0.9 * L).min() < -1e-9


def test_the_tighter_inequality_of_proposition_3_2():
    """φ(x - x̄) + ½(φ(x) - φ(x̄))² <= ½‖∇φ(x) - ∇φ(x̄)‖² for cosh, with equality on a line."""
    phi = npgm.reference("isotropic-cosh")
    x, y = np.random.default_rng(7).standard_normal((2, 20_000, 3)) * np.array([[[3.0]], [[1.5]]])
    y[:100] = x[:100] * np.linspace(-1.5, 1.5, 100)[:, None]
    left = phi(x - y, axis=-1) + 0.5 * (phi(x, axis=-1) - phi(y, axis=-1)) ** 2
    right = 0.5 * np.sum((phi.gradient(x, axis=-1) - phi.gradient(y, axis=-1)) ** 2, axis=-1)
    assert (left <= right * (1 + 1e-9)).all()
    np.testing.assert_allclose(left[:100], right[:100], rtol=1e-9, atol=1e-12)
    assert (phi(x - y, axis=-1) < 0.9 * left).any()


@pytest.mark.parametrize("momentum", [0.3, 0.9])
@pytest.mark.parametrize("key", ["quartic", "double-well", "bump"])
def test_theorem_2_7_holds_with_the_term_that_it_drops(key, momentum):
    """Its proof has -φ(m^K)/K on the right side as well."""
    problem, phi = registry[key](), npgm.reference("isotropic-cosh")
    constants = problem.constants(phi, 1)
    lr = (1 - momentum) ** 2 / max(constants.smoothness, constants.lipschitz)
    history = npgm.minimize(
        problem, problem.start, lr=lr, momentum=momentum, reference=phi, maxiter=100, tol=0.0, history=True
    ).history
    S, m = history["stationarity"], history["momentum"]
    bound = bounds.theorem_2_7(
        phi, smoothness=constants.smoothness, lipschitz=constants.lipschitz, lr=lr, momentum=momentum,
        gap=history["fun"][0] - problem.minimum(1), first=S[0], iterations=99,
    )  # fmt: skip
    K = np.arange(1, 100)
    assert (np.cumsum(S[1:100]) / K <= bound.values[1:] - m[2:101] / K).all()
    assert (m[2:101] > 0.0).any()


def test_the_coefficients_in_the_proof_of_theorem_2_2():
    """u^k - m^k = βu^k - (1-β) Σ β^k' u^{k-k'}: that of u^{k-k'} has the power k', where the paper prints k."""
    beta, steps = 0.4, 12
    m = np.zeros(steps)
    for k in range(steps):
        m = beta * m + (1 - beta) * np.eye(steps)[k]
        past = np.arange(1, k + 1)
        difference = np.eye(steps)[k] - m
        assert difference[k] == pytest.approx(beta)
        np.testing.assert_allclose(difference[k - past], -(1 - beta) * beta**past)
        assert np.abs(difference).sum() == pytest.approx(2 * beta - beta ** (k + 1))


def test_example_3_3_has_no_bounded_moment():
    """E|g - f'|^p = |x + 5|^p for every p, whereas the noise of Theorem 3.1 is bounded."""
    problem, phi = registry["two-quadratics"](), npgm.reference("isotropic-cosh")
    x = np.geomspace(1.0, 1e6, 25)[:, None]
    samples, full = np.stack(problem.gradients(x)), problem(x)[1]
    for p in (1.1, 1.5, 2.0):
        np.testing.assert_allclose(np.mean(np.abs(samples - full) ** p, axis=0), (x + 5.0) ** p)
    dual, _ = npgm.theory.noise(phi, np.moveaxis(samples, 0, 1), full)
    assert dual.value < problem.noise(phi)

"""Momentum before the map, and after it with any β: theorems that the paper does not contain (docs/theory.md)."""

from __future__ import annotations

from typing import Any

import numpy as np

from npgm._common import validate
from npgm.references import Isotropic, Reference
from npgm.theory.bounds import assume
from npgm.theory.bounds.bound import Bound, established, on_stationarity
from npgm.theory.bounds.stochastic import proposition_3_2


def momentum_before(
    reference: Reference | str,
    *,
    lipschitz: float,
    lr: float,
    momentum: float,
    gap: float,
    first: float,
    variance: float = 0.0,
    iterations: int,
) -> Bound:
    """Theorem A: E mean of S_0..S_{K-1} <= D0/(γK) + β²‖∇f(x^0)‖²/(2λ(1-β)K) + (1-β)σ²/(2λ), at any batch size.

    Steps x - γ∇φ*(m), m ← β m + (1-β) g from m = 0, with E‖g - ∇f‖² <= σ², for a φ = λψ of any lift with the noise
    inequality, and with γL + (βγl/(λ(1-β)))²/μ <= 1, where L = l/(λμ); for μ = 1, γ <= (1-β)λ/l suffices. The value
    at k is for K = k + 1.

    Args:
        reference: φ.
        lipschitz: l, the Lipschitz constant of ∇f.
        lr: γ.
        momentum: β in [0, 1).
        gap: D0.
        first: ‖∇f(x^0)‖.
        variance: σ²; 0 for exact gradients.
        iterations: the last k.

    Raises:
        AssumptionError: if an assumption fails.
    """
    name = "Theorem A"
    phi, _ = assume.strongly_convex(name, reference)
    noise = proposition_3_2(phi, variance)
    beta, size = validate.fraction("momentum", momentum), validate.nonnegative("first", first)
    ell = validate.positive("lipschitz", lipschitz)
    _, gamma, D0, k = assume.numbers(ell, lr, gap, iterations)
    q = gamma / phi.scale * ell  # so that no λ makes it overflow
    drift = beta * q / (1.0 - beta)
    condition = (q + drift * drift) / phi.kernel.mu
    assume.need(name, condition <= assume.ONE, "γL + (βγl/(λ(1-β)))²/μ <= 1", f"that is {condition:g}")
    start = D0 / gamma + beta**2 * (size / phi.scale) * size / (2.0 * (1.0 - beta))
    return on_stationarity(name, phi, start / (k + 1) + (1.0 - beta) * noise, "derived")


def momentum_before_bounded(
    reference: Reference | str,
    *,
    lipschitz: float,
    lr: float,
    momentum: float,
    gap: float,
    first: float,
    deviation: float = 0.0,
    moment: float = 2.0,
    ratio: float = 1.0,
    iterations: int,
) -> Bound:
    """Theorem A': a bound on the E mean of φ*(∇f(x^k)), k < K, for a φ of bounded domain: NGD, SNGD, clipping, Muon.

    D0/(γK) + 2r[β‖∇f(x^0)‖/((1-β)K) + βLrγ/(1-β) + c ρσ(1-β)^{1-1/p}] + Lr²γ/2 with momentum before the map, from
    m = 0, where dom φ lies in a ball of radius r of a norm: ℓ2 for an isotropic, ℓ∞ for a separable and the operator
    norm for a spectral φ. c = 2^{2/p-1}, which is 1 for p = 2. The value at k is for K = k + 1. It is about φ*(∇f), and
    says nothing of the stationarity measure φ(∇φ*(∇f)).

    Args:
        reference: φ.
        lipschitz: L with ‖∇f(x) - ∇f(y)‖_* <= L‖x - y‖ in that norm and its dual one.
        lr: γ.
        momentum: β in [0, 1).
        gap: D0.
        first: ‖∇f(x^0)‖_*.
        deviation: σ with E‖g - ∇f‖^p <= σ^p, of the Euclidean norm.
        moment: p in (1, 2].
        ratio: ρ with ‖y‖_* <= ρ‖y‖: 1 for an isotropic φ, √n for a separable, √min(rows, columns) for a spectral one.
        iterations: the last k.

    Raises:
        AssumptionError: if φ has no bounded domain.
    """
    name = "Theorem A'"
    phi, _ = assume.strongly_convex(name, reference)
    assume.need(name, phi.radius < np.inf, "dom φ bounded", f"{phi.kernel!r} is finite everywhere")
    L, gamma, D0, k = assume.numbers(lipschitz, lr, gap, iterations)
    beta, p, r = validate.fraction("momentum", momentum), _moment(moment), phi.radius
    sigma = validate.nonnegative("deviation", deviation) * validate.positive("ratio", ratio)
    noise = 2.0 ** (2.0 / p - 1.0) * sigma * (1.0 - beta) ** (1.0 - 1.0 / p)
    drift = beta * L * r * gamma / (1.0 - beta)
    start = D0 / gamma + 2.0 * r * beta * validate.nonnegative("first", first) / (1.0 - beta)
    values = start / (k + 1) + 2.0 * r * (drift + noise) + 0.5 * L * r * r * gamma
    return Bound(name, "mean conjugate", values, established(phi, "derived"), np.zeros(values.shape, np.bool_))


def schedule(iterations: int, moment: float = 2.0) -> tuple[float, float]:
    """Return the γ and β of Theorem A' for a run of K iterations. They need no constant of f.

    1-β = K^{-p/(3p-2)} and γ = K^{-(2p-1)/(3p-2)}, that is K^{-1/2} and K^{-3/4} for a bounded variance, p = 2. The
    bound is then O(K^{-(p-1)/(3p-2)}), K^{-1/4} for p = 2.

    Args:
        iterations: K >= 1.
        moment: p in (1, 2], such that E‖g - ∇f‖^p is bounded.

    Example:
        >>> lr, momentum = schedule(10_000)
        >>> round(lr, 6), round(momentum, 6)
        (0.001, 0.99)
    """
    K, p = float(validate.count("iterations", iterations, least=1)), _moment(moment)
    return K ** -((2.0 * p - 1.0) / (3.0 * p - 2.0)), 1.0 - K ** -(p / (3.0 * p - 2.0))


def _moment(moment: float) -> float:
    p = validate.positive("moment", moment)
    if not 1.0 < p <= 2.0:
        raise ValueError(f"moment must be above 1 and at most 2, not {moment!r}")
    return p


def momentum_after_variable(
    reference: Reference | str,
    *,
    stepsizes: Any,
    momentum: float,
    tau: float,
    gap: float,
    first: float,
    slack: float = 0.0,
) -> Bound:
    """Theorem B with stepsizes that vary: Σ γ_k S_k <= (D0 + slack + β²γ_0 S_0/(1-β)) / (1-τ²), without an L.

    Each step of Algorithm 1 must have passed the descent test f(x - γm) <= f(x) + γφ(u-m) - γφ(u) and
    β‖u⁺ - u‖ <= τ(1-β)‖m‖, where u⁺ is u at x - γm, and the stepsizes must not increase. φ is isotropic and
    2-subhomogeneous. The bound is on the mean of S_0..S_k with the weights γ_0..γ_k.

    Args:
        reference: φ.
        stepsizes: γ_k of the step from x^k, for each step taken.
        momentum: β in [0, 1).
        tau: τ in (0, 1).
        gap: D0.
        first: S_0.
        slack: the excess over its right side that the test allowed, summed over the steps.

    Raises:
        AssumptionError: if an assumption fails.
        ValueError: if ``stepsizes`` is not a sequence of positive finite numbers.
    """
    name = "Theorem B, variable stepsizes"
    phi, _ = assume.strongly_convex(name, reference)
    assume.need(name, isinstance(phi, Isotropic), "φ isotropic", f"φ is {phi.name}")
    assume.two_subhomogeneous(name, phi)
    gammas = assume.not_increasing(name, stepsizes)
    beta, tau = validate.fraction("momentum", momentum), validate.positive("tau", tau)
    assume.need(name, tau < 1.0, "τ < 1", f"τ = {tau:g}")
    start = validate.nonnegative("gap", gap) + validate.nonnegative("slack", slack)
    start += beta**2 * gammas[0] * validate.nonnegative("first", first) / (1.0 - beta)
    values = start / ((1.0 - tau**2) * np.cumsum(gammas))
    return on_stationarity(name, phi, values, "derived", quantity="weighted mean stationarity")


def momentum_after(
    reference: Reference | str,
    *,
    smoothness: float,
    lipschitz: float,
    lr: float,
    momentum: float,
    gap: float,
    first: float,
    iterations: int,
) -> Bound:
    """Theorem B: mean of S_0..S_K <= (D0/γ + β²S_0/(1-β)) / ((1-τ²)(K+1)), where τ = βγL_p/(1-β) < 1 and γ <= 1/L.

    Algorithm 1 with any β in [0, 1), for an isotropic, 2-subhomogeneous φ: sharper than Theorem 2.7, whose stepsize is
    (1-β)²/L.

    Args:
        reference: φ.
        smoothness: L of the descent inequality (4).
        lipschitz: L_p, the Lipschitz constant of ∇φ*(∇f).
        lr: γ.
        momentum: β.
        gap: D0.
        first: S_0.
        iterations: the last k.

    Raises:
        AssumptionError: if an assumption fails.
    """
    name = "Theorem B"
    phi, _ = assume.strongly_convex(name, reference)
    L, gamma, D0, k = assume.numbers(smoothness, lr, gap, iterations)
    assume.need(name, isinstance(phi, Isotropic), "φ isotropic", f"φ is {phi.name}")
    assume.two_subhomogeneous(name, phi)
    assume.at_most_1_over_l(name, gamma, L)
    beta = validate.fraction("momentum", momentum)
    tau = beta * gamma * validate.positive("lipschitz", lipschitz) / (1.0 - beta)
    assume.need(name, tau < 1.0, "τ = βγL_p/(1-β) < 1", f"τ = {tau:g}")
    start = D0 / gamma + beta**2 * validate.nonnegative("first", first) / (1.0 - beta)
    return on_stationarity(name, phi, start / ((1.0 - tau**2) * (k + 1)), "derived")

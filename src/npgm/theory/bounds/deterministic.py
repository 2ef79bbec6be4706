"""The base method and Algorithm 1: Theorems 2.2, 2.4 and 2.7, and runs whose stepsizes a line search finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.optimize

from npgm._common import validate
from npgm.kernels import Huber, Log
from npgm.references import Isotropic, Reference
from npgm.theory.bounds import assume
from npgm.theory.bounds.bound import Bound, Quantity, on_gap, on_stationarity


def base_method(reference: Reference | str, *, smoothness: float, lr: float, gap: float, iterations: int) -> Bound:
    """Base method, derived: mean of S_0..S_K <= D0 / (γ α' (K+1)), where α' = 1 if γ L <= 1, and 2 - γ L up to γ L < 2.

    The second needs φ 2-subhomogeneous.

    Raises:
        AssumptionError: if an assumption fails.
    """
    name = "The base bound"
    phi, _ = assume.strongly_convex(name, reference)
    L, gamma, D0, k = assume.numbers(smoothness, lr, gap, iterations)
    factor = 1.0
    if gamma * L > assume.ONE:
        assume.need(name, gamma * L < 2.0, "γ < 2/L", f"γ = {gamma:g} and L = {L:g}")
        assume.two_subhomogeneous(name, phi)
        factor = 2.0 - gamma * L
    return on_stationarity(name, phi, D0 / (gamma * factor * (k + 1)), "derived")


def theorem_2_2(
    reference: Reference | str, *, smoothness: float, lr: float, momentum: float, gap: float, iterations: int
) -> Bound:
    """Theorem 2.2: mean of S_0..S_K <= D0 / (γ (K+1) (1-2β)), for 0 < γ <= 1/L and 0 <= β < 1/2.

    Raises:
        AssumptionError: if an assumption fails.
    """
    name = "Theorem 2.2"
    phi, provenance = assume.strongly_convex(name, reference)
    L, gamma, D0, k = assume.numbers(smoothness, lr, gap, iterations)
    assume.at_most_1_over_l(name, gamma, L)
    beta = assume.below_half(name, momentum, zero=True)
    remark = "stated for the least S_k, and proved for the mean; α > 0 is omitted there"
    return on_stationarity(name, phi, D0 / (gamma * (k + 1) * (1.0 - 2.0 * beta)), provenance, remark)


def theorem_2_2_variable(
    reference: Reference | str, *, stepsizes: Any, momentum: float, gap: float, slack: float = 0.0
) -> Bound:
    """Theorem 2.2 with stepsizes that vary, derived: Σ γ_k S_k <= (D0 + slack) / (1-2β), for 0 <= β < 1/2.

    For β > 0 the stepsizes must not increase. It needs no L, only that each step passed the descent test f(x - γm) <=
    f(x) + γφ(u-m) - γφ(u), which every γ <= 1/L passes. The bound is on the mean of S_0..S_k with the weights γ_0..γ_k.

    Args:
        reference: φ.
        stepsizes: γ_k of the step from x^k, for each step taken.
        momentum: β.
        gap: D0.
        slack: the excess over its right side that the test allowed, summed over the steps.

    Raises:
        AssumptionError: if an assumption fails.
        ValueError: if ``stepsizes`` is not a sequence of positive finite numbers.
    """
    name = "Theorem 2.2, variable stepsizes"
    phi, _ = assume.strongly_convex(name, reference)
    beta = assume.below_half(name, momentum, zero=True)
    gammas = assume.not_increasing(name, stepsizes) if beta else assume.sequence("stepsizes", stepsizes)
    D0 = validate.nonnegative("gap", gap) + validate.nonnegative("slack", slack)
    values = D0 / ((1.0 - 2.0 * beta) * np.cumsum(gammas))
    return on_stationarity(name, phi, values, "derived", quantity="weighted mean stationarity")


def nonmonotone_descent(*, sigma: float, window: int, gap: float, steps: int, slack: float = 0.0) -> Bound:
    """Any method, derived: min_{k<K} γ_k S_k <= (D0 + slack) / (σ⌊K/W⌋) over the K steps that were accepted.

    Each step must have passed the test f(x^{k+1}) <= max{f(x^k), ..., f(x^{k-W+1})} - σ γ_k S_k, with the last W values
    or fewer. It needs no L, and does not depend on how the steps were found. The value at k is for K = k + 1.

    Args:
        sigma: σ in (0, 1].
        window: W >= 1.
        gap: D0.
        steps: how many steps were accepted.
        slack: the excess over its right side that the test allowed, summed over the steps.
    """
    blocks = np.arange(1, validate.count("steps", steps, least=1) + 1) // validate.count("window", window, least=1)
    D0 = validate.nonnegative("gap", gap) + validate.nonnegative("slack", slack)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(blocks > 0, D0 / (validate.positive("sigma", sigma) * blocks), np.nan)
    return Bound("Nonmonotone descent", "least weighted stationarity", values, "derived", np.isnan(values))


def theorem_2_4(
    reference: Reference | str,
    *,
    smoothness: float,
    pl: float,
    lr: float,
    momentum: float,
    gap: float,
    iterations: int,
    refined: bool = False,
) -> Bound:
    """Theorem 2.4: f(x^k) - inf f <= A^k D0, for 0 < γ <= 1/L, 0 < β < 1/2, φ 2-subhomogeneous and f μ-PL.

    A = max{1 - γμ(β - 2β²), β + 2β²}. If ``refined``, the derived A_c = max{1 - γμ(1-2β²-c(1-β)), β + 2β²/c}, least
    over c, which tends to the rate 1 - γμ of the base method as β → 0; β = 0 is then allowed.

    The proof bounds the Lyapunov function V_k = c γ φ(m^{k-1}) + f(x^k) - inf f, with c = 1 unless ``refined``: the
    bound holds of it too, and ``Bound.weight`` is c.

    Raises:
        AssumptionError: if an assumption fails.
    """
    name = "Theorem 2.4, refined" if refined else "Theorem 2.4"
    phi, provenance = assume.strongly_convex(name, reference)
    L, gamma, D0, k = assume.numbers(smoothness, lr, gap, iterations)
    assume.at_most_1_over_l(name, gamma, L)
    assume.two_subhomogeneous(name, phi)
    mu = assume.pl_at_most_l(name, pl, L)
    beta = assume.below_half(name, momentum, zero=refined)
    if refined:
        rate, weight = _refined_rate(gamma * mu, beta)
        return on_gap(name, phi, D0 * rate**k, D0, "derived", weight=weight)
    rate = max(1 - gamma * mu * (beta - 2 * beta**2), beta + 2 * beta**2)
    remark = "γ > 0 is omitted there; A tends to 1 as β → 0, an artefact of the proof"
    return on_gap(name, phi, D0 * rate**k, D0, provenance, remark, weight=1.0)


def _refined_rate(gamma_mu: float, beta: float) -> tuple[float, float]:
    """Return the least A_c, and its c."""
    if beta == 0.0:
        return 1.0 - gamma_mu, 0.0
    low, high = 2 * beta**2 / (1 - beta), (1 - 2 * beta**2) / (1 - beta)

    def rate(c: float) -> float:
        return max(1.0 - gamma_mu * (1 - 2 * beta**2 - c * (1 - beta)), beta + 2 * beta**2 / c)

    best = scipy.optimize.minimize_scalar(rate, bounds=(low, high), method="bounded")
    return float(best.fun), float(best.x)


def proposition_2_6(l0: float, l1: float) -> tuple[Reference, float]:
    """Proposition 2.6: for an (L0, L1)-smooth f, the φ and L for which Theorem 2.7 holds.

    The map ∇f/(L0 + L1 ‖∇f‖) is 1-Lipschitz: relative to φ = (L0/L1)(-‖x‖ - ln(1-‖x‖)), ∇φ*(∇f) is L1-Lipschitz. The
    descent inequality (4) holds with L = L1 as well, as the limit of its strict second-order condition; the paper's
    remark prints L < L1 there, and must read L > L1.
    """
    scale = validate.positive("l0", l0) / validate.positive("l1", l1)
    return Isotropic(Log(), scale=scale), float(l1)


def clipping(l0: float, l1: float, threshold: float | None = None) -> tuple[Reference, float]:
    """Hard clipping, derived: for an (L0, L1)-smooth f, the φ of clipping at c and the L of Theorems 2.2, 2.4 and 2.7.

    The clipped gradient min{1, c/‖∇f‖} ∇f is (L0 + c L1)-Lipschitz, and the descent inequality (4) follows with this L.
    Gradient descent with clipped gradients is then Algorithm 1, and momentum that of the clipped gradients.

    Args:
        l0: L0 > 0.
        l1: L1 > 0.
        threshold: c; by default L0/L1, for which L = 2 L0.
    """
    l0, l1 = validate.positive("l0", l0), validate.positive("l1", l1)
    c = l0 / l1 if threshold is None else validate.positive("threshold", threshold)
    return Isotropic(Huber(c)), l0 + c * l1


def theorem_2_7(
    reference: Reference | str,
    *,
    smoothness: float,
    lipschitz: float,
    lr: float,
    momentum: float,
    gap: float,
    first: float,
    iterations: int,
    tight: bool = False,
) -> Bound:
    """Theorem 2.7: mean of S_1..S_K <= (D0/(βγ) + S_0/(1-β)) / K, for φ isotropic, 0 < β < 1 and γ = (1-β)²/L.

    L is a constant of both the descent inequality and the Lipschitz condition (Assumption 2.5), so any smaller γ is
    allowed as well. If ``tight``, the derived coefficient β/(1-β) of S_0.

    Args:
        reference: φ.
        smoothness: the constant of the descent inequality (4).
        lipschitz: the Lipschitz constant of ∇φ*(∇f).
        lr: γ.
        momentum: β.
        gap: D0.
        first: S_0.
        iterations: the last K.
        tight: whether to use the smaller coefficient.

    Raises:
        AssumptionError: if an assumption fails.
    """
    name = "Theorem 2.7, tight" if tight else "Theorem 2.7"
    phi, provenance = assume.strongly_convex(name, reference)
    L, gamma, D0, k = assume.numbers(smoothness, lr, gap, iterations)
    L = max(L, validate.positive("lipschitz", lipschitz))
    assume.need(name, isinstance(phi, Isotropic), "φ isotropic", f"φ is {phi.name}")
    beta = validate.fraction("momentum", momentum)
    assume.need(name, beta > 0.0, "β > 0", "β = 0")
    largest = (1 - beta) ** 2 / L
    assume.need(name, gamma <= largest * assume.ONE, f"γ <= (1-β)²/L = {largest:g}", f"γ = {gamma:g}")
    coefficient = (beta if tight else 1.0) / (1.0 - beta)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = (D0 / (beta * gamma) + coefficient * validate.nonnegative("first", first)) / k
    values[0] = np.nan
    quantity: Quantity = "mean stationarity from 1"
    if tight:
        return on_stationarity(name, phi, values, "derived", quantity=quantity)
    remark = "stated for the least S_k, and proved for the mean; two sums of its proof print β^(K+1) for β^(k+1)"
    return on_stationarity(name, phi, values, provenance, remark, quantity)

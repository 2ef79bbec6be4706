"""The theorems as functions: one each, which checks its assumptions and returns its bound.

Throughout, u^k = ∇φ*(∇f(x^k)), S_k = φ(u^k) is the stationarity measure, D0 = f(x^0) - inf f is ``gap``, γ is ``lr``, β
is ``momentum``, L is ``smoothness``, and μ is ``pl``. Numbers are those of the paper; what it does not contain is
derived in ``docs/theory.md``.

    >>> import npgm
    >>> phi = npgm.reference("isotropic-cosh")
    >>> bound = npgm.theory.bounds.theorem_2_2(phi, smoothness=2.0, lr=0.5, momentum=0.25, gap=10.0, iterations=100)
    >>> bound.provenance, round(float(bound.values[-1]), 4)
    ('proved', 0.396)
    >>> npgm.theory.bounds.theorem_2_2(phi, smoothness=2.0, lr=0.5, momentum=0.5, gap=10.0, iterations=100)
    Traceback (most recent call last):
    ...
    npgm.theory.bounds.AssumptionError: Theorem 2.2 does not apply: it assumes β < 1/2, but β = 0.5
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import scipy.optimize

from npgm import _validate
from npgm._array import Bools, Floats
from npgm.kernels import Cosh, Log, Power, Quadratic
from npgm.references import Isotropic, Reference, Separable

Provenance = Literal["proved", "derived", "numerical"]
Quantity = Literal["mean stationarity", "mean stationarity from 1", "gap", "conjugate"]


class AssumptionError(ValueError):
    """An assumption of a theorem does not hold.

    Args:
        theorem: the theorem.
        assumption: what it assumes.
        found: what is the case.
    """

    def __init__(self, theorem: str, assumption: str, found: str) -> None:
        super().__init__(f"{theorem} does not apply: it assumes {assumption}, but {found}")
        self.theorem, self.assumption = theorem, assumption


@dataclass(frozen=True)
class Bound:
    """An upper bound at each k = 0, 1, ..., K on a quantity of a run.

    Args:
        theorem: where it stands.
        quantity: what is bounded: ``"mean stationarity"``, (S_0 + ... + S_k)/(k+1) and so also the least of them;
            ``"mean stationarity from 1"``, (S_1 + ... + S_k)/k; ``"gap"``, f(x^k) - inf f; ``"conjugate"``,
            φ*(∇f(x^k)). For a stochastic method, its expectation.
        values: the bound at each k, NaN where the theorem says nothing.
        provenance: ``"proved"`` in the paper, ``"derived"`` in the documentation of this package, or ``"numerical"``:
            seen to hold, without a proof.
        vacuous: where the bound is no less than what is known without it: the supremum of the measure, or D0.
        remark: what differs from the printed statement.
    """

    theorem: str
    quantity: Quantity
    values: Floats = field(repr=False)
    provenance: Provenance
    vacuous: Bools = field(repr=False)
    remark: str = ""


def base_method(reference: Reference, *, smoothness: float, lr: float, gap: float, iterations: int) -> Bound:
    """Base method, derived: mean of S_0..S_K <= D0 / (γ α' (K+1)), where α' = 1 if γ L <= 1, and 2 - γ L up to γ L < 2.

    The second needs φ 2-subhomogeneous.

    Raises:
        AssumptionError: if an assumption fails.
    """
    name = "The base bound"
    L, gamma, D0, k = _common(name, reference, smoothness, lr, gap, iterations)
    factor = 1.0
    if gamma * L > _ONE:
        _need(name, gamma * L < 2.0, "γ < 2/L", f"γ = {gamma:g} and L = {L:g}")
        _two_subhomogeneous(name, reference)
        factor = 2.0 - gamma * L
    return _stationarity(name, reference, D0 / (gamma * factor * (k + 1)), "derived")


def theorem_2_2(
    reference: Reference, *, smoothness: float, lr: float, momentum: float, gap: float, iterations: int
) -> Bound:
    """Theorem 2.2: mean of S_0..S_K <= D0 / (γ (K+1) (1-2β)), for 0 < γ <= 1/L and 0 <= β < 1/2.

    Raises:
        AssumptionError: if an assumption fails.
    """
    name = "Theorem 2.2"
    L, gamma, D0, k = _common(name, reference, smoothness, lr, gap, iterations)
    _step(name, gamma, L)
    beta = _momentum(name, momentum, zero=True)
    remark = "stated for the least S_k, and proved for the mean; α > 0 is omitted there"
    return _stationarity(name, reference, D0 / (gamma * (k + 1) * (1.0 - 2.0 * beta)), "proved", remark)


def theorem_2_4(
    reference: Reference,
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

    Raises:
        AssumptionError: if an assumption fails.
    """
    name = "Theorem 2.4, refined" if refined else "Theorem 2.4"
    L, gamma, D0, k = _common(name, reference, smoothness, lr, gap, iterations)
    _step(name, gamma, L)
    _two_subhomogeneous(name, reference)
    mu = _pl(name, pl, L)
    beta = _momentum(name, momentum, zero=refined)
    rate = (
        _refined_rate(gamma * mu, beta) if refined else max(1 - gamma * mu * (beta - 2 * beta**2), beta + 2 * beta**2)
    )
    remark = "" if refined else "γ > 0 is omitted there; A tends to 1 as β → 0, an artefact of the proof"
    return _gap(name, D0 * rate**k, D0, "derived" if refined else "proved", remark)


def _refined_rate(gamma_mu: float, beta: float) -> float:
    if beta == 0.0:
        return 1.0 - gamma_mu
    low, high = 2 * beta**2 / (1 - beta), (1 - 2 * beta**2) / (1 - beta)

    def rate(c: float) -> float:
        return max(1.0 - gamma_mu * (1 - 2 * beta**2 - c * (1 - beta)), beta + 2 * beta**2 / c)

    return float(scipy.optimize.minimize_scalar(rate, bounds=(low, high), method="bounded").fun)


def proposition_2_6(l0: float, l1: float) -> tuple[Reference, float]:
    """Proposition 2.6: for an (L0, L1)-smooth f, the φ and L for which Theorem 2.7 holds.

    The map ∇f/(L0 + L1 ‖∇f‖) is 1-Lipschitz: relative to φ = (L0/L1)(-‖x‖ - ln(1-‖x‖)), ∇φ*(∇f) is L1-Lipschitz. The
    descent inequality (1.2) holds with L = L1 as well, as the limit of its strict second-order condition; the paper's
    remark prints L < L1 there, and must read L > L1.
    """
    scale = _validate.positive("l0", l0) / _validate.positive("l1", l1)
    return Isotropic(Log(), scale=scale), float(l1)


def theorem_2_7(
    reference: Reference,
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
        smoothness: the constant of the descent inequality (1.2).
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
    L, gamma, D0, k = _common(name, reference, smoothness, lr, gap, iterations)
    L = max(L, _validate.positive("lipschitz", lipschitz))
    _need(name, isinstance(reference, Isotropic), "φ isotropic", f"φ is {reference.name}")
    beta = _validate.fraction("momentum", momentum)
    _need(name, beta > 0.0, "β > 0", "β = 0")
    largest = (1 - beta) ** 2 / L
    _need(name, gamma <= largest * _ONE, f"γ <= (1-β)²/L = {largest:g}", f"γ = {gamma:g}")
    coefficient = (beta if tight else 1.0) / (1.0 - beta)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = (D0 / (beta * gamma) + coefficient * _validate.nonnegative("first", first)) / k
    values[0] = np.nan
    remark = (
        ""
        if tight
        else "stated for the least S_k, and proved for the mean; two sums of its proof print β^(K+1) for β^(k+1)"
    )
    kind: Provenance = "derived" if tight else "proved"
    return _stationarity(name, reference, values, kind, remark, "mean stationarity from 1")


def theorem_3_1(
    reference: Reference, *, smoothness: float, lr: float, gap: float, noise: float, iterations: int
) -> Bound:
    """Theorem 3.1: E mean of S_0..S_{K-1} <= D0/(γK) + σ², if E φ(∇φ*(∇f) - ∇φ*(g)) <= σ² at every point.

    Stochastic steps x - γ ∇φ*(g(x)), 0 < γ <= 1/L, φ of full domain. The value at k is for K = k + 1.

    Raises:
        AssumptionError: if an assumption fails.
    """
    name = "Theorem 3.1"
    L, gamma, D0, k = _common(name, reference, smoothness, lr, gap, iterations)
    _full_domain(name, reference)
    _step(name, gamma, L)
    values = D0 / (gamma * (k + 1)) + _validate.nonnegative("noise", noise)
    return _stationarity(
        name, reference, values, "proved", "γ > 0 is omitted there; a sum of its proof has a wrong index"
    )


def proposition_3_2(reference: Reference, variance: float) -> float:
    """Proposition 3.2: E φ(∇φ*(∇f) - ∇φ*(g)) <= σ²/(2λ), if E‖g - ∇f‖² <= σ² and φ = λψ.

    It is the inequality ψ(∇ψ*(y) - ∇ψ*(z)) <= ½‖y-z‖², which the paper proves for cosh; for the others of
    ``noise_inequality`` it is derived (separable exp, mix3, mix4) or numerical (isotropic ones). The paper has λ = 1,
    and a sign in case 2 of its proof is wrong.

    Raises:
        AssumptionError: if the inequality does not hold for φ.
    """
    name = "Proposition 3.2"
    _full_domain(name, reference)
    _need(
        name,
        reference.kernel.noise_inequality,
        "h(h*'(y) - h*'(z)) <= (y-z)²/2",
        f"{reference.kernel!r} does not satisfy it",
    )
    return _validate.nonnegative("variance", variance) / (2.0 * reference.scale)


def proposition_3_2_provenance(reference: Reference) -> Provenance:
    """Return where the inequality behind Proposition 3.2 is established for φ."""
    if reference.kernel.key in ("cosh", "quad"):
        return "proved"
    return "derived" if isinstance(reference, Separable) else "numerical"


def theorem_3_4(
    reference: Reference, *, smoothness: float, lr: float, gap: float, variance: float, iterations: int
) -> Bound:
    """Theorem 3.4: E mean of S_0..S_{K-1} <= (D0/γ + σ²/(2λ)) / K, if E‖g - ∇f‖² <= σ²/K: a batch that grows with K.

    The value at k is for a run of K = k + 1 iterations with the batch of that run. The paper has λ = 1.

    Raises:
        AssumptionError: if an assumption fails.
    """
    name = "Theorem 3.4"
    L, gamma, D0, k = _common(name, reference, smoothness, lr, gap, iterations)
    _step(name, gamma, L)
    dual = proposition_3_2(reference, variance)
    remark = "γ > 0 is omitted there; for λφ, σ²/2 is replaced by σ²/(2λ)"
    return _stationarity(name, reference, (D0 / gamma + dual) / (k + 1), proposition_3_2_provenance(reference), remark)


def theorem_3_5(
    reference: Reference, *, smoothness: float, pl: float, lr: float, gap: float, noise: float, iterations: int
) -> Bound:
    """Theorem 3.5: E f(x^k) - inf f <= (1 - γμ)^k D0 + σ²/μ, as Theorem 3.1 with f μ-PL.

    Raises:
        AssumptionError: if an assumption fails.
    """
    name = "Theorem 3.5"
    L, gamma, D0, k = _common(name, reference, smoothness, lr, gap, iterations)
    _full_domain(name, reference)
    _step(name, gamma, L)
    mu = _pl(name, pl, L)
    values = (1.0 - min(gamma * mu, 1.0)) ** k * D0 + _validate.nonnegative("noise", noise) / mu
    return _gap(name, values, D0, "proved", "γ > 0 is omitted there; γμ <= 1 follows from μ <= L")


def convex_conjugate(
    reference: Reference, *, smoothness: float, lr: float, gap: float, iterations: int, convex: bool
) -> Bound:
    """Base method on a convex f, derived (cf. Maddison et al. 2021): φ*(∇f(x^k)) <= D0/(γk), for 0 < γ <= 1/L.

    Raises:
        AssumptionError: if an assumption fails.
    """
    name = "The convex bound on φ*(∇f)"
    L, gamma, D0, k = _common(name, reference, smoothness, lr, gap, iterations)
    _need(name, convex, "f convex", "it is not stated to be")
    _step(name, gamma, L)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = D0 / (gamma * k)
    values[0] = np.nan
    return Bound(name, "conjugate", values, "derived", np.isnan(values))


def convex_isotropic(
    reference: Reference,
    *,
    smoothness: float,
    lr: float,
    gap: float,
    distance: float,
    gradient_norms: Any,
    convex: bool,
) -> Bound:
    """Base method on a convex f, derived: f(x^k) - inf f <= R²/(2γ Σ_{j<=k} w_j) with w_j = ‖u^j‖/‖∇f(x^j)‖.

    For 0 < γ <= 1/L and φ isotropic with h*'(r)/r nonincreasing; R is the distance of x^0 from a minimiser. Relative to
    the log kernel with L0/L1, this is the rate of (L0, L1)-smooth convex functions.

    Args:
        reference: φ.
        smoothness: L.
        lr: γ.
        gap: D0, for the vacuous flag.
        distance: R.
        gradient_norms: ‖∇f(x^k)‖ of the run, ``history["grad_norm"]``.
        convex: whether f is convex.

    Raises:
        AssumptionError: if an assumption fails.
    """
    name = "The convex bound on f"
    norms = np.asarray(gradient_norms, dtype=np.float64)
    L, gamma, D0, _ = _common(name, reference, smoothness, lr, gap, norms.size - 1)
    _need(name, convex, "f convex", "it is not stated to be")
    _need(name, isinstance(reference, Isotropic), "φ isotropic", f"φ is {reference.name}")
    _need(name, reference.kernel.nonincreasing_rescaling, "h*'(r)/r nonincreasing", f"{reference.kernel!r} is not so")
    _step(name, gamma, L)
    weights = reference.kernel.rescaling(norms / reference.scale) / reference.scale
    values = _validate.nonnegative("distance", distance) ** 2 / (2.0 * gamma * np.cumsum(weights))
    return _gap(name, values, D0, "derived")


def gradient_norm(reference: Reference, stationarity: float) -> float:
    """Return the largest ‖∇f‖ at which an isotropic φ(∇φ*(∇f)) is at most ``stationarity``; infinite if all are.

    For cosh it is √(B² + 2λB); Example E.2 of the paper bounds the same quantity on a ball.
    """
    if not isinstance(reference, Isotropic):
        raise TypeError(f"reference must be isotropic, not {reference!r}")
    B = _validate.nonnegative("stationarity", stationarity)
    if reference.kernel == Cosh():
        return math.sqrt(B) * math.sqrt(B + 2.0 * reference.scale)
    if not reference.stationarity_limit > B:
        return math.inf

    def excess(t: float) -> float:
        return reference.scale * float(reference.kernel.stationarity(np.exp(t))) - B

    low, high = -300.0, 300.0
    if B == 0.0 or excess(low) > 0.0:
        return 0.0
    if excess(high) <= 0.0:
        return math.inf
    return reference.scale * math.exp(scipy.optimize.brentq(excess, low, high, xtol=1e-14, rtol=1e-14))


def proposition_e_1(reference: Reference) -> tuple[float, float]:
    """Proposition E.1: the c and C with c ‖∇f‖² <= φ(∇φ*(∇f)) <= C ‖∇f‖²: C = 1/(2μ_φ) and c = 1/(2L_φ).

    With c > 0 a function with ½‖∇f‖² >= μ(f - inf f) satisfies Definition 2.3 with 2cμ. ∇φ has a Lipschitz constant
    L_φ for the quadratic kernel only; else c = 0.

    Raises:
        AssumptionError: if φ is not strongly convex.
    """
    _need(
        "Proposition E.1",
        reference.kernel.strongly_convex_c2,
        "φ strongly convex and C² (Assumption 1.2)",
        f"{reference.kernel!r} is not",
    )
    upper = 1.0 / (2.0 * reference.mu)
    return (upper if reference.kernel in (Quadratic(), Power(2.0)) else 0.0), upper


def example_e_2(radius: float, scale: float = 1.0) -> float:
    """Example E.2: the c with λ(cosh‖·‖-1)(∇φ*(∇f)) >= c ‖∇f‖² wherever ‖∇f‖ <= ``radius``.

    c = λ (√(1 + b²) - 1)/b² / λ² with b = radius/λ, so that a function with ½‖∇f‖² >= μ(f - inf f) there satisfies
    Definition 2.3 there with 2cμ. The paper has λ = 1.
    """
    scale = _validate.positive("scale", scale)
    b = _validate.positive("radius", radius) / scale
    return 1.0 / (scale * (1.0 + math.hypot(1.0, b)))


_ONE = 1.0 + 1e-12
"""1/L is not exact in floating point."""


def _common(
    theorem: str, reference: Reference, smoothness: float, lr: float, gap: float, iterations: int
) -> tuple[float, float, float, Floats]:
    if not isinstance(reference, Reference):
        raise TypeError(f"reference must be a reference function, not {reference!r}")
    _need(
        theorem,
        reference.kernel.strongly_convex_c2,
        "φ strongly convex and C² (Assumption 1.2)",
        f"{reference.kernel!r} is not",
    )
    L, gamma, D0 = (
        _validate.positive("smoothness", smoothness),
        _validate.positive("lr", lr),
        _validate.nonnegative("gap", gap),
    )
    return L, gamma, D0, np.arange(_validate.count("iterations", iterations) + 1, dtype=np.float64)


def _need(theorem: str, holds: bool, assumption: str, found: str) -> None:
    if not holds:
        raise AssumptionError(theorem, assumption, found)


def _step(theorem: str, gamma: float, L: float) -> None:
    _need(theorem, gamma * L <= _ONE, f"γ <= 1/L = {1 / L:g}", f"γ = {gamma:g}")


def _momentum(theorem: str, momentum: float, *, zero: bool) -> float:
    beta = _validate.fraction("momentum", momentum)
    _need(theorem, beta < 0.5, "β < 1/2", f"β = {beta:g}")
    _need(theorem, zero or beta > 0.0, "β > 0", "β = 0")
    return beta


def _pl(theorem: str, pl: float, L: float) -> float:
    mu = _validate.positive("pl", pl)
    _need(theorem, mu <= L * _ONE, "μ <= L, which every PL function satisfies", f"μ = {mu:g} and L = {L:g}")
    return mu


def _two_subhomogeneous(theorem: str, reference: Reference) -> None:
    _need(
        theorem,
        reference.kernel.two_subhomogeneous,
        "φ 2-subhomogeneous",
        f"{reference.kernel!r} is not known to be",
    )


def _full_domain(theorem: str, reference: Reference) -> None:
    _need(theorem, reference.kernel.full_domain, "dom φ = ℝⁿ", f"{reference.kernel!r} has a bounded domain")


def _stationarity(
    theorem: str,
    reference: Reference,
    values: Floats,
    provenance: Provenance,
    remark: str = "",
    quantity: Quantity = "mean stationarity",
) -> Bound:
    # for a separable φ it is n times as large, with n not known here
    limit = reference.stationarity_limit if isinstance(reference, Isotropic) else math.inf
    return Bound(theorem, quantity, values, provenance, ~(values < limit), remark)


def _gap(theorem: str, values: Floats, D0: float, provenance: Provenance, remark: str = "") -> Bound:
    return Bound(theorem, "gap", values, provenance, values >= D0, remark)

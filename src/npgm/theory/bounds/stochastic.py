"""The stochastic method: Theorems 3.1, 3.4 and 3.5, and Proposition 3.2."""

from __future__ import annotations

from npgm._common import validate
from npgm.kernels import Cosh, Cubic, Exp, Quadratic, Quartic
from npgm.references import Blocks, Reference, Separable, Spectral, as_reference, lifts
from npgm.theory.bounds import assume
from npgm.theory.bounds.bound import Bound, Provenance, on_gap, on_stationarity

_ELEMENTARY = (Exp, Cubic, Quartic)
"""The kernels whose inequality is derived here, on the line, for vectors and for singular values."""


def theorem_3_1(
    reference: Reference | str, *, smoothness: float, lr: float, gap: float, noise: float, iterations: int
) -> Bound:
    """Theorem 3.1: E mean of S_0..S_{K-1} <= D0/(γK) + σ², if E φ(∇φ*(∇f) - ∇φ*(g)) <= σ² at every point.

    Stochastic steps x - γ ∇φ*(g(x)), 0 < γ <= 1/L, φ of full domain. The value at k is for K = k + 1.

    Raises:
        AssumptionError: if an assumption fails.
    """
    name = "Theorem 3.1"
    phi = assume.assumption_1_2(name, reference)
    L, gamma, D0, k = assume.numbers(smoothness, lr, gap, iterations)
    assume.full_domain(name, phi)
    assume.at_most_1_over_l(name, gamma, L)
    values = D0 / (gamma * (k + 1)) + validate.nonnegative("noise", noise)
    return on_stationarity(name, phi, values, "proved", "γ > 0 is omitted there; a sum of its proof has a wrong index")


def proposition_3_2(reference: Reference | str, variance: float) -> float:
    """Proposition 3.2: E φ(∇φ*(∇f) - ∇φ*(g)) <= σ²/(2λ), if E‖g - ∇f‖² <= σ² and φ = λψ.

    It is the inequality ψ(∇ψ*(y) - ∇ψ*(z)) <= ½‖y-z‖², which the paper proves for cosh, with λ = 1 and a wrong sign in
    case 2 of its proof; it is derived for exp, mix3 and mix4, and for all four on singular values. For a kernel
    of one's own that states it on the line it is numerical: for vectors the kernel must state
    nonincreasing_rescaling as well, and for singular values it is refused.

    Raises:
        AssumptionError: if the inequality does not hold for φ.
    """
    name = "Proposition 3.2"
    phi = as_reference(reference)
    if isinstance(phi, Blocks):  # the inequality adds up
        return proposition_3_2(phi.reference, variance)
    assume.full_domain(name, phi)
    holds = phi.kernel.noise_inequality and isinstance(phi, tuple(lifts.values()))
    assume.need(name, holds, "h(h*'(y) - h*'(z)) <= (y-z)²/2", f"{phi!r} does not satisfy it")
    rises = phi.kernel.nonincreasing_rescaling or isinstance(phi, Separable)
    assume.need(name, rises, "h'(t)/t nondecreasing, for vectors", f"{phi.kernel!r} does not state it")
    derived = not isinstance(phi, Spectral) or type(phi.kernel) in (Cosh, *_ELEMENTARY, Quadratic)
    assume.need(
        name, derived, "the condition (C') of docs/spectral.md, for singular values", f"{phi.kernel!r} is not known to"
    )
    return validate.nonnegative("variance", variance) / (2.0 * phi.scale)


def proposition_3_2_provenance(reference: Reference | str) -> Provenance:
    """Return where the inequality behind Proposition 3.2 is established for φ."""
    phi = as_reference(reference)
    if isinstance(phi, Blocks):
        return proposition_3_2_provenance(phi.reference)
    kernel = type(phi.kernel)
    if isinstance(phi, Spectral) and kernel in (Cosh, *_ELEMENTARY):
        return "derived"
    if kernel in (Cosh, Quadratic):
        return "proved"
    return "derived" if kernel in _ELEMENTARY else "numerical"


def theorem_3_4(
    reference: Reference | str, *, smoothness: float, lr: float, gap: float, variance: float, iterations: int
) -> Bound:
    """Theorem 3.4: E mean of S_0..S_{K-1} <= (D0/γ + σ²/(2λ)) / K, if E‖g - ∇f‖² <= σ²/K: a batch that grows with K.

    The value at k is for a run of K = k + 1 iterations with the batch of that run. The paper has λ = 1.

    Raises:
        AssumptionError: if an assumption fails.
    """
    name = "Theorem 3.4"
    phi = assume.assumption_1_2(name, reference)
    L, gamma, D0, k = assume.numbers(smoothness, lr, gap, iterations)
    assume.at_most_1_over_l(name, gamma, L)
    dual = proposition_3_2(reference, variance)
    remark = "γ > 0 is omitted there; for λφ, σ²/2 is replaced by σ²/(2λ)"
    provenance, values = proposition_3_2_provenance(reference), (D0 / gamma + dual) / (k + 1)
    return on_stationarity(name, phi, values, provenance, remark, "mean stationarity of a run")


def theorem_3_5(
    reference: Reference | str, *, smoothness: float, pl: float, lr: float, gap: float, noise: float, iterations: int
) -> Bound:
    """Theorem 3.5: E f(x^k) - inf f <= (1 - γμ)^k D0 + σ²/μ, as Theorem 3.1 with f μ-PL.

    Raises:
        AssumptionError: if an assumption fails.
    """
    name = "Theorem 3.5"
    phi = assume.assumption_1_2(name, reference)
    L, gamma, D0, k = assume.numbers(smoothness, lr, gap, iterations)
    assume.full_domain(name, phi)
    assume.at_most_1_over_l(name, gamma, L)
    mu = assume.pl_at_most_l(name, pl, L)
    values = (1.0 - min(gamma * mu, 1.0)) ** k * D0 + validate.nonnegative("noise", noise) / mu
    return on_gap(name, phi, values, D0, "proved", "γ > 0 is omitted there; γμ <= 1 follows from μ <= L")

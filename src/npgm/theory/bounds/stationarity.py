"""The paper's stationarity measure against the norm of the gradient."""

from __future__ import annotations

import math

import numpy as np
import scipy.optimize

from npgm._common import validate
from npgm.kernels import Cosh, Power, Quadratic
from npgm.references import Isotropic, Reference, as_reference
from npgm.theory.bounds import assume


def gradient_norm(reference: Reference | str, stationarity: float) -> float:
    """Return the largest ‖∇f‖ at which an isotropic φ(∇φ*(∇f)) is at most ``stationarity``; infinite if all are.

    For cosh it is √(B² + 2λB); Example E.2 of the paper bounds the same quantity on a ball.
    """
    reference = as_reference(reference)
    if not isinstance(reference, Isotropic):
        raise TypeError(f"reference must be isotropic, not {reference!r}")
    B = validate.nonnegative("stationarity", stationarity)
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


def proposition_e_1(reference: Reference | str) -> tuple[float, float]:
    """Proposition E.1: the c and C with c ‖∇f‖² <= φ(∇φ*(∇f)) <= C ‖∇f‖²: C = 1/(2μ_φ) and c = 1/(2L_φ).

    With c > 0 a function with ½‖∇f‖² >= μ(f - inf f) satisfies Definition 2.3 with 2cμ. ∇φ has a Lipschitz constant
    L_φ for the quadratic kernel only; else c = 0.

    Raises:
        AssumptionError: if φ is not strongly convex.
    """
    phi = assume.assumption_1_2("Proposition E.1", reference)
    upper = 1.0 / (2.0 * phi.mu)
    return (upper if phi.kernel in (Quadratic(), Power(2.0)) else 0.0), upper


def example_e_2(radius: float, scale: float = 1.0) -> float:
    """Example E.2: the c with λ(cosh‖·‖-1)(∇φ*(∇f)) >= c ‖∇f‖² wherever ‖∇f‖ <= ``radius``.

    c = λ (√(1 + b²) - 1)/b² / λ² with b = radius/λ, so that a function with ½‖∇f‖² >= μ(f - inf f) there satisfies
    Definition 2.3 there with 2cμ. The paper has λ = 1.
    """
    scale = validate.positive("scale", scale)
    b = validate.positive("radius", radius) / scale
    return 1.0 / (scale * (1.0 + math.hypot(1.0, b)))

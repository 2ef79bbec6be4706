"""The base method on convex functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from npgm._common import validate
from npgm.references import Isotropic, Reference
from npgm.theory.bounds import assume
from npgm.theory.bounds.bound import Bound, established, on_gap


def convex_conjugate(
    reference: Reference | str, *, smoothness: float, lr: float, gap: float, iterations: int, convex: bool
) -> Bound:
    """Base method on a convex f, derived (cf. Maddison et al. 2021): φ*(∇f(x^k)) <= D0/(γk), for 0 < γ <= 1/L.

    Raises:
        AssumptionError: if an assumption fails.
    """
    name = "The convex bound on φ*(∇f)"
    phi = assume.assumption_1_2(name, reference)
    L, gamma, D0, k = assume.numbers(smoothness, lr, gap, iterations)
    assume.need(name, convex, "f convex", "it is not stated to be")
    assume.at_most_1_over_l(name, gamma, L)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = D0 / (gamma * k)
    values[0] = np.nan
    return Bound(name, "conjugate", values, established(phi, "derived"), np.isnan(values))


def convex_isotropic(
    reference: Reference | str,
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
        ValueError: if ``gradient_norms`` is not a sequence of nonnegative finite numbers.
    """
    name = "The convex bound on f"
    norms = assume.sequence("gradient_norms", gradient_norms, zero=True)
    phi = assume.assumption_1_2(name, reference)
    L, gamma, D0, _ = assume.numbers(smoothness, lr, gap, norms.size - 1)
    assume.need(name, convex, "f convex", "it is not stated to be")
    assume.need(name, isinstance(phi, Isotropic), "φ isotropic", f"φ is {phi.name}")
    assume.need(name, phi.kernel.nonincreasing_rescaling, "h*'(r)/r nonincreasing", f"{phi.kernel!r} is not so")
    assume.at_most_1_over_l(name, gamma, L)
    weights = phi.kernel.rescaling(norms / phi.scale) / phi.scale
    R = validate.nonnegative("distance", distance)
    values = R / (2.0 * gamma * np.cumsum(weights)) * R
    return on_gap(name, phi, values, D0, "derived")

"""The assumptions that several theorems share, and their numbers: each is checked where a theorem is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from npgm._common import validate
from npgm._common.array import Floats
from npgm.references import Reference, as_reference
from npgm.theory.bounds.bound import Provenance


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


ONE = 1.0 + 1e-12
"""1/L is not exact in floating point."""


def need(theorem: str, holds: bool, assumption: str, found: str) -> None:
    """Raise an `AssumptionError` unless ``holds``."""
    if not holds:
        raise AssumptionError(theorem, assumption, found)


def assumption_1_2(theorem: str, reference: Reference | str) -> Reference:
    """Return φ, which the theorem asks to be strongly convex, C², and steep at the boundary of its domain."""
    phi = as_reference(reference)
    holds = phi.kernel.strongly_convex_c2
    need(theorem, holds, "φ strongly convex and C² (Assumption 1.2)", f"{phi.kernel!r} is not")
    return phi


def strongly_convex(theorem: str, reference: Reference | str) -> tuple[Reference, Provenance]:
    """Return φ, and where the theorem is proved for it, if its proof uses no other part of Assumption 1.2.

    It is a derived theorem for a φ that is not C² or not steep at the boundary, such as that of hard clipping.
    """
    phi = as_reference(reference)
    need(theorem, phi.mu > 0.0, "φ strongly convex (Assumption 1.2)", f"{phi.kernel!r} is not")
    return phi, "proved" if phi.kernel.strongly_convex_c2 else "derived"


def numbers(smoothness: float, lr: float, gap: float, iterations: int) -> tuple[float, float, float, Floats]:
    """Return L, γ, D0 and k = 0, ..., K."""
    L, gamma = validate.positive("smoothness", smoothness), validate.positive("lr", lr)
    k = np.arange(validate.count("iterations", iterations) + 1, dtype=np.float64)
    return L, gamma, validate.nonnegative("gap", gap), k


def sequence(name: str, values: Any, *, zero: bool = False) -> Floats:
    """Return an array of positive finite numbers, one a step, which may be 0 if ``zero``."""
    array: Floats = np.asarray(values, dtype=np.float64)
    accepted = (array >= 0.0 if zero else array > 0.0) & (array < np.inf)
    if array.ndim != 1 or not array.size or not accepted.all():
        sign = "nonnegative" if zero else "positive"
        raise ValueError(f"{name} must be a sequence of {sign} finite numbers, one a step, not {values!r}")
    return array


def not_increasing(theorem: str, stepsizes: Any) -> Floats:
    """Return the stepsizes, which must not increase."""
    gammas = sequence("stepsizes", stepsizes)
    rises = np.flatnonzero(np.diff(gammas) > gammas[:-1] * (ONE - 1.0))
    found = f"γ rises at step {rises[0] + 1}" if rises.size else ""
    need(theorem, not rises.size, "stepsizes that do not increase, with momentum", found)
    return gammas


def at_most_1_over_l(theorem: str, gamma: float, L: float) -> None:
    """Check that γ <= 1/L."""
    need(theorem, gamma * L <= ONE, f"γ <= 1/L = {1 / L:g}", f"γ = {gamma:g}")


def below_half(theorem: str, momentum: float, *, zero: bool) -> float:
    """Return β, which must be less than 1/2, and may be 0 if ``zero``."""
    beta = validate.fraction("momentum", momentum)
    need(theorem, beta < 0.5, "β < 1/2", f"β = {beta:g}")
    need(theorem, zero or beta > 0.0, "β > 0", "β = 0")
    return beta


def pl_at_most_l(theorem: str, pl: float, L: float) -> float:
    """Return μ, which is at most L for every PL function."""
    mu = validate.positive("pl", pl)
    need(theorem, mu <= L * ONE, "μ <= L, which every PL function satisfies", f"μ = {mu:g} and L = {L:g}")
    return mu


def two_subhomogeneous(theorem: str, reference: Reference) -> None:
    """Check that φ is 2-subhomogeneous."""
    known = reference.kernel.two_subhomogeneous
    need(theorem, known, "φ 2-subhomogeneous", f"{reference.kernel!r} is not known to be")


def full_domain(theorem: str, reference: Reference) -> None:
    """Check that φ is finite everywhere."""
    need(theorem, reference.kernel.full_domain, "dom φ = ℝⁿ", f"{reference.kernel!r} has a bounded domain")

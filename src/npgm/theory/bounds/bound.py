"""What a bound is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from npgm._common.array import Bools, Floats
from npgm.kernels.custom import check_stated
from npgm.references import Isotropic, Reference

Provenance = Literal["proved", "derived", "numerical"]
Quantity = Literal[
    "mean stationarity",
    "mean stationarity from 1",
    "mean stationarity of a run",
    "weighted mean stationarity",
    "least weighted stationarity",
    "gap",
    "conjugate",
    "mean conjugate",
]


@dataclass(frozen=True)
class Bound:
    """An upper bound at each k = 0, 1, ..., K on a quantity of a run.

    Args:
        theorem: where it stands.
        quantity: what is bounded: ``"mean stationarity"``, (S_0 + ... + S_k)/(k+1) and so also the least of them;
            ``"mean stationarity from 1"``, (S_1 + ... + S_k)/k; ``"mean stationarity of a run"``, that of the run of
            K = k + 1 iterations, S_0, ..., S_k; ``"weighted mean stationarity"``, the mean of
            S_0, ..., S_k with the stepsizes as weights; ``"least weighted stationarity"``, the least γ_j S_j of
            j <= k; ``"gap"``, f(x^k) - inf f; ``"conjugate"``, φ*(∇f(x^k)), and ``"mean
            conjugate"`` its mean over 0, ..., k. For a stochastic method, its expectation.
        values: the bound at each k, NaN where the theorem says nothing.
        provenance: ``"proved"`` in the paper, ``"derived"`` in the documentation of this package, or ``"numerical"``:
            it rests on what was seen to hold on a grid, without a proof, as for a kernel of one's own.
        vacuous: where the bound says nothing new: it is at least the supremum of the measure, or D0.
        remark: what differs from the printed statement.
        weight: the c of a bound on the gap that also holds for c γ φ(m^{k-1}) + f(x^k) - inf f (Theorem 2.4).
    """

    theorem: str
    quantity: Quantity
    values: Floats = field(repr=False)
    provenance: Provenance
    vacuous: Bools = field(repr=False)
    remark: str = ""
    weight: float = 0.0


def on_stationarity(
    theorem: str,
    reference: Reference,
    values: Floats,
    provenance: Provenance,
    remark: str = "",
    quantity: Quantity = "mean stationarity",
) -> Bound:
    """Return the bound on a mean of S, vacuous from the supremum of S on."""
    provenance = established(reference, provenance)
    # for a separable φ it is n times as large, with n not known here
    limit = reference.stationarity_limit if isinstance(reference, Isotropic) else math.inf
    return Bound(theorem, quantity, values, provenance, ~(values < limit), remark)


def on_gap(
    theorem: str,
    reference: Reference,
    values: Floats,
    D0: float,
    provenance: Provenance,
    remark: str = "",
    weight: float = 0.0,
) -> Bound:
    """Return the bound on f - inf f, vacuous from D0 on."""
    return Bound(theorem, "gap", values, established(reference, provenance), values >= D0, remark, weight)


def established(reference: Reference, provenance: Provenance) -> Provenance:
    """Return ``provenance``, but "numerical" for a kernel of one's own, for what it states is checked on a grid alone.

    Raises:
        ValueError: if something that it states does not hold.
    """
    if type(reference.kernel).__module__.startswith("npgm.kernels."):
        return provenance
    check_stated(reference.kernel)
    return "numerical"

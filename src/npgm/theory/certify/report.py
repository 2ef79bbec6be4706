"""A bound with what it bounds, and all of them for a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from npgm._common.array import Floats
from npgm.theory.bounds import AssumptionError, Bound
from npgm.theory.certify.assume import UndecidedError

_RTOL = 1e-9

Verdict = Literal["holds", "violated", "undecided", "refused"]


Trials = dict[str, Callable[[], Bound]]
"""By theorem, what checks its assumptions and returns its bound."""


@dataclass(frozen=True)
class Certificate:
    """A bound and what it bounds.

    Args:
        bound: the bound at each k.
        observed: the quantity at each k; for a stochastic run, its mean over the seeds. NaN is above every bound.
        margin: by how much rounding may carry it above the bound.
        chance: by how much chance may, where it is a mean over seeds: such an excess decides nothing.
    """

    bound: Bound
    observed: Floats = field(repr=False)
    margin: Floats = field(repr=False)
    chance: Floats | float = field(default=0.0, repr=False)

    @property
    def slack(self) -> Floats:
        """The bound minus the observed quantity at each k."""
        return self.bound.values - self.observed

    @property
    def ratios(self) -> Floats:
        """The observed quantity over the bound with its margin, at each k; NaN where there is no finite bound."""
        return self._over(self.margin)

    @property
    def telling(self) -> Floats:
        """The ratios, NaN also where the bound is vacuous, unless it is so everywhere."""
        known = np.where(self.bound.vacuous, np.nan, self.ratios)
        return self.ratios if np.isnan(known).all() else known

    @property
    def ratio(self) -> float:
        """The largest of the ratios; at most 1 if the bound held, NaN if nothing was compared."""
        return float(np.max(self.ratios, initial=0.0, where=~np.isnan(self.ratios))) if self.compared else np.nan

    @property
    def compared(self) -> bool:
        """Whether the bound is finite at some k."""
        return bool(np.isfinite(self.bound.values).any())

    @property
    def verdict(self) -> Verdict:
        """``"holds"`` if the quantity is at most the bound at each k, up to rounding, and the bound not vacuous at all.

        ``"violated"`` if chance does not explain by how much the quantity is above; else ``"undecided"``.
        """
        if bool(np.any(self._over(self.margin + self.chance) > 1.0 + _RTOL)):
            return "violated"
        said = np.isfinite(self.bound.values) & ~self.bound.vacuous
        return "holds" if self.ratio <= 1.0 + _RTOL and said.any() else "undecided"

    @property
    def holds(self) -> bool:
        """Whether there is a k with a finite bound, and it held at each of them, up to the margin."""
        return self.ratio <= 1.0 + _RTOL

    def _over(self, margin: Floats) -> Floats:
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = np.where(self.observed <= 0.0, 0.0, self.observed / (self.bound.values + margin))
        known = np.where(np.isnan(self.observed + margin) | np.isnan(ratios), np.inf, ratios)
        return np.where(np.isfinite(self.bound.values), known, np.nan)


@dataclass(frozen=True)
class Report:
    """The certificates of a run, and the theorems that do not apply to it.

    Args:
        certificates: one for each theorem that applies.
        refused: for each theorem that does not apply, which assumption fails.
        undecided: for each theorem that could not be compared, as with a run of no step, why.
    """

    certificates: list[Certificate]
    refused: dict[str, str]
    undecided: dict[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """``"violated"`` if a bound is, ``"holds"`` if all hold, ``"refused"`` if no theorem applies.

        ``"undecided"`` if one is, and could not be compared with the run, or is exceeded by what chance explains.
        """
        verdicts = {certificate.verdict for certificate in self.certificates}
        if "violated" in verdicts:
            return "violated"
        if not all(certificate.holds for certificate in self.certificates):
            return "undecided"
        if "holds" in verdicts:
            return "holds"
        return "undecided" if self.certificates or self.undecided or not self.refused else "refused"

    @property
    def reason(self) -> str:
        """One sentence that says why the verdict is what it is."""
        verdict = self.verdict
        if deciding := [c for c in self.certificates if c.compared and c.verdict == verdict]:
            worst = max(deciding, key=lambda c: np.nanmax(c.telling))
            k = int(np.nanargmax(worst.telling))
            place = f"{worst.bound.theorem} at k = {k}: {worst.observed[k]:.4g} against {worst.bound.values[k]:.4g}"
            if verdict == "undecided":
                vacuous = (
                    "its bound is vacuous" if worst.holds else "chance explains the difference, and more seeds decide"
                )
                return f"{place}; {vacuous}"
            return f"closest is {place}" if verdict == "holds" else f"the worst is {place}"
        return next(iter((self.undecided if verdict == "undecided" else self.refused).values()), "nothing was compared")

    @property
    def holds(self) -> bool:
        """Whether a bound applies, and every one held."""
        return self.verdict == "holds"


def report(trials: Trials, observe: Callable[[Bound], tuple[Floats, ...]], require: Callable[[str], None]) -> Report:
    """Return what the theorems say.

    Args:
        trials: the theorems.
        observe: returns the quantity that a bound is on, with its margin; for a mean over seeds also its chance.
        require: raises an `AssumptionError` where a theorem is not about the run at all.
    """
    certificates, refused, undecided = [], {}, {}
    for name, trial in trials.items():
        try:
            require(name)
            bound = trial()
            certificate = Certificate(bound, *observe(bound))
        except AssumptionError as error:
            refused[name] = str(error)
        except UndecidedError as error:
            undecided[name] = str(error)
        else:
            if certificate.compared:
                certificates.append(certificate)
            else:
                undecided[name] = f"{name} says nothing of a run of so few steps"
    return Report(certificates, refused, undecided)

"""What theorems assume of a run, beside its constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from npgm._common.array import Floats
from npgm.references import Isotropic
from npgm.solvers import History
from npgm.solvers.methods.npgm import NPGM
from npgm.theory.bounds import AssumptionError


class UndecidedError(Exception):
    """A theorem is about the run, which is too short, or has too few seeds, to say anything of it."""


def check(history: object) -> None:
    """Check that a history is one, that its arrays are those of one run, or batch, and fit its method.

    It may have been put together by hand.
    """
    if not isinstance(history, History):
        raise TypeError(
            "history must be that of npgm.minimize(..., history=True), or an npgm.solvers.History, which knows the "
            f"method of the run, not {type(history).__name__}"
        )
    arrays = {name: np.asarray(history[name], dtype=np.float64) for name in (*_MEASURES, *_STEPS) if name in history}
    shapes = {name: values.shape for name, values in arrays.items()}
    if len(set(shapes.values())) > 1 or 0 in next(iter(shapes.values()), ()):
        raise ValueError(f"the arrays of a history must have one shape, of at least one iterate, not {shapes}")
    for name in arrays.keys() & set(_MEASURES[1:]):
        if (arrays[name] < 0.0).any():
            raise ValueError(f"{name!r} of the history must not be negative")
    _check_measures(history, arrays)
    _check_steps(history, arrays)


_MEASURES = ("fun", "stationarity", "grad_norm", "conjugate", "momentum", "decrease")


_STEPS = ("lr", "taken")


def _check_measures(history: History, arrays: dict[str, Floats]) -> None:
    """Check that the measures of an isotropic φ are those of the norms."""
    phi, norms = history.method.stationarity_reference, arrays.get("grad_norm")
    if norms is None or not isinstance(phi, Isotropic) or history.method.scale_follows:
        return
    for name, of in (("stationarity", phi.stationarity), ("conjugate", phi.conjugate)):
        if name in arrays:
            found, right = arrays[name], of(norms[..., None], axis=-1)
            known = np.isfinite(found) & np.isfinite(right)
            if not np.allclose(found[known], right[known], rtol=1e-4, atol=0.0):
                raise ValueError(f"{name!r} of the history is not that of its 'grad_norm' and of {phi!r}")


def _check_steps(history: History, arrays: dict[str, Floats]) -> None:
    """Check that γ is that of the method, and that f changed only where a step was taken."""
    if not {"fun", *_STEPS} <= arrays.keys():
        return
    taken, fixed = arrays["taken"][:-1] > 0.0, history.method.fixed_lr
    if fixed is not None and not np.allclose(arrays["lr"][:-1][taken], fixed, rtol=1e-6, atol=0.0):
        raise ValueError(f"'lr' of the history is not that of {history.method!r}")
    with np.errstate(invalid="ignore"):
        moved = ~taken & (np.abs(np.diff(arrays["fun"], axis=0)) > 0.0) & np.isfinite(arrays["fun"][1:])
    if moved.any():
        k = int(np.argmax(moved.reshape(len(moved), -1).any(axis=1)))
        raise ValueError(f"step {k} of the history was not taken, but f changed")


def series(history: History, name: str) -> Floats:
    """Return an array of the history of one run."""
    if name not in history:
        raise ValueError(f"history has no {name!r}; run minimize with history=True")
    values: Floats = np.asarray(history[name], dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"history must be that of one run, but {name!r} has shape {values.shape}")
    return values


def all_taken(theorem: str, history: History) -> None:
    """Check that no step of the run led to where f or its gradient is not finite, and was taken back."""
    if "taken" in history:
        missed = np.isfinite(history["lr"]) & ~np.asarray(history["taken"], dtype=np.bool_)
        if missed.any():
            k = int(np.argmax(missed))
            raise AssumptionError(theorem, "f finite on ℝⁿ", f"f or its gradient is not finite where step {k} led")


def comparable(theorem: str, measures: Mapping[str, Any], gap: float, rho: float) -> None:
    """Check that the measures of the run are numbers, and that f(x⁰) is above the minimum by more than rounding."""
    for name in ("grad_norm", "stationarity", "conjugate", "decrease"):
        values = np.asarray(measures.get(name, 0.0))
        if not np.isfinite(values).all():
            why = "is NaN somewhere" if np.isnan(values).any() else "overflows; take a larger λ"
            raise UndecidedError(f"{theorem} cannot be compared: {name!r} of the history {why}")
    if 0.0 < gap < rho:
        raise UndecidedError(f"{theorem} cannot be compared: f(x⁰) is within rounding, {rho:.3g}, of the minimum")


def smooth(theorem: str, history: History) -> None:
    """Check that the run minimised f alone."""
    if not history.method.smooth:
        raise AssumptionError(theorem, "that f is smooth", f"there is a function g beside f, in {history.method!r}")


def algorithm_1(theorem: str, history: History) -> None:
    """Check that the run is one of the paper's Algorithm 1."""
    smooth(theorem, history)
    if history.method.as_npgm is None:
        raise AssumptionError(theorem, "Algorithm 1 of the paper", f"the run is one of {history.method!r}")


def before_the_map(theorem: str, history: History) -> None:
    """Check that the run is one from its start, with momentum before the preconditioner, one γ and one λ."""
    method = history.method
    known = isinstance(method, NPGM) and isinstance(method.lr, float) and method.scale != "auto"
    if not (known and method.momentum_order == "before"):  # type: ignore[attr-defined]
        raise AssumptionError(theorem, "momentum before the preconditioner", f"the run is one of {method!r}")
    if history.get("variance_reduction"):
        raise AssumptionError(theorem, "m ← β m + (1-β) g", "the momentum is one with variance reduction")
    from_the_start(theorem, history, method.momentum)  # type: ignore[attr-defined]


def from_the_start(theorem: str, history: History, momentum: float) -> None:
    """Check that the history of a run with momentum begins at its start, where m = 0."""
    if momentum == 0.0:
        return
    if "momentum" not in history:
        raise ValueError("history has no 'momentum', which tells whether it begins at the start; run minimize again")
    if (found := float(np.max(np.asarray(history["momentum"])[0]))) != 0.0:
        raise AssumptionError(
            theorem, "the history from the start on, m = 0", f"φ(m) = {found:.3g} before its first step"
        )


def some_steps(theorem: str, steps: int) -> None:
    """Check that the run has a step."""
    if steps < 1:
        raise UndecidedError(f"{theorem} is about the steps of a run, and none was taken")


def without_momentum(theorem: str, momentum: float) -> None:
    """Check that β = 0."""
    if momentum > 0.0:
        raise AssumptionError(theorem, "β = 0", f"β = {momentum:g}")


def known_minimum(theorem: str, minimum: float, exact: bool) -> None:
    """Check that inf f is known, and not only a lower bound of it."""
    if not exact:
        found = f"minimum = {minimum!r} is a lower bound; say exact=True if it is inf f"
        raise AssumptionError(theorem, "inf f, for a bound on f - inf f", found)

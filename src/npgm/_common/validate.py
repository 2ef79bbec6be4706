"""Checks of hyperparameters, with one wording for every room."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from numbers import Integral, Real
from typing import Any


def fields(instance: Any, **checks: Callable[[str, Any], Any]) -> None:
    """Replace each named field of a frozen dataclass by what its check, called with name and value, returns."""
    assign(instance, **{name: check(name, getattr(instance, name)) for name, check in checks.items()})


def assign(instance: Any, **values: Any) -> None:
    """Set fields of a frozen dataclass while it is built."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def real(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise a TypeError that names it."""
    if isinstance(value, bool) or not isinstance(value, float | Real):  # a float needs no look-up
        raise TypeError(f"{name} must be a real number, not {value!r}")
    return float(value)


def finite(name: str, value: Any) -> float:
    """Return ``value`` as a finite float, or raise."""
    if not math.isfinite(number := real(name, value)):
        raise ValueError(f"{name} must be finite, not {value!r}")
    return number


def positive(name: str, value: Any) -> float:
    """Return ``value`` as a float in (0, ∞), or raise."""
    if not 0.0 < (number := real(name, value)) < math.inf:
        raise ValueError(f"{name} must be positive and finite, not {value!r}")
    return number


def nonnegative(name: str, value: Any) -> float:
    """Return ``value`` as a float in [0, ∞), or raise."""
    if not 0.0 <= (number := real(name, value)) < math.inf:
        raise ValueError(f"{name} must be nonnegative and finite, not {value!r}")
    return number


def fraction(name: str, value: Any, *, closed: bool = False) -> float:
    """Return ``value`` as a float in [0, 1), or in [0, 1] if ``closed``, or raise."""
    number = real(name, value)
    if not (0.0 <= number < 1.0 or (closed and number == 1.0)):
        raise ValueError(f"{name} must lie in [0, 1{']' if closed else ')'}, not {value!r}")
    return number


def count(name: str, value: Any, *, least: int = 0) -> int:
    """Return ``value`` as an int of at least ``least``, or raise."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, not {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value!r}")
    return int(value)


def choice(name: str, value: Any, accepted: Collection[str], *, hint: str = "") -> str:
    """Return ``value`` if it is one of ``accepted``, or raise an error that lists them and ends in the ``hint``."""
    if isinstance(value, str) and value in accepted:
        return value
    accepted = sorted(accepted)
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, one of {', '.join(accepted)}, not {value!r}")
    raise ValueError(f"unknown {name} {value!r}; accepted: {', '.join(accepted)}{'; ' * bool(hint)}{hint}")

"""Reference functions φ on vectors, built from a kernel, and the preconditioners ∇φ* they generate.

>>> import numpy as np, npgm
>>> phi = npgm.Isotropic(npgm.Cosh(), scale=100.0)
>>> phi
Isotropic(kernel=Cosh(), scale=100.0)
>>> phi == npgm.reference("isotropic-cosh", scale=100.0)
True
>>> phi.precondition(np.array([300.0, 400.0])) / np.arcsinh(5.0)   # the norm 500 becomes arsinh(5)
array([0.6, 0.8])
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from npgm import kernels
from npgm._common import validate
from npgm.references.base import Reference
from npgm.references.blocks import Blocks
from npgm.references.isotropic import Isotropic
from npgm.references.separable import Separable
from npgm.references.spectral import Spectral

__all__ = ["Blocks", "Isotropic", "Reference", "Separable", "Spectral", "as_reference", "lifts", "names", "reference"]

lifts: dict[str, type[Reference]] = {lift.lift: lift for lift in (Isotropic, Separable, Spectral)}
"""The three ways from a kernel to a reference function, by name."""


def names(*chosen: str) -> list[str]:
    """Return the names that `reference` accepts: every lift, or those ``chosen``, of every registered kernel."""
    return [f"{lift}-{key}" for lift in sorted(chosen or lifts) for key in sorted(kernels.registry)]


def reference(name: str, *, scale: float = 1.0, **parameters: float) -> Reference:
    """Build a reference function by name.

    Args:
        name: the lift and the kernel's key, as in ``"isotropic-cosh"``; `names` lists them all.
        scale: λ > 0.
        **parameters: the kernel's own parameters, if it has any.

    Raises:
        TypeError, ValueError: if the name, the scale or a parameter is not accepted.
    """
    lift, _, key = str(name).partition("-")
    validate.choice("reference", name, names(), hint=kernels.registry.hint if lift in lifts else "")
    kernel = kernels.registry[key]
    accepted: list[str] = [field.name for field in fields(kernel)] if is_dataclass(kernel) else []
    if unknown := set(parameters) - set(accepted):
        raise TypeError(f"the kernel {key} has no parameter {min(unknown)!r}; accepted: {accepted or 'none'}")
    return lifts[lift](kernel(**parameters), scale=scale)


def as_reference(value: Reference | str) -> Reference:
    """Return ``value`` itself, or the reference function of that name with λ = 1.

    Raises:
        TypeError, ValueError: if it is neither a reference function nor the name of one.
    """
    if isinstance(value, str):
        return reference(value)
    if not isinstance(value, Reference):
        raise TypeError(
            f"reference must be a reference function, such as npgm.Isotropic(npgm.Cosh()), or its name, not {value!r}"
        )
    return value

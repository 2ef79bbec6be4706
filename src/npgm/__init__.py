"""Nonlinearly preconditioned gradient methods for NumPy, SciPy, PyTorch and JAX.

    u = ∇φ*(∇f(x)),   m ← β m + (1-β) u,   x ← x - γ m

Oikonomidis, Quan, Patrinos: Nonlinearly Preconditioned Gradient Methods: Momentum and Stochastic Analysis,
NeurIPS 2025.
"""

import importlib
from typing import TYPE_CHECKING, Any

from npgm import kernels
from npgm.kernels import (
    Artanh,
    Cosh,
    Cubic,
    Exp,
    ExpSquare,
    Huber,
    Kernel,
    Log,
    LogCos,
    LogSquare,
    Power,
    Quadratic,
    Quartic,
    Root,
    Sqrt,
)
from npgm.references import Blocks, Isotropic, Reference, Separable, Spectral, reference

if TYPE_CHECKING:
    from npgm import problems, proximal, solvers, theory
    from npgm.solvers import minimize

__version__ = "0.1.0"
__all__ = [
    "Artanh",
    "Blocks",
    "Cosh",
    "Cubic",
    "Exp",
    "ExpSquare",
    "Huber",
    "Isotropic",
    "Kernel",
    "Log",
    "LogCos",
    "LogSquare",
    "Power",
    "Quadratic",
    "Quartic",
    "Reference",
    "Root",
    "Separable",
    "Spectral",
    "Sqrt",
    "kernels",
    "minimize",
    "problems",
    "proximal",
    "reference",
    "solvers",
    "theory",
]

if not TYPE_CHECKING:  # lest a type checker take every name for one of npgm's

    def __getattr__(name: str) -> Any:
        """Import what needs SciPy when it is first used."""
        if name == "minimize":
            return importlib.import_module("npgm.solvers").minimize
        if name in __all__:
            return importlib.import_module(f"npgm.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

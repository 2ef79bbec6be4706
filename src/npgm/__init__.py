"""Nonlinearly preconditioned gradient methods for NumPy, SciPy, PyTorch and JAX.

    u = ∇φ*(∇f(x)),   m ← β m + (1-β) u,   x ← x - γ m

Oikonomidis, Quan, Patrinos: Nonlinearly Preconditioned Gradient Methods: Momentum and Stochastic Analysis,
NeurIPS 2025.
"""

from npgm import kernels, problems, proximal, solvers, theory
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

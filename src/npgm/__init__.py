"""Nonlinearly preconditioned gradient methods for NumPy, SciPy, PyTorch and JAX.

    u = ∇φ*(∇f(x)),   m ← β m + (1-β) u,   x ← x - γ m

Oikonomidis, Quan, Patrinos: Nonlinearly Preconditioned Gradient Methods: Momentum and Stochastic Analysis,
NeurIPS 2025.
"""

from npgm import kernels, solvers
from npgm.kernels import Cosh, Kernel, Log, Quadratic
from npgm.references import Isotropic, Reference, Separable, reference
from npgm.solvers import minimize

__version__ = "0.1.0"
__all__ = [
    "Cosh",
    "Isotropic",
    "Kernel",
    "Log",
    "Quadratic",
    "Reference",
    "Separable",
    "kernels",
    "minimize",
    "reference",
    "solvers",
]

"""Nonlinearly preconditioned gradient methods for NumPy, SciPy, PyTorch and JAX.

    u = ∇φ*(∇f(x)),   m ← β m + (1-β) u,   x ← x - γ m

Oikonomidis, Quan, Patrinos: Nonlinearly Preconditioned Gradient Methods: Momentum and Stochastic Analysis,
NeurIPS 2025.
"""

import importlib

TYPE_CHECKING = False  # type checkers take it for `typing`'s, which need not be loaded
if TYPE_CHECKING:
    from npgm import kernels, problems, proximal, references, solvers, theory
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
    "references",
    "solvers",
    "theory",
]

_MODULES = ("kernels", "problems", "proximal", "references", "solvers", "theory", "jax", "keras", "optax", "torch")

if not TYPE_CHECKING:  # lest a type checker take every name for one of npgm's

    def __getattr__(name: str) -> object:
        """Import what has a name when it is first used; until then an interrupted command line ends quietly."""
        if name in _MODULES:
            return importlib.import_module(f"npgm.{name}")
        if name in __all__:
            for module in ("npgm.references", "npgm.kernels", "npgm.solvers"):
                if hasattr(home := importlib.import_module(module), name):
                    return globals().setdefault(name, getattr(home, name))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

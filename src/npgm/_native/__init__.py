"""Fused steps in C++ on memory of the CPU: the extension module `_core`, where the package was built with it.

The arrays are given by the addresses of their entries, so that no array library is needed to build the module and none
is preferred by it. Of what is computed, only the kernels are known here; `npgm.torch` and `npgm.solvers` know the rest.
"""

from __future__ import annotations

from dataclasses import fields
from types import ModuleType

from npgm.kernels import Kernel

_missing = "this installation was built without it"
try:
    from npgm._native import _core
except ModuleNotFoundError as error:
    if error.name != f"{__name__}._core":
        raise
    _core = None  # type: ignore[assignment]
except ImportError as error:  # of another Python, or without a library that it needs
    _core, _missing = None, f"its file cannot be loaded: {error}"  # type: ignore[assignment]


def available() -> bool:
    """Whether the package has the module, and it could be loaded."""
    return _core is not None


def core() -> ModuleType:
    """Return the extension module.

    Raises:
        RuntimeError: if the package was built without it, or it cannot be loaded.
    """
    if _core is None:
        raise RuntimeError(
            f"the fused steps need the native module of npgm, and {_missing}; install npgm again with a C++20 compiler "
            "at hand, and without NPGM_PURE_PYTHON in the environment"
        )
    return _core


def kernels() -> frozenset[str]:
    """Return the keys of the kernels that the module has; none without it."""
    return frozenset(_core.kernels) if _core is not None else frozenset()


def kernel_arguments(kernel: Kernel) -> tuple[str, tuple[float, ...]]:
    """Return a kernel as fused steps are told it: its key, and its parameters in the order of its fields.

    The key is empty for a kernel that is not of the package, as that of a user's class may be anything.
    """
    if type(kernel).__module__.partition(".")[0] != __package__.partition(".")[0]:
        return "", ()
    return kernel.key, tuple(getattr(kernel, field.name) for field in fields(kernel))  # type: ignore[arg-type]

"""Fused steps in C++ on memory of the CPU: the extension module `_core`, where the package was built with it.

The arrays are given by the addresses of their entries, so that no array library is needed to build the module and none
is preferred by it. Of what is computed, only the kernels are known here; `npgm.torch.fused` and `npgm.solvers` know the
rest.
"""

from __future__ import annotations

from dataclasses import fields
from types import ModuleType

from npgm import kernels
from npgm.kernels import Kernel

try:
    from npgm._native import _core
except ImportError:
    _core = None  # type: ignore[assignment]


def available() -> bool:
    """Whether the package was built with the module."""
    return _core is not None


def core() -> ModuleType:
    """Return the extension module.

    Raises:
        RuntimeError: if the package was built without it.
    """
    if _core is None:
        raise RuntimeError(
            "the fused steps need the native module of npgm, which this installation was built without; "
            "install npgm again with a C++20 compiler at hand, and without NPGM_PURE_PYTHON in the environment"
        )
    return _core


def kernel_classes() -> frozenset[type[Kernel]]:
    """Return the classes of `npgm.kernels` that the module has; none without it."""
    return frozenset(getattr(kernels, name) for name in _core.kernels) if _core is not None else frozenset()


def kernel_arguments(kernel: Kernel) -> tuple[str, list[float]]:
    """Return a kernel of `kernel_classes` as the module is told it: its name, and its parameters in their order."""
    return type(kernel).__name__, [getattr(kernel, field.name) for field in fields(kernel)]  # type: ignore[arg-type]

"""Fused steps in C++ on memory of the CPU: the extension module `_core`, where the package was built with it.

The arrays are given by the addresses of their entries, so that no array library is needed to build the module and none
is preferred by it. Nothing here knows what is computed; `npgm.torch.fused` does.
"""

from __future__ import annotations

from types import ModuleType

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


def kernel_name(kernel: object) -> str | None:
    """Return the module's name for a kernel of `npgm.kernels`; None if it lacks that, or for one from elsewhere."""
    name, module = type(kernel).__name__, type(kernel).__module__
    return name if available() and name in core().kernels and module.startswith("npgm.kernels.") else None

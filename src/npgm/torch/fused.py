"""Which φ and tensors have a fused step, which goes through all tensors of a dtype in one pass."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
import shutil
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from npgm import _native
from npgm.references import Isotropic, Reference, Separable
from npgm.torch.norms import working_dtype

DTYPES = {
    dtype: str(dtype).removeprefix("torch.") for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)
}
PLAIN = (Tensor, torch.nn.Parameter)
"""The types of tensors that are known to be what their memory is; that of a subclass may be something else."""

KERNELS: dict[str, frozenset[str]] = {}
"""The keys of the kernels that have a separable step, by type of device; one that is not there has no steps at all."""

_TRITON = (3, 7)  # the first release that the steps are tested with

if _native.available():
    KERNELS["cpu"] = _native.kernels()


def load(devices: Iterable[torch.device]) -> None:
    """Make the steps on these devices known, where they can be taken; those on the CPU always are.

    Only who has something on a CUDA device waits for the import of Triton.
    """
    on_cuda = [device for device in devices if device.type == "cuda"]
    if on_cuda and "cuda" not in KERNELS and not any(map(missing, on_cuda)):
        from npgm.torch.triton import driver

        KERNELS["cuda"] = driver.KERNELS


def accepts(phi: Reference, device_type: str = "cpu") -> bool:
    """Whether there is a fused step for φ: for any isotropic one, and for the separable ones of npgm's own kernels."""
    known = KERNELS.get(device_type)
    if known is None or isinstance(phi, Isotropic):
        return known is not None
    return isinstance(phi, Separable) and _native.kernel_arguments(phi.kernel)[0] in known


def require(phi: Reference, parameter: Tensor) -> None:
    """Raise an error that says what is missing, unless there is a fused step for φ and tensors such as ``parameter``.

    Args:
        parameter: of real numbers, or complex ones that are stepped as pairs of these.

    Raises:
        RuntimeError: if the steps for its device are not there.
        ValueError: if there is no fused step for such a parameter, or for the kernel.
    """
    device = parameter.device
    if device.type == "cpu":
        _native.core()
    if device.type == "cuda" and (lacking := missing(device)):
        raise RuntimeError(f"`fused=True` on a CUDA device needs Triton: {lacking}")
    real = torch.view_as_real(parameter) if parameter.is_complex() else parameter
    if not accepts_parameter(real.detach()):
        raise ValueError(
            "`fused=True` requires all the params to be dense floating point Tensors on the CPU or a CUDA device, not "
            f"{type(parameter).__name__} of {parameter.dtype} on {device} with strides {parameter.stride()} of shape "
            f"{tuple(parameter.shape)}"
        )
    if not accepts(phi, device.type):
        known = ", ".join(sorted(KERNELS[device.type]))
        raise ValueError(
            f"`fused=True` has no step for {phi!r}; it takes isotropic φ, and separable φ with the kernels {known}"
        )


@functools.cache
def missing(device: torch.device) -> str | None:
    """Return what Triton lacks on a CUDA device, or None if it can be used."""
    if importlib.util.find_spec("triton") is None:
        return "install it by `pip install triton`, in the version that goes with this release of torch"
    import triton

    if tuple(map(int, triton.__version__.split(".")[:2])) < _TRITON:
        return f"3.7 or later, not {triton.__version__}, which is that of a later release of torch"
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        return "install gcc or clang, with which it compiles, or name a C compiler in the environment variable CC"
    if (capability := torch.cuda.get_device_capability(device)) < (7, 0):
        return f"it does not know devices of compute capability {capability[0]}.{capability[1]}"
    return None


def accepts_parameter(parameter: Tensor) -> bool:
    """Whether there is a fused step for tensors such as ``parameter``, a view of real numbers where it is complex."""
    return (
        has_memory(parameter)
        and parameter.device.type in KERNELS
        and parameter.layout == torch.strided
        and parameter.dtype in DTYPES
        and (parameter.is_contiguous() or is_dense(parameter))
    )


def accepts_tensors(parameter: Tensor, gradient: Tensor, buffer: Tensor | None) -> bool:
    """Whether the memory of the three can be gone through together."""
    if not accepts_parameter(parameter):
        return False
    others = [gradient] if buffer is None else [gradient, buffer]
    if any(t.layout != torch.strided or t.device != parameter.device or not has_memory(t) for t in others):
        return False
    stored = (parameter.dtype, working_dtype(parameter.dtype))
    if gradient.dtype != parameter.dtype or (buffer is not None and buffer.dtype not in stored):
        return False
    if any(other.shape != parameter.shape for other in others):
        return False
    if not parameter.is_contiguous():
        if any(other.stride() != parameter.stride() for other in others):
            return False
    elif not all(other.is_contiguous() for other in others):
        return False
    # what shares memory with its own gradient is for a loop; tensors of a graph have no memory
    return not any(share_memory(a, b) for a, b in itertools.combinations([parameter, *others], 2))


def is_direct() -> bool:
    """Whether what is done may be done without the dispatcher of torch: it is neither traced nor recorded."""
    return not torch.compiler.is_compiling() and _get_current_dispatch_mode() is None


def has_memory(tensor: Tensor) -> bool:
    """Whether the entries of a strided tensor are what its memory holds, or will be where a graph is traced.

    The views that negate, zeros that are only implied, and the wrappers of functionalization are of a plain type.
    """
    if type(tensor) not in PLAIN or torch.compiler.is_compiling():
        return type(tensor) in PLAIN
    return not tensor.is_neg() and (tensor.is_meta or not tensor.numel() or tensor.data_ptr() != 0)


def share_memory(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have an address in common, as far as they have addresses; gaps count as part of them."""
    if torch.compiler.is_compiling() or any(type(t) not in PLAIN or t.layout != torch.strided for t in (a, b)):
        return False
    if a.numel() == 0 or b.numel() == 0 or a.device != b.device or a.device.type == "meta":
        return False
    (first, last), (start, end) = map(_extent, (a, b))
    return first < end and start < last


def _extent(tensor: Tensor) -> tuple[int, int]:
    entries = 1 + sum(stride * (size - 1) for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + entries * tensor.itemsize


def is_dense(tensor: Tensor) -> bool:
    """Whether the entries fill the memory from the first to the last, in any order of the dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True

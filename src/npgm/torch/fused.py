"""The fused path: all tensors of a dtype in one pass, each read and written once.

The steps are custom operators, which `torch.compile` keeps in its graph: on the CPU the native module takes them, on a
CUDA device Triton, in `npgm.torch.triton`.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterable
from operator import attrgetter

import torch
from torch import Tensor

from npgm import _native, kernels
from npgm.references import Isotropic, Reference

DTYPES = {
    dtype: str(dtype).removeprefix("torch.") for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)
}

_TRITON = (3, 7)  # the first release that the steps are tested with
_PLAIN = (Tensor, torch.nn.Parameter)  # the memory of a subclass may be something else
_DTYPE, _LAYOUT, _DEVICE, _IS_CPU = map(attrgetter, ("dtype", "layout", "device", "is_cpu"))
_KERNELS: dict[str, frozenset[type[kernels.Kernel]]] = {}
"""The kernels that have a separable step, by type of device; a device whose type is not there has no steps at all."""

if _native.available():
    _KERNELS["cpu"] = frozenset(getattr(kernels, name) for name in _native.core().kernels)


def load(devices: Iterable[torch.device]) -> None:
    """Make the steps on these devices known, where they can be taken; those on the CPU always are.

    Only who has something on a CUDA device waits for the import of Triton.
    """
    on_cuda = [device for device in devices if device.type == "cuda"]
    if on_cuda and "cuda" not in _KERNELS and not any(map(_missing, on_cuda)):
        from npgm.torch.triton import driver

        _KERNELS["cuda"] = driver.KERNELS


def accepts(phi: Reference, device_type: str = "cpu") -> bool:
    """Whether there is a fused step for φ: for any isotropic one, and for the separable ones of npgm's own kernels."""
    known = _KERNELS.get(device_type)
    return known is not None and (isinstance(phi, Isotropic) or type(phi.kernel) in known)


def kernel(phi: Reference) -> str:
    """Return the name for the operators of the kernel of a separable φ that is accepted."""
    return type(phi.kernel).__name__


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
    if device.type == "cuda" and (missing := _missing(device)):
        raise RuntimeError(f"`fused=True` on a CUDA device needs Triton: {missing}")
    real = torch.view_as_real(parameter) if parameter.is_complex() else parameter
    if not accepts_parameter(real.detach()):
        raise ValueError(
            "`fused=True` requires all the params to be dense floating point Tensors on the CPU or a CUDA device, not "
            f"{type(parameter).__name__} of {parameter.dtype} on {device} with strides {parameter.stride()} of shape "
            f"{tuple(parameter.shape)}"
        )
    if not accepts(phi, device.type):
        known = ", ".join(sorted(kernel.__name__ for kernel in _KERNELS[device.type]))
        raise ValueError(f"`fused=True` has no separable step for the kernel {phi.kernel!r}; it has: {known}")


def _missing(device: torch.device) -> str | None:
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
        type(parameter) in _PLAIN
        and parameter.device.type in _KERNELS
        and parameter.layout == torch.strided
        and parameter.dtype in DTYPES
        and (parameter.is_contiguous() or is_dense(parameter))
    )


def accepts_together(parameters: list[Tensor], gradients: list[Tensor], buffers: list[Tensor]) -> bool:
    """Whether all tensors of a group can be gone through together: the usual case, which is found out the fastest."""
    tensors = [*parameters, *gradients, *buffers]
    dtypes = {*map(_DTYPE, parameters), *map(_DTYPE, gradients)}
    if len(dtypes) != 1 or not {*map(type, tensors)} <= {*_PLAIN} or {*map(_LAYOUT, tensors)} != {torch.strided}:
        return False
    (dtype,) = dtypes
    return (
        dtype in DTYPES
        and ({*map(_DTYPE, buffers)} in (set(), {dtype}, {torch.promote_types(dtype, torch.float32)}))
        and _on_one_device(tensors)
        and all(map(Tensor.is_contiguous, tensors))
    )


def _on_one_device(tensors: list[Tensor]) -> bool:
    if all(map(_IS_CPU, tensors)):
        return "cpu" in _KERNELS
    devices = {*map(_DEVICE, tensors)}
    return len(devices) == 1 and devices.pop().type in _KERNELS


def accepts_tensors(parameter: Tensor, gradient: Tensor, buffer: Tensor | None) -> bool:
    """Whether the memory of the three can be gone through together."""
    if not accepts_parameter(parameter) or type(gradient) not in _PLAIN or gradient.dtype != parameter.dtype:
        return False
    if gradient.layout != torch.strided or gradient.device != parameter.device:
        return False
    if buffer is not None:
        working = torch.promote_types(parameter.dtype, torch.float32)
        if type(buffer) not in _PLAIN or buffer.device != parameter.device:
            return False
        if buffer.dtype not in (parameter.dtype, working):
            return False
    others = [gradient] if buffer is None else [gradient, buffer]
    if parameter.is_contiguous():
        return all(other.is_contiguous() for other in others)
    return all(other.stride() == parameter.stride() for other in others)


def is_dense(tensor: Tensor) -> bool:
    """Whether the entries fill the memory from the first to the last, in any order of the dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


torch.library.define(
    "npgm::norms",
    "(Tensor[] parameters, Tensor[] gradients, Tensor? grad_scale, *, bool maximize, float decay, bool per_tensor)"
    " -> Tensor",
)
torch.library.define(
    "npgm::step_",
    "(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] momentum, Tensor? factors, Tensor lr,"
    " Tensor? grad_scale, Tensor? keep, *, str kernel, float scale, float weight, float coupled_decay,"
    " float decoupled_decay, bool maximize) -> ()",
)


@torch.library.register_fake("npgm::norms")  # type: ignore[untyped-decorator]
def _(
    parameters: list[Tensor],
    gradients: list[Tensor],
    grad_scale: Tensor | None,
    *,
    maximize: bool,
    decay: float,
    per_tensor: bool,
) -> Tensor:
    return gradients[0].new_empty((2, len(gradients) if per_tensor else 1), dtype=torch.float64)


@torch.library.impl("npgm::norms", "CPU")
def norms(
    parameters: list[Tensor],
    gradients: list[Tensor],
    grad_scale: Tensor | None,
    *,
    maximize: bool,
    decay: float,
    per_tensor: bool,
) -> Tensor:
    """Return max|y| and ‖y‖ / max|y|, in two rows, for the gradients y of the loss to minimise, decay included."""
    measured = _native.core().measure(
        list(map(Tensor.data_ptr, parameters)),
        list(map(Tensor.data_ptr, gradients)),
        list(map(Tensor.numel, parameters)),
        dtype=DTYPES[parameters[0].dtype],
        gradient_factor=_gradient_factor(maximize, grad_scale),
        coupled_decay=decay,
        per_tensor=per_tensor,
        threads=torch.get_num_threads(),
    )
    return torch.tensor(measured, dtype=torch.float64)


@torch.library.register_fake("npgm::step_")  # type: ignore[untyped-decorator]
def _(*args: object, **kwargs: object) -> None:
    return None


@torch.library.impl("npgm::step_", "CPU")
def step_(
    parameters: list[Tensor],
    gradients: list[Tensor],
    momentum: list[Tensor],
    factors: Tensor | None,
    lr: Tensor,
    grad_scale: Tensor | None,
    keep: Tensor | None,
    *,
    kernel: str,
    scale: float,
    weight: float,
    coupled_decay: float,
    decoupled_decay: float,
    maximize: bool,
) -> None:
    """Take the step of `npgm.torch.NPGM`, unless ``keep`` is False."""
    if keep is not None and not keep.item():
        return
    rate = float(lr.item())
    _native.core().update(
        list(map(Tensor.data_ptr, parameters)),
        list(map(Tensor.data_ptr, gradients)),
        list(map(Tensor.data_ptr, momentum)),
        list(map(Tensor.numel, parameters)),
        dtype=DTYPES[parameters[0].dtype],
        momentum_dtype=DTYPES[momentum[0].dtype] if momentum else "",
        kernel=kernel,
        factors=[] if factors is None else factors.tolist(),
        gradient_factor=_gradient_factor(maximize, grad_scale),
        coupled_decay=coupled_decay,
        scale=scale,
        weight=weight,
        shrink=1.0 - rate * decoupled_decay,
        lr=rate,
        threads=torch.get_num_threads(),
    )
    torch.autograd.graph.increment_version([*parameters, *momentum])


def _gradient_factor(maximize: bool, grad_scale: Tensor | None) -> float:
    sign = -1.0 if maximize else 1.0
    return sign if grad_scale is None else sign / float(grad_scale.item())

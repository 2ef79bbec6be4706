"""The fused path: all tensors of a dtype in one pass, each read and written once.

The steps are custom operators, which `torch.compile` keeps in its graph: on the CPU the native module takes them, on a
CUDA device Triton, in `npgm.torch.triton`. Elsewhere than in a graph the native module is called without the
dispatcher, which would take longer for thousands of tensors than the step of small ones.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from npgm import _native, kernels
from npgm.references import Isotropic, Reference

if TYPE_CHECKING:
    from npgm._native._core import Tensors

DTYPES = {
    dtype: str(dtype).removeprefix("torch.") for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)
}

_TRITON = (3, 7)  # the first release that the steps are tested with
_PLAIN = (Tensor, torch.nn.Parameter)  # the memory of a subclass may be something else
_EXCHANGE = (
    _native.core().Exchange.of(Tensor.__dlpack_c_exchange_api__, _PLAIN)
    if _native.available() and hasattr(Tensor, "__dlpack_c_exchange_api__")  # torch 2.10 and later
    else None
)
_KERNELS: dict[str, frozenset[type[kernels.Kernel]]] = {}
"""The kernels that have a separable step, by type of device; a device whose type is not there has no steps at all."""

if _native.available():
    _KERNELS["cpu"] = _native.kernel_classes()


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


def kernel(phi: Reference) -> tuple[str, list[float]]:
    """Return the kernel of an accepted φ as the operators are told it, by name and parameters; none if isotropic."""
    if isinstance(phi, Isotropic):
        return "", []
    return _native.kernel_arguments(phi.kernel)


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


def is_direct() -> bool:
    """Whether the native module may be called without the dispatcher of torch: neither traced nor recorded."""
    return not torch.compiler.is_compiling() and _get_current_dispatch_mode() is None


def gather(parameters: list[Tensor], gradients: list[Tensor], momentum: list[Tensor]) -> Tensors | None:
    """Return all tensors of a group as the native module takes them, or None if it does not take them together.

    It holds the addresses of their memory: it is of use while they have it.
    """
    if _EXCHANGE is not None:
        exchanged: Tensors | None = _EXCHANGE.tensors(parameters, gradients, momentum)
        return exchanged
    buffers: Sequence[Tensor | None] = momentum or [None] * len(parameters)
    dtypes = {(p.dtype, None if m is None else m.dtype) for p, m in zip(parameters, buffers, strict=True)}
    if len(dtypes) != 1 or not parameters[0].is_cpu or not all(map(accepts_tensors, parameters, gradients, buffers)):
        return None
    # the dispatcher would do what is still to be negated
    return (
        None
        if any(map(Tensor.is_neg, [*parameters, *gradients, *momentum]))
        else addresses(parameters, gradients, momentum)
    )


def addresses(parameters: list[Tensor], gradients: list[Tensor], momentum: list[Tensor]) -> Tensors:
    """Return tensors of equal dtypes, each of which `accepts_tensors`, as the native module takes them."""
    tensors: Tensors = _native.core().Tensors(
        list(map(Tensor.data_ptr, parameters)),
        list(map(Tensor.data_ptr, gradients)),
        list(map(Tensor.data_ptr, momentum)),
        list(map(Tensor.numel, parameters)),
        dtype=DTYPES[parameters[0].dtype],
        momentum_dtype=DTYPES[momentum[0].dtype] if momentum else "",
    )
    return tensors


def accepts_tensors(parameter: Tensor, gradient: Tensor, buffer: Tensor | None) -> bool:
    """Whether the memory of the three can be gone through together."""
    if not accepts_parameter(parameter):
        return False
    others = [gradient] if buffer is None else [gradient, buffer]
    if any(type(t) not in _PLAIN or t.layout != torch.strided or t.device != parameter.device for t in others):
        return False
    working = torch.promote_types(parameter.dtype, torch.float32)
    if gradient.dtype != parameter.dtype or (buffer is not None and buffer.dtype not in (parameter.dtype, working)):
        return False
    if any(other.shape != parameter.shape for other in others):
        return False
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
    " Tensor? grad_scale, Tensor? keep, *, str kernel, float[] kernel_parameters, float scale, float weight,"
    " float coupled_decay, float decoupled_decay, bool maximize) -> ()",
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


def norms(
    parameters: list[Tensor],
    gradients: list[Tensor],
    grad_scale: Tensor | None,
    *,
    maximize: bool,
    decay: float,
    per_tensor: bool,
    tensors: Tensors | None = None,
) -> Tensor:
    """Return max|y| and ‖y‖ / max|y|, in two rows, for the gradients y of the loss to minimise, decay included.

    ``tensors`` are those of `gather`, where they have been gathered.
    """
    measured = _native.core().measure(
        tensors or addresses(parameters, gradients, []),
        gradient_factor=_gradient_factor(maximize, grad_scale),
        coupled_decay=decay,
        per_tensor=per_tensor,
        threads=torch.get_num_threads(),
    )
    return torch.tensor(measured, dtype=torch.float64)


@torch.library.register_fake("npgm::step_")  # type: ignore[untyped-decorator]
def _(*args: object, **kwargs: object) -> None:
    return None


def step_(
    parameters: list[Tensor],
    gradients: list[Tensor],
    momentum: list[Tensor],
    factors: Tensor | None,
    lr: float | Tensor,
    grad_scale: Tensor | None,
    keep: Tensor | None,
    *,
    kernel: str,
    kernel_parameters: list[float],
    scale: float,
    weight: float,
    coupled_decay: float,
    decoupled_decay: float,
    maximize: bool,
    tensors: Tensors | None = None,
) -> None:
    """Take the step of `npgm.torch.NPGM`, unless ``keep`` is False; ``tensors`` as in `norms`."""
    if keep is not None and not keep.item():
        return
    rate = float(lr)
    torch.autograd.graph.increment_version([*parameters, *momentum])
    _native.core().update(
        tensors or addresses(parameters, gradients, momentum),
        kernel=kernel,
        kernel_parameters=kernel_parameters,
        factors=[] if factors is None else factors.tolist(),
        gradient_factor=_gradient_factor(maximize, grad_scale),
        coupled_decay=coupled_decay,
        scale=scale,
        weight=weight,
        shrink=1.0 - rate * decoupled_decay,
        lr=rate,
        threads=torch.get_num_threads(),
    )


def _gradient_factor(maximize: bool, grad_scale: Tensor | None) -> float:
    sign = -1.0 if maximize else 1.0
    return sign if grad_scale is None else sign / float(grad_scale.item())


torch.library.impl("npgm::norms", "CPU", norms)
torch.library.impl("npgm::step_", "CPU", step_)

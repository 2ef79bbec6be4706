"""The fused path: all tensors of a dtype in one call of the native module, each read and written once.

On the CPU only. The native steps are custom operators too, which `torch.compile` keeps in its graph; elsewhere they are
called without the dispatcher, which would take longer for thousands of tensors than the step of small ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
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

_PLAIN = (Tensor, torch.nn.Parameter)  # the memory of a subclass may be something else
_KERNELS: dict[type[kernels.Kernel], str] = (
    {getattr(kernels, name): name for name in _native.core().kernels} if _native.available() else {}
)
_PARAMETERS = {kernel: [field.name for field in fields(kernel)] for kernel in _KERNELS}  # type: ignore[arg-type]
_EXCHANGE = (
    _native.core().Exchange.of(Tensor.__dlpack_c_exchange_api__, _PLAIN)
    if _native.available() and hasattr(Tensor, "__dlpack_c_exchange_api__")  # torch 2.10 and later
    else None
)


def accepts(phi: Reference) -> bool:
    """Whether there is a fused step for φ: for any isotropic one, and for the separable ones of npgm's own kernels.

    False without the native module.
    """
    return _native.available() and (isinstance(phi, Isotropic) or type(phi.kernel) in _KERNELS)


def kernel(phi: Reference) -> tuple[str, list[float]]:
    """Return the kernel of an accepted φ as the native module is told it, by name and parameters; none if isotropic."""
    if isinstance(phi, Isotropic):
        return "", []
    own = type(phi.kernel)
    return _KERNELS[own], [getattr(phi.kernel, name) for name in _PARAMETERS[own]]


def require(phi: Reference) -> None:
    """Raise an error that says what is missing, unless there is a fused step for φ.

    Raises:
        RuntimeError: if npgm was built without its native module.
        ValueError: if there is no fused step for the kernel.
    """
    _native.core()
    if not accepts(phi):
        known = ", ".join(name for name in _KERNELS.values())
        raise ValueError(f"`fused=True` has no separable step for the kernel {phi.kernel!r}; it has: {known}")


def accepts_parameter(parameter: Tensor) -> bool:
    """Whether there is a fused step for tensors such as ``parameter``, a view of real numbers where it is complex."""
    return (
        type(parameter) in _PLAIN
        and parameter.is_cpu
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
    if len(dtypes) != 1 or not all(map(accepts_tensors, parameters, gradients, buffers)):
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
    if any(type(t) not in _PLAIN or t.layout != torch.strided or not t.is_cpu for t in others):
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

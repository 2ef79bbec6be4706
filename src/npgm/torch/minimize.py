"""The loss of a module, full batch, minimised by the deterministic solvers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from scipy.optimize import OptimizeResult
from torch import Tensor

import npgm.solvers

PAIRS, ENTRIES = 1_000, 1_000_000
"""The memory has at most so many pairs, and vectors of so many entries in all, but 10 pairs at least. A product with
them takes little beside the loss of a network, and a network of 1,000 parameters gains from each pair."""


def minimize(
    module: torch.nn.Module | Iterable[Tensor], closure: Callable[[], Tensor], **options: Any
) -> OptimizeResult:
    """Minimise a loss over the parameters of a module by `npgm.minimize`, and set the module to the result.

    It replaces a loop around `torch.optim.LBFGS`, for losses of all data at once, such as those of physics-informed
    networks. The loss must be the same function at each call: no dropout, no minibatches.

    Args:
        module: a module, or its parameters. Those that require a gradient are the variables, in float64 if one of them
            has it, else in float32. All lie on one device.
        closure: returns the loss, a tensor of one element, at the parameters' current values. It need not call
            ``backward``, and ``.grad`` is not changed.
        **options: those of `npgm.minimize`: by default method "auto", which needs no stepsize, here with a ``memory``
            of 1,000 pairs, or of 1,000,000/n where that is less, and at least 10.

    Returns:
        What `npgm.minimize` returns, for the parameters as one vector: ``x`` and ``jac`` are NumPy arrays if the
        parameters lie on the CPU, else tensors. The parameters are those of ``x``.

    Raises:
        TypeError, ValueError: if a parameter is not real, if they lie on several devices, if an option is not accepted,
            or if the loss is not finite at the start. The parameters then have their old values, as after an error in
            ``closure``.

    Example:
        >>> model = torch.nn.Linear(3, 1, dtype=torch.float64)
        >>> x = torch.eye(3, dtype=torch.float64)
        >>> result = minimize(model, lambda: (model(x) - x.sum(1, keepdim=True)).square().mean())
        >>> bool(result.success)
        True
    """
    source = module.parameters() if isinstance(module, torch.nn.Module) else module
    parameters = [parameter for parameter in source if parameter.requires_grad]
    if not parameters:
        raise ValueError("module has no parameter that requires a gradient")
    for parameter in parameters:
        if not parameter.is_floating_point():
            raise TypeError(f"parameters must be real, but one has dtype {parameter.dtype}")
    if len(devices := {parameter.device for parameter in parameters}) > 1:
        raise ValueError(f"all parameters must lie on one device, not on {', '.join(sorted(map(str, devices)))}")
    dtype = torch.promote_types(torch.float32, max((p.dtype for p in parameters), key=lambda d: d.itemsize))
    on_host = parameters[0].device.type == "cpu"
    sizes = [parameter.numel() for parameter in parameters]

    def vector(tensors: Iterable[Tensor]) -> Any:
        flat = torch.cat([tensor.detach().reshape(-1).to(dtype) for tensor in tensors])
        return flat.numpy() if on_host else flat

    @torch.no_grad()
    def move_to(x: Any) -> None:
        parts = torch.split(torch.as_tensor(x), sizes)
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.copy_(part.view(parameter.shape))

    def fun(x: Any) -> tuple[float, Any]:
        move_to(x)
        with torch.enable_grad():
            loss = closure()
            gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
        return loss.item(), vector(gradients)

    if options.keys().isdisjoint({"method", "lr", "prox", "bounds"}):
        options = {"memory": min(PAIRS, max(10, ENTRIES // sum(sizes))), **options}
    start = [parameter.detach().clone() for parameter in parameters]
    try:
        result = npgm.solvers.minimize(fun, vector(parameters), **options)
        move_to(result.x)
    except BaseException:
        with torch.no_grad():
            torch._foreach_copy_(parameters, start)
        raise
    return result

"""Functions of torch with a given derivative, in a module of their own: torch.compile traces no class in a function."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.forward_ad import _set_fwd_grad_enabled, unpack_dual


class Reverse(torch.autograd.Function):
    """See `npgm._common.derivatives.differentiable`; in reverse mode alone, which is what torch.compile traces."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any, function: Any, jvp: Any, vjp: Any) -> Any:
        result = function(x)
        return x.clone() if result is x else result  # which torch wants to be another tensor

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, _, ctx.along, ctx.transposed = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        return ctx.transposed(*ctx.saved_tensors, *cotangents), None, None, None


class Differentiable(Reverse):
    """See `npgm._common.derivatives.differentiable`."""

    @staticmethod
    def jvp(ctx: Any, tangent: Any, *_: Any) -> Any:
        # torch switches forward derivatives off here, those that enclose this one too (pytorch#197867)
        with _set_fwd_grad_enabled(True):
            point = unpack_dual(*ctx.saved_tensors).primal  # type: ignore[no-untyped-call]
            return ctx.along(point, tangent)

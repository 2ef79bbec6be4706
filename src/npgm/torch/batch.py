"""The tensors that one path moves at once, and what a path is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from npgm.torch.norms import Norm, ProcessGroups, working_dtype
from npgm.torch.options import Options
from npgm.torch.rule import Rule

Lengths: TypeAlias = tuple[Tensor, Tensor] | None


class Path(Protocol):
    """A way to take a step; the modules of `npgm.torch.paths` are five."""

    def measure(self, batch: Batch, rule: Rule) -> Norm:
        """Return the norm of the part that this process holds of what φ is given by ``rule``.

        Args:
            batch: what to measure.
            rule: `Options.rule`, or `Options.gradient_rule` for the gradients by themselves. Each tensor has a norm of
                its own if `per_tensor`.
        """

    def apply_step(self, batch: Batch, factor: Tensor | None, applies: Tensor | None) -> Lengths:
        """Move the parameters, if ``applies`` is not False; return ‖y‖ and ‖∇φ*(y)‖ of each tensor if `Options.tracks`.

        Args:
            batch: what to move.
            factor: by what an isotropic φ multiplies what it is given; the λ of any other φ, if that follows the
                gradients, and else None. One number for all tensors, or one for each.
            applies: without dimensions.
        """


@dataclass(eq=False, slots=True)
class Batch:
    """Tensors of one group that one path moves together, as this process holds them: plain tensors of real numbers.

    They have one dtype, their gradients have one, and so has their momentum; all lie on one device.
    """

    path: Path
    group: int
    options: Options
    parameters: list[Tensor]
    gradients: list[Tensor]
    momentum: list[Tensor]
    """Of each parameter; empty without momentum."""
    grad_scale: Tensor | None = None
    """What the gradients are to be divided by, of one element or one for each tensor."""
    process_groups: ProcessGroups = ()
    """Those over which the tensors are sharded; none if this process holds all of them."""
    full: Sequence[Tensor] = ()
    """What the parameters are parts of, where φ does not act on parts."""
    scale_rms: Sequence[Tensor] = ()
    scale_weight: Sequence[Tensor] = ()
    """Of each parameter if λ follows the gradients; see `npgm.torch.running.SCALE`."""
    limit_rms: Sequence[Tensor] = ()
    limit_weight: Sequence[Tensor] = ()
    """Of each parameter if the gradients are limited; see `npgm.torch.running.LIMIT`."""
    native: Any = None
    """The tensors as the native module takes them, where it is called directly."""

    @property
    def working_dtype(self) -> torch.dtype:
        """In which to compute."""
        dtype = working_dtype(self.parameters[0].dtype)
        return torch.promote_types(dtype, self.momentum[0].dtype) if self.momentum else dtype

    def rate(self, like: Tensor, applies: Tensor | None) -> float | Tensor:
        """Return the stepsize, 0 where ``applies`` is False."""
        lr = self.options.rate
        if isinstance(lr, Tensor):
            lr = lr.squeeze()
            # a tensor of one element on the CPU takes part in operations on any device
            lr = lr if lr.device.type == "cpu" else lr.to(like.device)
        elif torch.compiler.is_compiling():
            lr = lr * like.new_ones(())  # in any other use than a product a float is compiled in as a constant
        return lr if applies is None else lr * applies.to(like)

    def weight(self, like: Tensor, applies: Tensor | None) -> float | Tensor:
        """Return 1 - β, 0 where ``applies`` is False."""
        value = 1.0 - self.options.momentum
        return value if applies is None else value * applies.to(like)

"""The tensors that one path moves at once, and what a path is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from npgm.torch.norms import Norm, ProcessGroups
from npgm.torch.options import Options


class Path(Protocol):
    """A way to take a step; the modules of `npgm.torch.paths` are five."""

    def measure(self, batch: Batch) -> Norm:
        """Return the norm of what φ is given, of the part that this process holds; of each tensor if `per_tensor`."""

    def move(self, batch: Batch, factor: Tensor | None, keep: Tensor | None) -> None:
        """Move the parameters, if ``keep`` is not False.

        Args:
            batch: what to move.
            factor: by what an isotropic φ multiplies what it is given; the λ of any other φ, if that follows the
                gradients, and else None. One number for all tensors, or one for each.
            keep: without dimensions.
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
    """What the gradients were multiplied by, of one element."""
    process_groups: ProcessGroups = ()
    """Those over which the tensors are sharded; none if this process holds all of them."""
    full: Sequence[Tensor] = ()
    """What the parameters are parts of, where φ does not act on parts."""
    scale_rms: Sequence[Tensor] = ()
    scale_weight: Sequence[Tensor] = ()
    """Of each parameter if λ follows the gradients; see `npgm.torch.auto_scale.KEYS`."""
    native: Any = None
    """The tensors as the native module takes them, where it is called directly."""

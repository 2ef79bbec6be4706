"""How parameters may be spread over processes, where the tensors themselves do not tell."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from npgm.torch.options import has_norm, scope_of

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

    from npgm.torch.optimizer import NPGM

_MAKERS = {
    ("torch.distributed.optim.zero_redundancy_optimizer", "ZeroRedundancyOptimizer"),
    ("torch.distributed.optim.optimizer", "_LocalOptimizer"),
}


def process_group_of_caller(optimizer: NPGM) -> ProcessGroup | None:
    """Return the processes between which whoever makes the optimizer divides the parameters, if that is known.

    Those who divide them make the optimizer of each process with nothing but its part of the parameters, and say
    nothing of the others; hence the look at who calls.

    Raises:
        RuntimeError: if they cannot take the norm of a vector together, and there is one.
    """
    maker = _maker()
    if maker is None or not any(_is_joint(group) for group in optimizer.param_groups):
        return None
    if type(maker).__name__ == "_LocalOptimizer":
        raise RuntimeError(
            "DistributedOptimizer steps each worker's parameters by themselves, so that the norm of all of them cannot "
            "be known; use scope='tensor' or a separable reference function"
        )
    for group in optimizer.param_groups:
        if _is_joint(group) and scope_of(group) == "group":
            raise RuntimeError("scope='group' is not supported under ZeroRedundancyOptimizer; use 'global' or 'tensor'")
    result: ProcessGroup = maker.process_group
    return result


def _is_joint(group: dict[str, Any]) -> bool:
    """Whether a norm is of more than one tensor."""
    return (has_norm(group) and scope_of(group) != "tensor") or group["nonfinite"] == "skip"


def _maker() -> Any:
    frame = sys._getframe()
    while (frame := frame.f_back) is not None:  # type: ignore[assignment]
        maker = frame.f_locals.get("self")
        if (type(maker).__module__, type(maker).__name__) in _MAKERS:
            return maker
    return None

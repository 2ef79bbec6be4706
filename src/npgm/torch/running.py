"""Running means of squares that the parameters' states hold of their vectors, for ``scale="auto"`` and ``limit``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from npgm._common import optimizers
from npgm.torch import norms
from npgm.torch.groups import scope_of


@dataclass(frozen=True)
class Running:
    """One such mean: what a parameter's state holds of its vector, without dimensions.

    The parameters of one vector hold the same tensors.
    """

    rms: str
    """The key of the square root of the moving average of squares, from 0."""
    weight: str
    """That of the sum of the weights of that average."""
    number: Callable[[dict[str, Any]], float | None]
    """Of a group, what those of one vector have in common; None if there is no such mean."""

    @property
    def keys(self) -> tuple[str, str]:
        return self.rms, self.weight

    def new_state(self, parameter: Tensor) -> dict[str, Tensor]:
        """Return the state of a vector that begins with this parameter."""
        device = parameter.device
        return {key: torch.zeros((), dtype=norms.widest_dtype(device), device=device) for key in self.keys}

    def shared_state(
        self, state: dict[Any, dict[str, Tensor]], groups: Iterable[dict[str, Any]], group: dict[str, Any]
    ) -> Any:
        """Return the state that the vector of a group has already, or None; each tensor by itself shares none."""
        if (vector := self._vector(group)) is None:
            return None
        for other in groups:
            if self._vector(other) == vector:
                for parameter in other["params"]:
                    if self.rms in state.get(parameter, ()):
                        return {key: state[parameter][key] for key in self.keys}
        return None

    def join(self, state: dict[Any, dict[str, Tensor]], groups: Iterable[dict[str, Any]]) -> None:
        """Let the parameters of each vector hold the same tensors again, those that have seen most, after a loading."""
        vectors: dict[Any, list[Tensor]] = {}
        for group in groups:
            if (vector := self._vector(group)) is not None:
                vectors.setdefault(vector, []).extend(p for p in group["params"] if self.rms in state.get(p, ()))
        for parameters in vectors.values():
            if parameters:
                known = [p for p in parameters if not p.is_meta] or parameters[:1]
                longest = known[0] if len(known) == 1 else max(known, key=lambda p: float(state[p][self.weight]))
                for parameter in parameters:
                    state[parameter].update({key: state[longest][key] for key in self.keys})

    def _vector(self, group: dict[str, Any]) -> tuple[Any, ...] | None:
        """Return what the groups have in common whose parameters are one vector, followed as one."""
        if (number := self.number(group)) is None or (scope := scope_of(group)) == "tensor":
            return None
        lift, _, _ = group["reference"].partition("-")
        return lift, scope, id(group) if scope == "group" else 0, number


SCALE = Running("scale_rms", "scale_weight", lambda group: group["scale_decay"] if group["scale"] == "auto" else None)
LIMIT = Running("limit_rms", "limit_weight", lambda group: group["limit"])
ALL = (SCALE, LIMIT)
KEYS = tuple(key for running in ALL for key in running.keys)


def update_rms(
    size: Tensor, rms: Sequence[Tensor], weight: Sequence[Tensor], applies: Tensor | None, **numbers: float
) -> Tensor:
    """Take sizes into the running mean of each vector, if ``applies`` is not False, and return its root.

    Args:
        size: of each vector.
        rms, weight: their states, which change in place.
        applies: without dimensions.
        **numbers: those of `npgm._common.optimizers.update_rms`.
    """
    s, w = torch.stack(list(rms)), torch.stack(list(weight))
    mean: Tensor
    s, w, mean = optimizers.update_rms(
        torch, size, s, w, applies=True if applies is None else applies.to(size.device), **numbers
    )
    torch._foreach_copy_([*rms, *weight], [*s.unbind(), *w.unbind()])
    return mean

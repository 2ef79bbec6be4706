"""The options of a group as plain values, which operators, C++ and Triton take."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Rule(NamedTuple):
    """What the options of a group make of its steps, as plain values: what operators, C++ and Triton are told."""

    kernel: str
    """The key of φ's kernel; empty for one that is not npgm's own."""
    parameters: tuple[float, ...]
    """Of the kernel, in the order of its fields."""
    isotropic: bool
    per_tensor: bool
    """Whether each tensor has a norm of its own."""
    before: bool
    """Whether the momentum averages gradients, before the preconditioner."""
    scale: float
    """λ, 1 where a step is told another one."""
    momentum: float
    coupled_decay: float
    decoupled_decay: float
    maximize: bool

    def arguments(self) -> dict[str, Any]:
        """Return it as arguments of an operator, those that schedules change as one tensor, which a graph lets vary."""
        changing = (self.scale, self.momentum, self.coupled_decay, self.decoupled_decay)
        if torch.compiler.is_compiling():  # products, since a float by itself would be compiled in as a constant
            one = torch.ones((), dtype=torch.float64, device="cpu")
            numbers = torch.stack([value * one for value in changing])
        else:
            numbers = torch.tensor(changing, dtype=torch.float64, device="cpu")
        return {
            "numbers": numbers,
            "key": self.kernel,
            "parameters": list(self.parameters),
            "isotropic": self.isotropic,
            "per_tensor": self.per_tensor,
            "before": self.before,
            "maximize": self.maximize,
        }

    @staticmethod
    def of_arguments(numbers: Tensor, key: str, parameters: list[float], **constants: Any) -> Rule:
        """Return what `arguments` was called on."""
        scale, momentum, coupled, decoupled = numbers.tolist()
        decays = {"coupled_decay": coupled, "decoupled_decay": decoupled}
        return Rule(kernel=key, parameters=tuple(parameters), scale=scale, momentum=momentum, **decays, **constants)

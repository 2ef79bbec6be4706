"""What a problem with a nonsmooth or constrained part is, and the registry of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from npgm._common.array import Floats
from npgm._common.registry import Registry
from npgm.proximal import Proximable

registry: Registry[type[CompositeProblem]] = Registry("composite problem", __name__, "npgm.composites")
"""The problems f + g by name: ``registry[name](**parameters)`` builds one, and every parameter has a default."""

register = registry.register


class CompositeProblem(ABC):
    """f + g, with a smooth f and a g that has proximal steps.

    ``npgm.minimize(problem, problem.start, prox=problem.prox)`` minimises it. A point is a NumPy array of the shape
    of `start`, or has a further axis in front for several at once.
    """

    key: ClassVar[str]
    """The name under which the problem is registered."""
    formula: ClassVar[str]
    """f and g, for tables."""

    @property
    @abstractmethod
    def prox(self) -> Proximable:
        """g."""

    @property
    @abstractmethod
    def start(self) -> Floats:
        """A point of finite g to start from."""

    @abstractmethod
    def __call__(self, x: Floats) -> tuple[Any, Floats]:
        """Return f and ∇f."""

"""What a direction is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from npgm._array import Array, Namespace
from npgm.solvers.method import Point
from npgm.solvers.trial import Trial

State = Any
"""A tuple of arrays of shape (runs, ...)."""


@dataclass(frozen=True)
class Direction(ABC):
    """A map u = ∇φ*(∇f(x)); steps go along -u. Rows are independent runs, and no branch may depend on their values."""

    @property
    def curvature_at_zero(self) -> float:
        """The c with ∇²φ*(0) = c I for λ = 1."""
        return 1.0

    @abstractmethod
    def init(self, xp: Namespace, start: Point) -> State:
        """Return the state at the start."""

    @abstractmethod
    def at(self, xp: Namespace, here: Point, state: State) -> tuple[Array, Array]:
        """Return u, of shape (runs, n), and φ(u), of shape (runs, 1)."""

    def curvature(self, xp: Namespace, state: State) -> Array | float:
        """Return the c with ∇²φ*(0) = c I, of shape (runs, 1) or one for all."""
        return self.curvature_at_zero

    def value(self, xp: Namespace, v: Array, state: State) -> Array:
        """Return φ(v), of shape (runs, 1)."""
        raise NotImplementedError(f"{type(self).__name__} has no φ in closed form")

    def learn(self, xp: Namespace, trial: Trial, state: State) -> State:
        """Return the state after a step was tried, whether it was taken or not."""
        return state

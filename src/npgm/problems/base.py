"""What a problem with known constants is, and the registry of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from npgm._array import Array, Floats
from npgm._registry import enter
from npgm.references import Reference

registry: dict[str, type[Problem]] = {}
"""The problems by name: ``registry[name](**parameters)`` builds one, and every parameter has a default."""

P = TypeVar("P", bound="type[Problem]")


def register(problem: P) -> P:
    """Enter a problem class in the registry under its ``key``; use it as a decorator.

    Raises:
        ValueError: if another class holds the key already.
    """
    enter(registry, problem, "problem")
    return problem


@dataclass(frozen=True)
class Constants:
    """The constants of a problem relative to a reference function φ.

    Args:
        smoothness: the least L of the descent inequality (4), sup λ_max(∇²φ*(∇f) ∇²f).
        lipschitz: the Lipschitz constant of ∇φ*(∇f) (Assumption 2.5), sup ‖∇²φ*(∇f) ∇²f‖; None if not known.
        pl: the largest μ with φ(∇φ*(∇f)) >= μ (f - min f) (Definition 2.3); None if there is none, or it is not known.
    """

    smoothness: float
    lipschitz: float | None = None
    pl: float | None = None


class Problem(ABC):
    """A function with its gradient, minimum and constants in closed form; on arrays of any array API library.

    A point is an array of shape (n,), or (runs, n) for several at once; f has the shape without the last axis.
    """

    key: ClassVar[str]
    """The name under which the problem is registered."""
    formula: ClassVar[str]
    """f, for tables."""
    convex: ClassVar[bool]

    @property
    def minimiser(self) -> Floats | None:
        """A point of least value, None if there is none: by default the origin, of the shape of `start`."""
        return 0.0 * self.start

    @abstractmethod
    def __call__(self, x: Array) -> tuple[Array, Array]:
        """Return f and ∇f."""

    @abstractmethod
    def hvp(self, x: Array, d: Array) -> Array:
        """Return ∇²f(x) d."""

    @property
    @abstractmethod
    def start(self) -> Floats:
        """A point to start from, away from the minimisers."""

    @abstractmethod
    def minimum(self, n: int) -> float:
        """Return inf f over ℝⁿ."""

    @abstractmethod
    def constants(self, reference: Reference) -> Constants:
        """Return the constants relative to φ.

        Raises:
            ValueError: if they are not known for this φ.
        """

"""What a problem with known constants is, and the registry of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npgm._common import validate
from npgm._common.array import Array, Floats
from npgm._common.registry import Registry
from npgm.references import Reference, as_reference

registry: Registry[type[Problem]] = Registry("problem", __name__, "npgm.problems")
"""The problems by name: ``registry[name](**parameters)`` builds one, and every parameter has a default."""

register = registry.register


@dataclass(frozen=True)
class Constants:
    """The constants of a problem relative to a reference function φ.

    Args:
        smoothness: sup λ_max(∇²φ*(∇f) ∇²f), the least L of the descent inequality (4).
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
    least: ClassVar[float] = 0.0
    """inf f."""

    @property
    def minimiser(self) -> Floats | None:
        """A point of least value, or None if there is none; by default the origin, of the shape of `start`."""
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

    def minimum(self, n: int) -> float:
        """Return inf f over ℝⁿ."""
        del n
        return self.least

    @property
    def dimension(self) -> int | None:
        """The only n for which f is defined on ℝⁿ, None if every n works."""
        return None

    def constants(self, reference: Reference | str, n: int | None = None) -> Constants:
        """Return the constants relative to φ on ℝⁿ.

        Args:
            reference: φ, or its name.
            n: the number of variables; by default that of `start`.

        Raises:
            ValueError: if they are not known for this φ and n.
        """
        n = self.start.size if n is None else validate.count("n", n, least=1)
        if self.dimension not in (None, n):
            raise ValueError(f"{self!r} is a function of {self.dimension} variables, not of {n}")
        return self.constants_on(as_reference(reference), n)

    @abstractmethod
    def constants_on(self, reference: Reference, n: int) -> Constants:
        """Return the constants relative to φ on ℝⁿ, or raise a ValueError if they are not known."""


class StochasticProblem(Problem):
    """A problem with its own stochastic gradient, whose noise is known."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, x: Floats) -> Floats:
        """Return a stochastic gradient g(x), with E g(x) = ∇f(x), at x of shape (n,)."""

    @abstractmethod
    def noise(self, reference: Reference | str) -> float:
        """Return sup E φ(∇φ*(∇f(x)) - ∇φ*(g(x))), the σ² of Theorems 3.1 and 3.5.

        Raises:
            ValueError: if it is not known for this φ.
        """

"""What a stepsize rule is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from npgm._common import validate
from npgm._common.array import Array, Namespace
from npgm._common.registry import Registry
from npgm.solvers.point import Point, Trial
from npgm.solvers.preconditioned import Preconditioned

State = Any
"""A NamedTuple of arrays of shape (runs, ...), one of them ``lr``, the γ that the next step takes."""

registry: Registry[type[Stepsize]] = Registry("stepsize", __name__, "npgm.stepsizes")
"""The rules by the name that a method accepts as ``lr``."""

register = registry.register


@dataclass(frozen=True)
class Stepsize(ABC):
    """A rule for γ, and for which steps are taken, in p = -a u + b p', where p' is the last step taken.

    Rows are independent runs, and no branch may depend on their values.
    """

    key: ClassVar[str]
    """The name under which the rule is registered."""
    usual_momentum: ClassVar[float] = 0.0
    """The β of `npgm` with this rule where none is given."""

    @abstractmethod
    def init(self, xp: Namespace, start: Point, phi: Preconditioned, momentum: float) -> State:
        """Return the state before the first step."""

    @abstractmethod
    def coefficients(self, state: State, momentum: float) -> tuple[Array, Array]:
        """Return a and b, of shape (runs, 1)."""

    @abstractmethod
    def judge(
        self, xp: Namespace, trial: Trial, phi: Preconditioned, state: State, momentum: float
    ) -> tuple[Array, State]:
        """Return where the step is taken, boolean of shape (runs, 1), and the next state.

        Args:
            trial: the step.
            phi: φ for all runs.
            state: the state of the rule.
            momentum: β.
        """


def as_lr(value: Any) -> float | Stepsize:
    """Return a stepsize as a positive float or a rule.

    Raises:
        TypeError, ValueError: if it is neither.
    """
    if isinstance(value, Stepsize):
        return value
    if isinstance(value, str):
        return registry[validate.choice("lr", value, registry, hint=registry.hint)]()
    return validate.positive("lr", value)

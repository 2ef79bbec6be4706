"""What a solver is: a rule that takes one step from a point and its gradient."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, NamedTuple

from npgm._common import validate
from npgm._common.array import Array, Namespace
from npgm._common.registry import Registry
from npgm.kernels import Quadratic
from npgm.proximal import Box
from npgm.references import Isotropic, Reference
from npgm.solvers.point import Point
from npgm.solvers.preconditioned import Preconditioned, scale_at

State = Any

registry: Registry[type[Method]] = Registry("solver", __name__, "npgm.methods")
"""The solvers by the name that `npgm.minimize` accepts as ``method``."""

register = registry.register


class Algorithm1(NamedTuple):
    """Algorithm 1 of the paper, x ← x - γ m with m ← β m + (1-β) ∇φ*(∇f(x)): its γ, β and φ."""

    lr: float
    momentum: float
    reference: Reference


@dataclass(frozen=True)
class Method(ABC):
    """A first-order method whose fields are its options.

    A method must treat the rows of a `Point` independently, with no branch on their values.
    """

    key: ClassVar[str]
    """The name under which the solver is registered."""
    update: ClassVar[str]
    """One step as a formula, for tables."""

    smooth: ClassVar[bool] = True
    """Whether all that is minimised is f; False if there is a function with proximal steps beside it."""

    lr: Any
    """The stepsize γ, a float; or for some methods a rule, an `npgm.solvers.stepsizes.Stepsize`."""

    def __post_init__(self) -> None:
        validate.fields(self, lr=validate.positive)

    @property
    def stationarity_reference(self) -> Reference:
        """The φ of the stationarity measure φ(∇φ*(∇f)), with λ = 1 if each run has its own λ.

        ½‖·‖² for a method without a reference function.
        """
        return Isotropic(Quadratic())

    @property
    def scale_follows(self) -> bool:
        """Whether each run has its own λ, which its start determines."""
        return getattr(self, "scale", None) == "auto"

    def preconditioned(self, xp: Namespace, start: Point) -> Preconditioned:
        """Return φ for runs from ``start``."""
        phi = self.stationarity_reference
        return Preconditioned(phi, scale_at(xp, start, phi) if self.scale_follows else None)

    @property
    def sharpness_limit(self) -> float | None:
        """The λ_max(∇²f) above which a minimiser repels the method, by linearisation; None if it has no such limit."""
        return None

    @property
    def as_npgm(self) -> Algorithm1 | None:
        """The method as the paper's Algorithm 1, if it is that with one γ, so that its theorems apply."""
        return None

    def flattened(self, shape: tuple[int, ...]) -> Method:
        """Return the method for points of this shape, which it sees as rows; a spectral φ needs the shape."""
        del shape
        return self

    @abstractmethod
    def init(self, xp: Namespace, start: Point) -> State:
        """Return the state before the first step from ``start``."""

    @abstractmethod
    def step(self, xp: Namespace, here: Point, state: State) -> tuple[Array, State]:
        """Return the next point at which to evaluate the gradient, and the next state; change no argument."""

    @property
    def judges(self) -> bool:
        """Whether `judge` decides which steps are taken; otherwise all are."""
        return False

    def judge(self, xp: Namespace, here: Point, there: Point, state: State) -> tuple[Array, State]:
        """Return where the step from ``here`` to ``there`` is taken, and the next state; change no argument.

        Called after each `step` of a method that `judges`, with the value and the gradient at the point that it
        returned, which need not be finite. The first result is a boolean array of shape (runs, 1); a run where it is
        False stays where it is.
        """
        raise NotImplementedError

    @property
    def fixed_lr(self) -> float | None:
        """γ if all steps have the same, else None."""
        return self.lr if isinstance(self.lr, float) else None

    def stepsize(self, state: State) -> Array | float:
        """Return the γ of the last step, of shape (runs, 1) or one for all runs; NaN for a method without γ."""
        return float("nan") if self.fixed_lr is None else self.fixed_lr

    @classmethod
    def options(cls) -> dict[str, Any]:
        """Return the options and their defaults, `...` for an option without default."""
        return {f.name: ... if f.default is MISSING else f.default for f in fields(cls) if f.init}


def build(key: str, options: dict[str, Any]) -> Method:
    """Build the solver ``key``, with errors that name the option at fault and what is accepted."""
    cls = registry[validate.choice("method", key, registry, hint=registry.hint)]
    accepted = cls.options()
    for name in options:
        if name not in accepted:
            raise TypeError(f"method {key!r} has no option {name!r}; accepted: {', '.join(accepted)}")
    for name, default in accepted.items():
        if default is ... and name not in options:
            raise TypeError(f"method {key!r} needs the option {name!r}")
    return cls(**options)


def chosen(method: str | Method | None, options: dict[str, Any], box: Box | None = None) -> Method:
    """Return the method that is asked for.

    By default "proximal_lbfgs" for a ``prox``, or "proximal" if an option of that is given; else "npgm" for an ``lr``,
    and "auto" without. A ``box``, of bounds, is a ``prox``.
    """
    if box is not None:
        if method not in (None, "proximal_lbfgs", "proximal"):
            key = method.key if isinstance(method, Method) else method
            raise ValueError(f"method {key!r} takes no bounds; use 'proximal_lbfgs', the default with bounds")
        if "prox" in options:
            raise ValueError("bounds and prox exclude each other: give bounds, or all of g as prox")
        options = {**options, "prox": box}
    if not isinstance(method, Method):
        by_prox = "proximal" if options.keys() & {"lr", "momentum", "reference", "scale"} else "proximal_lbfgs"
        usual = by_prox if "prox" in options else "npgm" if "lr" in options else "auto"
        return build(method or usual, options)
    if options:
        raise TypeError(f"a Method object has its options already; {min(options)!r} is one too many")
    return method

"""What a solver is: a rule that takes one step from a point and its gradient."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from npgm import _validate
from npgm._array import Array, Namespace
from npgm._registry import Registry
from npgm.kernels import Quadratic
from npgm.references import Isotropic, Reference

if TYPE_CHECKING:
    from npgm.solvers.methods.npgm import NPGM

State = Any

registry: Registry[type[Method]] = Registry("solver", __name__, "npgm.methods")
"""The solvers by the name that `npgm.minimize` accepts as ``method``."""

M = TypeVar("M", bound="type[Method]")


def register(method: M) -> M:
    """Enter a solver class in the registry under its ``key``; use it as a decorator.

    Raises:
        ValueError: if another class holds the key already.
    """
    registry.enter(method.key, method)
    return method


@dataclass(frozen=True)
class Method(ABC):
    """A first-order method whose fields are its options.

    Points and gradients have shape (runs, n): one row for each independent run, whatever the shape that the user's
    function sees. A method must treat the rows independently, with no branch on their values.
    """

    key: ClassVar[str]
    """The name under which the solver is registered."""
    update: ClassVar[str]
    """One step as a formula, for tables."""

    lr: float
    """The stepsize γ."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lr", _validate.positive("lr", self.lr))

    @property
    def measure(self) -> Reference:
        """The φ of the stationarity measure φ(∇φ*(∇f)): ½‖∇f‖² for a method without a reference function."""
        return Isotropic(Quadratic())

    @property
    def sharpness_limit(self) -> float | None:
        """The λ_max(∇²f) above which a minimiser repels the method, by linearisation; None if it has no such limit."""
        return None

    @property
    def as_npgm(self) -> NPGM | None:
        """The same method as an ``npgm``, Algorithm 1 of the paper, if it is one: the theorems speak of no other."""
        return None

    def flattened(self, shape: tuple[int, ...]) -> Method:
        """Return the method for points of this shape, which it sees as rows: a spectral φ needs to know it."""
        del shape
        return self

    @abstractmethod
    def init(self, xp: Namespace, x: Array) -> State:
        """Return the state before the first step from ``x``."""

    @abstractmethod
    def step(self, xp: Namespace, x: Array, grad: Array, state: State) -> tuple[Array, State]:
        """Return the next point at which the gradient is wanted, and the next state; change no argument."""

    @classmethod
    def options(cls) -> dict[str, Any]:
        """Return the options and their defaults, `...` where there is none."""
        return {f.name: ... if f.default is MISSING else f.default for f in fields(cls)}


def heavy_ball(x: Array, u: Array, m: Array, lr: float, momentum: float) -> tuple[Array, Array]:
    """Return x - γ m' and m' = β m + (1-β) u."""
    if momentum:
        # augmented assignments to new arrays save an allocation where arrays can change, and are sums where not
        m = momentum * m
        m += (1.0 - momentum) * u
    else:
        m = u
    step = -lr * m
    step += x
    return step, m


def heavy_ball_limit(lr: float, momentum: float) -> float:
    """Return the curvature up to which m ← β m + (1-β) g, x ← x - γ m is stable: 2(1+β)/((1-β)γ)."""
    return 2.0 * (1.0 + momentum) / ((1.0 - momentum) * lr)


def build(key: str, options: dict[str, Any]) -> Method:
    """Build the solver ``key``, with errors that name the option at fault and what is accepted."""
    cls = registry[_validate.choice("method", key, registry)]
    accepted = cls.options()
    for name in options:
        if name not in accepted:
            raise TypeError(f"method {key!r} has no option {name!r}; accepted: {', '.join(accepted)}")
    for name, default in accepted.items():
        if default is ... and name not in options:
            raise TypeError(f"method {key!r} needs the option {name!r}")
    return cls(**options)

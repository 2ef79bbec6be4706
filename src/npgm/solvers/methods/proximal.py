"""The anisotropic proximal gradient method, with and without momentum."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from npgm._common import validate
from npgm._common.array import Array, Namespace, select, to_host
from npgm.kernels import Cosh
from npgm.references import Isotropic, Reference, Separable
from npgm.solvers.composite_method import CompositeMethod
from npgm.solvers.method import register
from npgm.solvers.methods.npgm import chosen_reference, suited_momentum
from npgm.solvers.point import Point, Trial
from npgm.solvers.preconditioned import Preconditioned
from npgm.solvers.stepsizes import Stepsize, as_lr
from npgm.solvers.stepsizes.backtracking import Backtracking


class State(NamedTuple):
    """λ, the state of the rule, the last step taken, and g; and what `Proximal.step` found out about a step."""

    scale: Array | None
    rule: Any
    last: Array
    lr: Array
    """The γ of the step that is being tried."""
    g: Array
    """g at the present points."""
    step: Array
    """x⁺ - x."""
    direction: Array
    """u."""
    decrease: Array
    """What a step without momentum takes off a bound of f + g, over γ: φ(u) where there is no g."""
    next_g: Array
    subgradient: Array
    """-∇φ((x⁺ - y)/γ), a subgradient of g at x⁺."""


@register
@dataclass(frozen=True, kw_only=True)
class Proximal(CompositeMethod):
    """x⁺ = argmin g + γ φ((· - y)/γ) with y = x - γ ∇φ*(∇f(x)) + β (x - x⁻), to minimise f + g.

    At β = 0 this is the anisotropic proximal gradient method of Laude and Patrinos (2022, arXiv 2210.15531): every step
    with γ <= 1/L decreases f + g. With momentum and φ = ½‖·‖² it is iPiano (Ochs, Chen, Brox and Pock, 2014). For
    another φ, a fixed γ and β > 0, nothing is proved.

    Args:
        prox: g, a function of `npgm.proximal` or your own, finite at the start.
        lr: a rule: ``"auto"`` follows the local curvature, ``"backtracking"`` tests the descent inequality, without
            momentum; or a number. As for `npgm`, γ is 1-β times this number, so lr <= 1/L works for any β.
        momentum: β in [0, 1); None for the default of ``lr``: 0.9 for ``"auto"``, else 0.
        reference: φ, or its name; None for cosh, separable if g is, since most such steps have a closed form, else
            isotropic. Hard clipping is refused: with it, runs end where f + g is not least.
        scale: replaces the λ of φ. "auto" is a tenth of ‖∇f(x⁰)‖ in each run, or with a separable φ, of the root mean
            square of its entries. None keeps the λ of φ; but with a rule, λ = 1, the default of every φ, means "auto".
    """

    key = "proximal"
    update = "y = x - γ ∇φ*(∇f(x)) + β (x - x⁻);  x ← argmin g + γ φ((· - y)/γ)"

    lr: Any = "auto"
    momentum: float = None  # type: ignore[assignment]
    reference: Reference = None  # type: ignore[assignment]
    scale: float | str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.assign(self, lr=as_lr(self.lr))
        validate.assign(self, momentum=suited_momentum(self.momentum, self.lr))
        if self.momentum and isinstance(self.lr, Backtracking):
            raise ValueError(f"lr='backtracking' with prox needs momentum=0, not {self.momentum!r}")
        usual = Separable(Cosh()) if self.prox.separable else Isotropic(Cosh())
        follows = isinstance(self.lr, Stepsize)
        reference, scale = chosen_reference(self.reference, self.scale, usual, follows=follows)
        validate.assign(self, reference=reference, scale=scale)
        kernel = self.reference.kernel
        if not (kernel.full_domain or kernel.strongly_convex_c2):
            raise ValueError(f"reference must not clip, as ∇φ* has to tell gradients apart; not {self.reference!r}")

    @cached_property
    def rule(self) -> Stepsize:
        return self.lr if isinstance(self.lr, Stepsize) else _Constant(self.lr)

    @property
    def stationarity_reference(self) -> Reference:
        return self.reference.flattened(self.shape)

    def init(self, xp: Namespace, start: Point) -> State:
        g = self.value_at_start(xp, start.x)
        phi = self.preconditioned(xp, start)
        rule = self.rule.init(xp, start._replace(f=start.f + g), phi, self.momentum)
        none, zero = xp.zeros_like(start.x), xp.zeros_like(start.f)
        return State(phi.scale, rule, none, rule.lr, g, none, none, zero, g, none)

    def step(self, xp: Namespace, here: Point, state: State) -> tuple[Array, State]:
        phi = Preconditioned(self.stationarity_reference, state.scale)
        u = phi(here.grad)
        lr, momentum = self.rule.coefficients(state.rule, self.momentum)
        base = here.x - lr * u
        y = base + momentum * state.last
        x = self._proximal_point(xp, y, lr, phi.scale)
        g = self.value(xp, x)
        state = state._replace(step=x - here.x, direction=u, next_g=g, subgradient=-phi.gradient((x - y) / lr))
        if isinstance(self.lr, float):
            return x, state
        z = x if self.momentum == 0.0 else self._proximal_point(xp, base, lr, phi.scale)
        at_z = g if self.momentum == 0.0 else self.value(xp, z)
        before, after = (phi.value(v)[:, None] for v in (u, u + (z - here.x) / lr))
        rounding = 16.0 * float(xp.finfo(x.dtype).eps) * (before + (xp.abs(state.g) + xp.abs(at_z)) / lr)
        decrease = (state.g - at_z) / lr + before - after - rounding
        return x, state._replace(lr=state.rule.lr, decrease=xp.clip(decrease, 0.0, None))

    @property
    def judges(self) -> bool:
        return True

    def judge(self, xp: Namespace, here: Point, there: Point, state: State) -> tuple[Array, State]:
        trial = Trial.of(
            xp, here._replace(f=here.f + state.g), there._replace(f=there.f + state.next_g), state.step,
            state.direction, state.decrease,
        )  # fmt: skip
        phi = Preconditioned(self.stationarity_reference, state.scale)
        taken, rule = self.rule.judge(xp, trial, phi, state.rule, self.momentum)
        return taken, state._replace(
            rule=rule, last=select(xp, taken, state.step, state.last), g=xp.where(taken, state.next_g, state.g)
        )

    def stepsize(self, state: State) -> Array | float:
        return self.lr if isinstance(self.lr, float) else state.lr

    def _proximal_point(self, xp: Namespace, y: Array, lr: Array, scale: Array | None) -> Array:
        """Return argmin g + γ φ((· - y)/γ) of each run."""
        points, lr = self.points(xp, y), self.each(xp, lr)
        if scale is None:
            return self._step(xp, self.reference, points, lr)
        return xp.concat(
            [
                self._step(xp, self.reference.with_scale(float(own)), points[i : i + 1, ...], lr[i : i + 1, ...])
                for i, own in enumerate(to_host(scale[:, 0]))
            ]
        )

    def _step(self, xp: Namespace, phi: Reference, points: Array, lr: Array) -> Array:
        return self.rows(xp, self.prox.step(phi, points, lr, self.axes), points)


class _Fixed(NamedTuple):
    lr: Array
    momentum: Array


@dataclass(frozen=True)
class _Constant(Stepsize):
    """A number as a rule: every step is taken."""

    key: ClassVar[str] = "constant"

    lr: float

    def init(self, xp: Namespace, start: Point, phi: Preconditioned, momentum: float) -> _Fixed:
        return _Fixed(xp.full_like(start.f, self.lr), xp.full_like(start.f, momentum))

    def coefficients(self, state: _Fixed, momentum: float) -> tuple[Array, Array]:
        return (1.0 - momentum) * state.lr, state.momentum

    def judge(
        self, xp: Namespace, trial: Trial, phi: Preconditioned, state: _Fixed, momentum: float
    ) -> tuple[Array, _Fixed]:
        return xp.ones_like(trial.here.f) > 0.0, state

"""Gradient descent with clipping, momentum and their mixture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from npgm._common import validate
from npgm._common.array import Array, Namespace, row_norms
from npgm.kernels import Huber
from npgm.references import Isotropic, Reference
from npgm.solvers.method import Algorithm1, Method, register
from npgm.solvers.point import Point


@register
@dataclass(frozen=True)
class ClippedGD(Method):
    """x ← x - ν min(η, γ/‖m‖) m - (1-ν) min(η, γ/‖∇f(x)‖) ∇f(x), with m ← β m + (1-β) ∇f(x), from m = 0.

    Zhang, Jin, Fang and Wang, Improved analysis of clipping algorithms for non-convex optimization, NeurIPS 2020,
    Algorithm 1; at ν = 0 it is gradient descent with the gradient clipped to the norm γ/η, that is, npgm with the
    kernel huber. For momentum of clipped gradients, use npgm with this kernel.

    Args:
        lr: η > 0, the stepsize of an unclipped step.
        max_step: γ > 0, the length to which a step is clipped.
        momentum: β in [0, 1).
        nu: ν in [0, 1], the weight of the momentum.
    """

    key = "clipped_gd"
    update = "x ← x - ν min(η, γ/‖m‖) m - (1-ν) min(η, γ/‖∇f‖) ∇f"

    max_step: float = 1.0
    momentum: float = 0.0
    nu: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        nu = partial(validate.fraction, closed=True)
        validate.fields(self, max_step=validate.positive, momentum=validate.fraction, nu=nu)

    @property
    def as_npgm(self) -> Algorithm1 | None:
        clips_gradients = self.nu == 0.0 or self.momentum == 0.0
        return Algorithm1(self.lr, 0.0, Isotropic(Huber(self.max_step / self.lr))) if clips_gradients else None

    @property
    def stationarity_reference(self) -> Reference:
        return super().stationarity_reference if self.as_npgm is None else self.as_npgm.reference

    def init(self, xp: Namespace, start: Point) -> Array:
        return xp.zeros_like(start.x)

    def step(self, xp: Namespace, here: Point, state: Array) -> tuple[Array, Array]:
        x, grad = here.x, here.grad
        m = self.momentum * state + (1.0 - self.momentum) * grad
        moved = self.nu * self._clip(xp, m) if self.nu else 0.0
        return x - moved - (1.0 - self.nu) * self._clip(xp, grad), m

    def _clip(self, xp: Namespace, v: Array) -> Array:
        length = row_norms(xp, v)
        # η min(1, γ/(η‖v‖)) without a division by zero
        return v * (self.lr * (self.max_step / xp.clip(self.lr * length, self.max_step, None)))

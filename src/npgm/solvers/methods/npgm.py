"""The nonlinearly preconditioned gradient method, with and without momentum."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from npgm import _validate
from npgm._array import Array, Namespace
from npgm.kernels import Cosh, Quadratic
from npgm.references import Isotropic, Reference, as_reference
from npgm.solvers.method import Method, heavy_ball, heavy_ball_limit, register


@register
@dataclass(frozen=True)
class NPGM(Method):
    """x ← x - γ m with m ← β m + (1-β) ∇φ*(∇f(x)), from m = 0: Algorithm 1 of the paper; at β = 0 its base method (1).

    With ``momentum_order="before"``, momentum comes before the preconditioner: m ← β m + (1-β) ∇f(x), x ← x - γ ∇φ*(m),
    the order of the works that Remark 2.1 of the paper refers to (normalised gradient descent with momentum, Muon).
    None of the paper's theorems is about it.

    Args:
        lr: γ > 0.
        momentum: β in [0, 1). For β < 1/2 and γ <= 1/L, Theorem 2.2 guarantees convergence; for a larger β and an
            isotropic φ, Theorem 2.7 asks for γ = (1-β)²/L.
        reference: φ, or the name of one with λ = 1. A spectral φ sees ``x0`` as a matrix, `npgm.Blocks` as several.
        momentum_order: ``"after"`` or ``"before"`` the preconditioner.
    """

    key = "npgm"
    update = "m ← β m + (1-β) ∇φ*(∇f(x));  x ← x - γ m"

    momentum: float = 0.0
    reference: Reference = Isotropic(Cosh())
    momentum_order: str = "after"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "momentum", _validate.fraction("momentum", self.momentum))
        object.__setattr__(self, "reference", as_reference(self.reference))
        _validate.choice("momentum_order", self.momentum_order, ("after", "before"))

    @property
    def as_npgm(self) -> NPGM | None:
        if self.momentum_order == "after":
            return self
        commutes = self.momentum == 0.0 or self.reference.kernel == Quadratic()
        return replace(self, momentum_order="after") if commutes else None

    @property
    def measure(self) -> Reference:
        return self.reference

    @property
    def sharpness_limit(self) -> float:
        curvature = self.reference.curvature_at_zero
        return heavy_ball_limit(self.lr, self.momentum) / curvature if curvature > 0.0 else math.inf

    def flattened(self, shape: tuple[int, ...]) -> NPGM:
        return replace(self, reference=self.reference.flattened(shape))

    def init(self, xp: Namespace, x: Array) -> Array:
        return xp.zeros_like(x)

    def step(self, xp: Namespace, x: Array, grad: Array, state: Array) -> tuple[Array, Array]:
        if self.momentum_order == "after":
            u = self.reference.precondition(grad, axis=-1)
            return heavy_ball(x, u, state, self.lr, self.momentum)
        m = self.momentum * state + (1.0 - self.momentum) * grad
        return x - self.lr * self.reference.precondition(m, axis=-1), m

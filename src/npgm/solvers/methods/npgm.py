"""The nonlinearly preconditioned gradient method, with and without momentum."""

from __future__ import annotations

from dataclasses import dataclass

from npgm import _validate
from npgm._array import Array, Namespace
from npgm.kernels import Cosh
from npgm.references import Isotropic, Reference
from npgm.solvers.method import Method, heavy_ball, heavy_ball_limit, register


@register
@dataclass(frozen=True)
class NPGM(Method):
    """x ← x - γ m with m ← β m + (1-β) ∇φ*(∇f(x)), from m = 0: Algorithm 1 of the paper; at β = 0 its base method (2).

    Args:
        lr: γ > 0.
        momentum: β in [0, 1). For β < 1/2 and γ <= 1/L, Theorem 2.2 guarantees convergence; for a larger β and an
            isotropic φ, Theorem 2.7 asks for γ = (1-β)²/L.
        reference: φ.
    """

    key = "npgm"
    update = "m ← β m + (1-β) ∇φ*(∇f(x));  x ← x - γ m"

    momentum: float = 0.0
    reference: Reference = Isotropic(Cosh())

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "momentum", _validate.fraction("momentum", self.momentum))
        if not isinstance(self.reference, Reference):
            raise TypeError(
                f"reference must be a reference function such as npgm.Isotropic(npgm.Cosh()), not {self.reference!r}"
            )

    @property
    def measure(self) -> Reference:
        return self.reference

    @property
    def sharpness_limit(self) -> float:
        return heavy_ball_limit(self.lr, self.momentum) * self.reference.mu  # ∇²φ*(0) = 1/μ

    def init(self, xp: Namespace, x: Array) -> Array:
        return xp.zeros_like(x)

    def step(self, xp: Namespace, x: Array, grad: Array, state: Array) -> tuple[Array, Array]:
        u = self.reference.precondition(grad, axis=-1)
        return heavy_ball(x, u, state, self.lr, self.momentum)

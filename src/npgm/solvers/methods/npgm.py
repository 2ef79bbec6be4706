"""The nonlinearly preconditioned gradient method, with and without momentum."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from npgm import _validate
from npgm._array import Array, Namespace
from npgm.kernels import Cosh, Quadratic
from npgm.references import Isotropic, Reference, as_reference
from npgm.solvers.directions import Preconditioned
from npgm.solvers.heavy_ball import HeavyBall
from npgm.solvers.method import Point, register
from npgm.solvers.stepsizes import Stepsize
from npgm.solvers.stepsizes.edge_of_stability import EdgeOfStability


@register
@dataclass(frozen=True)
class NPGM(HeavyBall):
    """x ← x - γ m with m ← β m + (1-β) ∇φ*(∇f(x)), from m = 0: Algorithm 1 of the paper; at β = 0 its base method (1).

    With ``momentum_order="before"``, momentum comes before the preconditioner: m ← β m + (1-β) ∇f(x), x ← x - γ ∇φ*(m),
    the order of the works that Remark 2.1 of the paper refers to (normalised gradient descent with momentum, Muon).
    None of the paper's theorems is about it; Theorems A and A' of docs/theory.md are.

    Args:
        lr: γ > 0, or a rule: ``"auto"`` follows the local curvature, ``"backtracking"`` tests the descent inequality;
            see `npgm.solvers.stepsizes`.
        momentum: β in [0, 1); None for what suits ``lr``: 0.9 for ``"auto"``, else 0. For β < 1/2 and γ <= 1/L, Theorem
            2.2 guarantees convergence; for a larger β and an isotropic φ, Theorem 2.7 asks for γ = (1-β)²/L.
        reference: φ, or the name of one with λ = 1. A spectral φ sees ``x0`` as a matrix, `npgm.Blocks` as several.
        scale: a λ in place of that of φ; ``"auto"`` for a tenth of ‖∇f(x⁰)‖ in each run, or with a separable φ, of the
            root mean square of its entries. None leaves φ as it is, and means "auto" for ``lr="auto"`` without a φ.
        momentum_order: ``"after"`` or ``"before"`` the preconditioner.
    """

    key = "npgm"
    update = "m ← β m + (1-β) ∇φ*(∇f(x));  x ← x - γ m"

    momentum: float = None  # type: ignore[assignment]
    reference: Reference = Isotropic(Cosh())
    scale: float | str | None = None
    momentum_order: str = "after"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "momentum", suited_momentum(self.momentum, self.lr))
        if self.scale is None and isinstance(self.lr, EdgeOfStability) and self.reference is NPGM.reference:
            object.__setattr__(self, "scale", "auto")
        object.__setattr__(self, "reference", scaled(self.reference, self.scale))
        _validate.choice("momentum_order", self.momentum_order, ("after", "before"))
        if self.momentum_order == "before" and not isinstance(self.lr, float):
            raise ValueError(f"momentum_order='before' needs a number for lr, not {self.lr!r}")
        if self.momentum_order == "before":
            object.__setattr__(self, "update", "m ← β m + (1-β) ∇f(x);  x ← x - γ ∇φ*(m)")

    @property
    def direction(self) -> Preconditioned:
        return Preconditioned(self.reference, self.scale == "auto")

    @property
    def as_npgm(self) -> NPGM | None:
        if not isinstance(self.lr, float) or self.scale == "auto":
            return None
        if self.momentum_order == "after":
            return self
        commutes = self.momentum == 0.0 or self.reference.kernel == Quadratic()
        return replace(self, momentum_order="after") if commutes else None

    def flattened(self, shape: tuple[int, ...]) -> NPGM:
        return replace(self, reference=self.reference.flattened(shape))

    def step(self, xp: Namespace, here: Point, state: Any) -> tuple[Array, Any]:
        if self.momentum_order == "after":
            return super().step(xp, here, state)
        along, m = state
        m = self.momentum * m + (1.0 - self.momentum) * here.grad
        return here.x - self.lr * self.direction(xp, m, along), (along, m)


def suited_momentum(momentum: float | None, lr: float | Stepsize) -> float:
    """Return the option ``momentum``, where it is None what suits the stepsize.

    Raises:
        TypeError, ValueError: if it is not in [0, 1).
    """
    usual = lr.usual_momentum if isinstance(lr, Stepsize) else 0.0
    return _validate.fraction("momentum", usual if momentum is None else momentum)


def scaled(reference: Reference | str, scale: float | str | None) -> Reference:
    """Return the φ of the options ``reference`` and ``scale``; an "auto" scale is one of each run's own.

    Raises:
        TypeError, ValueError: if ``reference`` is not a φ, or ``scale`` none of a positive number, "auto" and None.
    """
    phi = as_reference(reference)
    if isinstance(scale, str):
        _validate.choice("scale", scale, ("auto",))
        return phi
    return phi if scale is None else replace(phi, scale=_validate.positive("scale", scale))

"""The nonlinearly preconditioned gradient method, with and without momentum."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from npgm._common import validate
from npgm._common.array import Array, Namespace
from npgm.kernels import Cosh, Quadratic
from npgm.references import Isotropic, Reference, as_reference
from npgm.solvers.heavy_ball import HeavyBall
from npgm.solvers.method import Algorithm1, register
from npgm.solvers.point import Point
from npgm.solvers.preconditioned import Preconditioned
from npgm.solvers.stepsizes import Stepsize
from npgm.solvers.stepsizes.edge_of_stability import EdgeOfStability


@register
@dataclass(frozen=True)
class NPGM(HeavyBall):
    """x ← x - γ m with m ← β m + (1-β) ∇φ*(∇f(x)), from m = 0: Algorithm 1 of the paper; at β = 0 its base method (1).

    With ``momentum_order="before"``, momentum comes before the preconditioner: m ← β m + (1-β) ∇f(x), x ← x - γ ∇φ*(m),
    the order of the works that Remark 2.1 of the paper refers to (normalised gradient descent with momentum, Muon).
    None of the paper's theorems covers it; Theorems A and A' of docs/theory.md do.

    Args:
        lr: γ > 0, or a rule: ``"auto"`` follows the local curvature, ``"backtracking"`` tests the descent inequality;
            see `npgm.solvers.stepsizes`.
        momentum: β in [0, 1); None for the default of ``lr``: 0.9 for ``"auto"``, else 0. For β < 1/2 and γ <= 1/L,
            Theorem 2.2 guarantees convergence; for a larger β and an isotropic φ, Theorem 2.7 requires γ = (1-β)²/L.
        reference: φ, or the name of one with λ = 1; None for the isotropic cosh. A spectral φ reads ``x0`` as a matrix,
            `npgm.Blocks` as several.
        scale: replaces the λ of φ. ``"auto"`` is a tenth of ‖∇f(x⁰)‖ in each run, or with a separable φ, of the root
            mean square of its entries. None keeps the λ of φ; but with ``lr="auto"``, λ = 1, the default of every φ,
            means "auto".
        momentum_order: ``"after"`` or ``"before"`` the preconditioner.
    """

    key = "npgm"
    update = "m ← β m + (1-β) ∇φ*(∇f(x));  x ← x - γ m"

    momentum: float = None  # type: ignore[assignment]
    reference: Reference = None  # type: ignore[assignment]
    scale: float | str | None = None
    momentum_order: str = "after"

    def __post_init__(self) -> None:
        super().__post_init__()
        follows = isinstance(self.lr, EdgeOfStability)
        reference, scale = chosen_reference(self.reference, self.scale, Isotropic(Cosh()), follows=follows)
        momentum = suited_momentum(self.momentum, self.lr)
        validate.assign(self, momentum=momentum, reference=reference, scale=scale)
        validate.choice("momentum_order", self.momentum_order, ("after", "before"))
        if self.momentum_order == "before" and not isinstance(self.lr, float):
            raise ValueError(f"momentum_order='before' needs a number for lr, not {self.lr!r}")
        if self.momentum_order == "before":
            validate.assign(self, update="m ← β m + (1-β) ∇f(x);  x ← x - γ ∇φ*(m)")

    @property
    def stationarity_reference(self) -> Reference:
        return self.reference

    @property
    def as_npgm(self) -> Algorithm1 | None:
        commutes = self.momentum_order == "after" or self.momentum == 0.0 or self.reference.kernel == Quadratic()
        return super().as_npgm if commutes else None

    def flattened(self, shape: tuple[int, ...]) -> NPGM:
        reference = self.reference.flattened(shape)
        return self if reference is self.reference else replace(self, reference=reference)

    def step(self, xp: Namespace, here: Point, state: Any) -> tuple[Array, Any]:
        if self.momentum_order == "after":
            return super().step(xp, here, state)
        scale, m = state
        m = self.momentum * m + (1.0 - self.momentum) * here.grad
        return here.x - self.lr * Preconditioned(self.stationarity_reference, scale)(m), (scale, m)


def suited_momentum(momentum: float | None, lr: float | Stepsize) -> float:
    """Return the option ``momentum``, where it is None what suits the stepsize.

    Raises:
        TypeError, ValueError: if it is not in [0, 1).
    """
    usual = lr.usual_momentum if isinstance(lr, Stepsize) else 0.0
    return validate.fraction("momentum", usual if momentum is None else momentum)


def chosen_reference(
    reference: Reference | str | None, scale: float | str | None, usual: Reference, *, follows: bool
) -> tuple[Reference, float | str | None]:
    """Return the φ and the λ of the options ``reference`` and ``scale``; with an "auto" scale φ has λ = 1.

    Args:
        reference, scale: as given.
        usual: φ where none is given.
        follows: whether λ follows the gradients where none is given.

    Raises:
        TypeError, ValueError: if ``reference`` is not a φ, or ``scale`` none of a positive number, "auto" and None.
    """
    phi = usual if reference is None else as_reference(reference)
    if scale is None:
        return phi, "auto" if follows and phi.scale == 1.0 else None
    if isinstance(scale, str):
        return phi.with_scale(1.0), validate.choice("scale", scale, ("auto",))
    return phi.with_scale(scale), scale

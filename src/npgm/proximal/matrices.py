"""Functions of the singular values of a matrix."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial

from npgm._common import validate
from npgm._common.array import Array, Axis, promote
from npgm.proximal.base import Proximable, by_singular_values, indicator, per_point
from npgm.proximal.entries import L1, Box
from npgm.proximal.simplex import L1Ball
from npgm.references import Isotropic, Reference, Separable, Spectral


class SingularValues(Proximable):
    """A symmetric function of the singular values σ: by Mirsky's inequality its steps act on these.

    A point is a matrix, so ``axis`` names two axes. An isotropic φ sees the vector σ, a spectral φ each of its entries.
    """

    @property
    @abstractmethod
    def of_values(self) -> Proximable:
        """The function of the vector σ."""

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        _, z, restore = promote(z)
        s, _ = by_singular_values(z, axis)
        return restore(self.of_values(s, -1))

    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        s, rebuilt = by_singular_values(y, axis)
        return restore(rebuilt(self.of_values.prox(s, per_point(xp, t, y, axis), -1)))

    def step(self, phi: Reference, y: Array, lr: float | Array, axis: Axis = None) -> Array:
        if not isinstance(phi, Isotropic | Spectral):
            return super().step(phi, y, lr, axis)
        xp, y, restore = promote(y)
        s, rebuilt = by_singular_values(y, axis)
        of_values = phi if isinstance(phi, Isotropic) else Separable(phi.kernel, phi.scale)
        return restore(rebuilt(self.of_values.step(of_values, s, per_point(xp, lr, y, axis), -1)))


@dataclass(frozen=True)
class NuclearNorm(SingularValues):
    """g(Z) = τ Σσᵢ. A spectral φ soft-thresholds the singular values at γ h*'(τ/λ).

    Args:
        weight: τ > 0.
    """

    weight: float = 1.0

    def __post_init__(self) -> None:
        validate.fields(self, weight=validate.positive)

    @property
    def of_values(self) -> L1:
        return L1(self.weight)


@dataclass(frozen=True)
class SpectralBall(SingularValues):
    """g(Z) = 0 for σᵢ ≤ ρ, +∞ elsewhere: the singular values are cut off at ρ.

    Args:
        radius: ρ > 0.
    """

    radius: float = 1.0

    def __post_init__(self) -> None:
        validate.fields(self, radius=validate.positive)

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        xp, z, restore = promote(z)
        s, _ = by_singular_values(z, axis)
        return restore(indicator(xp, xp.max(s, axis=-1, keepdims=True) - self.radius, self.radius, -1))

    @property
    def of_values(self) -> Box:
        return Box(-self.radius, self.radius)


@dataclass(frozen=True)
class NuclearBall(SingularValues):
    """g(Z) = 0 for Σσᵢ ≤ ρ, +∞ elsewhere.

    Args:
        radius: ρ > 0.
    """

    radius: float = 1.0

    def __post_init__(self) -> None:
        validate.fields(self, radius=validate.positive)

    @property
    def of_values(self) -> L1Ball:
        return L1Ball(self.radius)


@dataclass(frozen=True)
class Rank(SingularValues):
    """g(Z) = 0 for matrices of rank at most r, +∞ elsewhere: the r largest singular values are kept.

    This g is not convex. A step is a global minimiser of its own problem, but a method may end at a point that does not
    minimise f + g.

    Args:
        rank: r ≥ 1.
    """

    rank: int = 1

    def __post_init__(self) -> None:
        validate.fields(self, rank=partial(validate.count, least=1))

    @property
    def of_values(self) -> _Largest:
        return _Largest(self.rank)


@dataclass(frozen=True)
class _Largest(Proximable):
    """0 for vectors with at most ``number`` entries that are not zero; of those in decreasing order only."""

    number: int

    separable = True  # as what a separable φ does with ordered entries is the projection, too
    indicator = True

    def __call__(self, z: Array, axis: Axis = None) -> Array:
        xp, z, restore = promote(z)
        return restore(indicator(xp, z[..., self.number :], xp.max(z, axis=-1, keepdims=True), -1))

    def prox(self, y: Array, t: float | Array, axis: Axis = None) -> Array:
        xp, y, restore = promote(y)
        return restore(xp.concat([y[..., : self.number], xp.zeros_like(y[..., self.number :])], axis=-1))

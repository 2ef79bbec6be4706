"""Functions of several variables with constants in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npgm._common import validate
from npgm._common.array import Array, Floats, as_real_array
from npgm.kernels import Cosh
from npgm.problems.base import Constants, Problem, StochasticProblem, register
from npgm.references import Isotropic, Reference, Separable, as_reference


@register
@dataclass(frozen=True)
class ScaledReference(Problem):
    """f(x) = φ(c (x - b)) / c, the case of equality: the step γ = 1/c reaches the minimiser b at once.

    ∇f = ∇φ(c (x - b)), hence ∇φ*(∇f) = c (x - b) and ∇²φ*(∇f) ∇²f = c I: both constants are c, and
    φ(∇φ*(∇f)) = c f, so that μ = c.

    Args:
        reference: φ, of full domain.
        c: the constant.
        b: the minimiser, a tuple of floats.
    """

    key = "scaled-reference"
    formula = "φ(c (x - b)) / c"
    convex = True

    reference: Reference = Isotropic(Cosh())
    c: float = 2.0
    b: tuple[float, ...] = (1.0, -2.0, 0.5)

    def __post_init__(self) -> None:
        validate.fields(self, c=validate.positive)
        if not self.reference.kernel.full_domain:
            raise ValueError(f"reference must have a full domain, or f is not finite; not {self.reference!r}")

    def __call__(self, x: Array) -> tuple[Array, Array]:
        xp, x = as_real_array(x)
        z = self.c * (x - xp.asarray(self.b, dtype=x.dtype))
        return self.reference(z, axis=-1) / self.c, self.reference.gradient(z, axis=-1)

    def hvp(self, x: Array, d: Array) -> Array:
        # ∇²φ(z) is the inverse of ∇²φ*(∇φ(z)), which has the eigenvalue of the radial direction and one other
        xp, x = as_real_array(x)
        y = self(x)[1]
        if isinstance(self.reference, Separable):
            return self.c * d / self.reference.conjugate_hvp(y, xp.ones_like(y), axis=-1)
        norm = xp.sqrt(xp.sum(y * y, axis=-1, keepdims=True))
        direction = y / xp.where(norm == 0, xp.ones_like(norm), norm)
        radial = xp.sum(direction * d, axis=-1, keepdims=True) * direction
        scale, kernel = self.reference.scale, self.reference.kernel
        return (
            self.c * scale * (radial / kernel.curvature(norm / scale) + (d - radial) / kernel.rescaling(norm / scale))
        )

    @property
    def start(self) -> Floats:
        return np.asarray(self.b) + 2.0

    @property
    def dimension(self) -> int:
        return len(self.b)

    @property
    def minimiser(self) -> Floats:
        return np.asarray(self.b)

    def constants_on(self, reference: Reference, n: int) -> Constants:
        if reference != self.reference:
            raise ValueError(f"the constants of {self.key} are known relative to {self.reference!r}, not {reference!r}")
        return Constants(self.c, self.c, self.c)


@register
@dataclass(frozen=True)
class QuadraticForm(Problem):
    """f(x) = ½ Σ a_i x_i², with a_i > 0, relative to any strongly convex φ: L = max a_i / μ_φ.

    ∇²φ* <= I/μ_φ, with equality at 0 for a kernel whose h'' is least at 0, so that both constants are attained at the
    minimiser. Relative to a φ whose measure grows more slowly than a square, such as cosh, no PL constant holds
    globally.

    Args:
        a: the eigenvalues.
    """

    key = "quadratic"
    formula = "½ Σ a x²"
    convex = True

    a: tuple[float, ...] = (1.0, 5.0, 20.0)

    def __post_init__(self) -> None:
        if not self.a or min(validate.positive("a", value) for value in self.a) <= 0.0:
            raise ValueError("a must hold at least one value")

    def __call__(self, x: Array) -> tuple[Array, Array]:
        xp, x = as_real_array(x)
        grad = xp.asarray(self.a, dtype=x.dtype) * x
        return 0.5 * xp.sum(grad * x, axis=-1), grad

    def hvp(self, x: Array, d: Array) -> Array:
        xp, d = as_real_array(d)
        return xp.asarray(self.a, dtype=d.dtype) * d

    @property
    def start(self) -> Floats:
        return np.full(len(self.a), 5.0)

    @property
    def dimension(self) -> int:
        return len(self.a)

    def constants_on(self, reference: Reference, n: int) -> Constants:
        if not reference.mu > 0.0 or reference.curvature_at_zero != 1.0 / reference.mu:
            raise ValueError(
                f"the constants of {self.key} are known relative to a strongly convex φ, not {reference!r}"
            )
        L = max(self.a) / reference.mu
        return Constants(L, L, min(self.a) / reference.scale if reference.kernel.key == "quad" else None)


@register
@dataclass(frozen=True)
class RadialQuartic(Problem):
    """f(x) = ‖x‖⁴/4 relative to λ(cosh‖·‖ - 1): L = √3 2^⅓ λ^(-⅓), as for x⁴/4 on the line.

    With r = ‖x‖ and λ = 1, ∇f = r² x; the radial eigenvalue 3r²/√(1+r⁶) of ∇²φ*(∇f) ∇²f is that of the line, the
    tangential one r² arsinh(r³)/r³ = arsinh(r³)/r has the smaller maximum 1.392.
    """

    key = "radial-quartic"
    formula = "‖x‖⁴/4"
    convex = True

    def __call__(self, x: Array) -> tuple[Array, Array]:
        xp, x = as_real_array(x)
        square = xp.sum(x * x, axis=-1, keepdims=True)
        return 0.25 * square[..., 0] ** 2, square * x

    def hvp(self, x: Array, d: Array) -> Array:
        xp, x = as_real_array(x)
        square = xp.sum(x * x, axis=-1, keepdims=True)
        return square * d + 2.0 * xp.sum(x * d, axis=-1, keepdims=True) * x

    @property
    def start(self) -> Floats:
        return np.array([2.0, -1.0, 1.0])

    def constants_on(self, reference: Reference, n: int) -> Constants:
        if not isinstance(reference, Isotropic) or reference.kernel != Cosh():
            raise ValueError(f"the constants of {self.key} are known relative to isotropic-cosh, not {reference!r}")
        L = float(3**0.5 * 2 ** (1 / 3) * reference.scale ** (-1 / 3))
        return Constants(L, L)


@register
@dataclass(frozen=True)
class TwoQuadratics(StochasticProblem):
    """Example 3.3 of the paper: f(x) = ½[(x-1)² + 2(x+2)²] on the line, and at random the gradient of one of the two.

    f_1'(x) = 2(x-1) and f_2'(x) = 4(x+2), with equal chances. The variance of g grows without bound in |x|. The noise
    of Theorem 3.1 relative to cosh is bounded: its supremum over x is 6.283619 (numerically, rounded up), at x = .0105,
    and 1/16 its limit at infinity. f'' = 3, so that L = 3/λ relative to a φ with μ_φ = λ; f(-1) = 3 is least.
    """

    key = "two-quadratics"
    formula = "½[(x-1)² + 2(x+2)²]"
    convex = True
    least = 3.0

    def __call__(self, x: Array) -> tuple[Array, Array]:
        xp, x = as_real_array(x)
        return xp.sum(0.5 * (x - 1.0) ** 2 + (x + 2.0) ** 2, axis=-1), 3.0 * x + 3.0

    def hvp(self, x: Array, d: Array) -> Array:
        _, d = as_real_array(d)
        return 3.0 * d

    def sample(self, rng: np.random.Generator, x: Floats) -> Floats:
        return self.gradients(x)[int(rng.integers(2))]

    def gradients(self, x: Floats) -> tuple[Floats, Floats]:
        """Return f_1' and f_2'."""
        return 2.0 * (x - 1.0), 4.0 * (x + 2.0)

    @property
    def start(self) -> Floats:
        return np.array([30.0])

    @property
    def minimiser(self) -> Floats:
        return np.array([-1.0])

    @property
    def dimension(self) -> int:
        return 1

    def constants_on(self, reference: Reference, n: int) -> Constants:
        return QuadraticForm((3.0,)).constants_on(reference, n)

    def noise(self, reference: Reference | str) -> float:
        phi = as_reference(reference)
        if phi.kernel != Cosh() or phi.scale != 1.0:
            raise ValueError(f"the noise of {self.key} is known relative to cosh with λ = 1, not {phi!r}")
        return 6.283619

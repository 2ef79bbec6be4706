"""Sums f(x) = Σ g(x_i) of one function of a real variable, whose constants are found on the line.

For a separable φ = λ Σ h(x_i) the matrix ∇²φ*(∇f) ∇²f is diagonal, so that its constants are those of g relative to
λh: L = sup h*''(g'/λ) g''/λ. For an isotropic φ they hold for n = 1, where both are the same function.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from npgm._common import validate
from npgm._common.array import Array, Floats, Namespace, as_real_array
from npgm.problems.base import Constants, Problem, register
from npgm.references import Reference, Separable

SQRT2, SQRT3 = math.sqrt(2.0), math.sqrt(3.0)


class ScalarSum(Problem):
    """f(x) = Σ g(x_i): a subclass gives g, g', g'', the ``least`` value of g, and its constants."""

    start_of_g: ClassVar[float] = 3.0
    smoothness: ClassVar[dict[str, float]]
    """L relative to h, by the key of the kernel; for a scale of 1."""

    @abstractmethod
    def g(self, xp: Namespace, x: Array) -> tuple[Array, Array, Array]:
        """Return g, g' and g'' elementwise."""

    def __call__(self, x: Array) -> tuple[Array, Array]:
        xp, x = as_real_array(x)
        value, slope, _ = self.g(xp, x)
        return xp.sum(value, axis=-1), slope

    def hvp(self, x: Array, d: Array) -> Array:
        xp, x = as_real_array(x)
        return self.g(xp, x)[2] * d

    @property
    def start(self) -> Floats:
        return np.array([self.start_of_g])

    def minimum(self, n: int) -> float:
        return n * self.least

    def constants_on(self, reference: Reference, n: int) -> Constants:
        if not isinstance(reference, Separable) and n > 1:
            raise ValueError(
                f"on ℝⁿ, n > 1, the constants of {self.key} are known for a separable reference, not {reference.name}"
            )
        L = self.at_scale(_known(self, self.smoothness, reference), reference)
        return Constants(L, self.lipschitz(L, reference), self.pl(reference))

    def at_scale(self, L: float, reference: Reference) -> float:
        """Return the constant relative to λh from that relative to h."""
        if reference.scale != 1.0:
            raise ValueError(f"the constants of {self.key} are known for scale = 1, not {reference.scale!r}")
        return L

    def lipschitz(self, L: float, reference: Reference) -> float | None:
        """Return the Lipschitz constant of h*'(g'): L for a convex g, where h*''(g') g'' >= 0."""
        return L if self.convex else None

    def pl(self, reference: Reference) -> float | None:
        """Return the PL constant, None if there is none or it is not known."""
        return None


def _known(problem: Problem, table: dict[str, float], reference: Reference) -> float:
    kernel = reference.kernel
    if kernel.key not in table or kernel != type(kernel)():
        raise ValueError(
            f"the constants of {problem.key} are not known relative to {reference!r}; known kernels: {', '.join(table)}"
        )
    return table[kernel.key]


@register
@dataclass(frozen=True)
class Quartic(ScalarSum):
    """g = x⁴/4, whose gradient is not Lipschitz.

    With x = λ^⅓ t, h*''(g'/λ) g''/λ = 3 λ^(-⅓) t² h*''(t³), so that L = λ^(-⅓) sup 3 t² h*''(t³). By h*'':
    cosh: 3t²/√(1+t⁶) is largest at t⁶ = 2, L = √3 2^⅓; exp: 3t²/(1+t³) at t³ = 2, 2^⅔; lncos: 3t²/(1+t⁶) at t⁶ = ½,
    2^⅔; log: 3t²/(1+t³)² at t³ = ½, (4/3) 2^(-⅔); sqrt: 3t²(1+t⁶)^(-3/2) at t⁶ = 2/7, 3 (2/7)^⅓ (7/9)^(3/2); mix4,
    with t³ = u + u³: 3 (u+u³)^⅔/(1+3u²) at u² = ⅓, 2^⅓; logx2 and artanh: numerically, rounded up. Relative to mix3
    there is none, since 3t²/√(1+4t³) grows like √t. S grows more slowly than x⁴, so that no PL constant holds
    globally.
    """

    key = "quartic"
    formula = "Σ x⁴/4"
    convex = True
    smoothness: ClassVar[dict[str, float]] = {
        "cosh": SQRT3 * 2 ** (1 / 3),
        "exp": 2 ** (2 / 3),
        "lncos": 2 ** (2 / 3),
        "log": 4 / 3 * 2 ** (-2 / 3),
        "sqrt": 3 * (2 / 7) ** (1 / 3) * (7 / 9) ** 1.5,
        "logx2": 0.8870326,
        "mix4": 2 ** (1 / 3),
        "artanh": 1.5189242,
    }

    def g(self, xp: Namespace, x: Array) -> tuple[Array, Array, Array]:
        square = x * x
        return 0.25 * square * square, x * square, 3.0 * square

    def at_scale(self, L: float, reference: Reference) -> float:
        return float(L * reference.scale ** (-1 / 3))


@register
@dataclass(frozen=True)
class Logistic(ScalarSum):
    """g = ln(1 + e^-x), with infimum 0 at infinity and the Euclidean constant 1/4.

    With p = -g' in (0, 1), g'' = p(1-p), and L = sup p(1-p) h*''(p): exp: p(1-p)/(1+p) at p = √2-1, 3-2√2; log:
    p(1-p)/(1+p)² at p = 1/3, 1/8; sqrt: p(1-p)(1+p²)^(-3/2), 1/(3√3); lncos: p(1-p)/(1+p²) at p = √2-1, (√2-1)/2;
    cosh: p(1-p)/√(1+p²), numerically .225712.
    """

    key = "logistic"
    formula = "Σ ln(1 + e^-x)"
    convex = True
    start_of_g = -3.0
    smoothness: ClassVar[dict[str, float]] = {
        "cosh": 0.225712,
        "exp": 3 - 2 * SQRT2,
        "log": 1 / 8,
        "sqrt": 1 / (3 * SQRT3),
        "lncos": (SQRT2 - 1) / 2,
        "quad": 1 / 4,
    }

    @property
    def minimiser(self) -> None:
        return None

    def g(self, xp: Namespace, x: Array) -> tuple[Array, Array, Array]:
        e = xp.exp(-xp.abs(x))
        p = xp.where(x > 0, e, xp.ones_like(e)) / (1.0 + e)
        return xp.log1p(e) + 0.5 * (xp.abs(x) - x), -p, e / ((1.0 + e) * (1.0 + e))


@register
@dataclass(frozen=True)
class CoshSum(ScalarSum):
    """f = Σ c_i (cosh x_i - 1) with c_i >= 1, relative to cosh: L = max c_i, μ = 1.

    c cosh x / √(1 + c² sinh² x) decreases in |x| for c >= 1, hence L = c at 0; the PL quotient
    (√(1 + c² sinh² x) - 1) / (c (cosh x - 1)) decreases from c to its limit 1.

    Args:
        c: the factors, a float or a tuple of one for each coordinate.
    """

    key = "cosh-sum"
    formula = "Σ c (cosh x - 1)"
    convex = True
    smoothness: ClassVar[dict[str, float]] = {"cosh": 1.0}

    c: float | tuple[float, ...] = 2.0

    def __post_init__(self) -> None:
        factors = self.c if isinstance(self.c, tuple) else (self.c,)
        if not factors or min(validate.positive("c", factor) for factor in factors) < 1.0:
            raise ValueError(f"c must be at least 1, not {self.c!r}")

    @property
    def start(self) -> Floats:
        return np.full(self.dimension or 1, 4.0)

    @property
    def dimension(self) -> int | None:
        return len(self.c) if isinstance(self.c, tuple) else None

    def g(self, xp: Namespace, x: Array) -> tuple[Array, Array, Array]:
        c = xp.asarray(self.c, dtype=x.dtype)
        root = xp.sinh(0.5 * x)
        return c * 2.0 * root * root, c * xp.sinh(x), c * xp.cosh(x)

    def at_scale(self, L: float, reference: Reference) -> float:
        super().at_scale(L, reference)
        return float(max(self.c)) if isinstance(self.c, tuple) else float(self.c)

    def pl(self, reference: Reference) -> float:
        return 1.0


@register
@dataclass(frozen=True)
class Cosh(ScalarSum):
    """g = cosh x, which is (L0, L1) = (1, 1)-smooth, relative to log and exp: L = 1.

    cosh x / (1 + |sinh x|)² <= cosh x / (1 + |sinh x|) <= 1, with equality at 0.
    """

    key = "cosh"
    formula = "Σ cosh x"
    convex = True
    least = 1.0
    smoothness: ClassVar[dict[str, float]] = {"log": 1.0, "exp": 1.0}

    def g(self, xp: Namespace, x: Array) -> tuple[Array, Array, Array]:
        return xp.cosh(x), xp.sinh(x), xp.cosh(x)


@register
@dataclass(frozen=True)
class ExpSquare(ScalarSum):
    """g = exp(x²), anisotropically smooth relative to log with λ = 1, and not (L0, L1)-smooth for any constants.

    It is the witness for the paper's remark that the first is the weaker condition. With e = exp(x²), g' = 2xe and
    g'' = (2 + 4x²)e, so that g''/(1 + |g'|) grows like 2|x|. But g''/(1 + |g'|)² <= 2, with equality at 0: by
    e - 1 <= x²e, (1 + 2x²)e <= 1 + 3x²e <= (1 + 2|x|e)². Relative to sqrt, g'' (1 + g'²)^(-3/2) <= 2 as well
    (numerically). Both constants are 2, since g is convex.
    """

    key = "exp-square"
    formula = "Σ exp(x²)"
    convex = True
    least = 1.0
    smoothness: ClassVar[dict[str, float]] = {"log": 2.0, "sqrt": 2.0}

    def g(self, xp: Namespace, x: Array) -> tuple[Array, Array, Array]:
        e = xp.exp(x * x)
        return e, 2.0 * x * e, (2.0 + 4.0 * x * x) * e


@register
@dataclass(frozen=True)
class ExponentialPenalty(ScalarSum):
    """g = e^x - x (Maddison et al. 2021), with minimum 1 at 0.

    exp: for x >= 0, e^x/(1 + e^x - 1) = 1, for x < 0, e^x/(2 - e^x) < 1: L = 1. cosh: with z = e^x,
    z/√(1 + (z-1)²) is largest at z = 2: L = √2.
    """

    key = "exponential-penalty"
    formula = "Σ e^x - x"
    convex = True
    least = 1.0
    smoothness: ClassVar[dict[str, float]] = {"exp": 1.0, "cosh": SQRT2}

    def g(self, xp: Namespace, x: Array) -> tuple[Array, Array, Array]:
        e = xp.exp(x)
        return e - x, xp.expm1(x), e


@register
@dataclass(frozen=True)
class DoubleWell(ScalarSum):
    """g = (x² - a)²/4 with a > 0, nonconvex, with minima 0 at ±√a.

    Relative to cosh, with w = x², L² = sup (3w - a)² / (1 + w(w-a)²), attained at the root w > a of
    6 (1 + w(w-a)²) = (3w-a)² (w-a); for a = 1, L = 3.032089. The negative curvature at 0 has the size a, and
    decreases to 0 at w = a/3: the Lipschitz constant is max(L, a).

    Args:
        a: the squared place of the minima.
    """

    key = "double-well"
    formula = "Σ (x² - a)²/4"
    convex = False
    smoothness: ClassVar[dict[str, float]] = {"cosh": math.nan}  # see at_scale

    a: float = 1.0

    def __post_init__(self) -> None:
        validate.fields(self, a=validate.positive)

    @property
    def minimiser(self) -> Floats:
        return np.array([math.sqrt(self.a)])

    def g(self, xp: Namespace, x: Array) -> tuple[Array, Array, Array]:
        square = x * x
        return 0.25 * (square - self.a) ** 2, x * (square - self.a), 3.0 * square - self.a

    def at_scale(self, L: float, reference: Reference) -> float:
        super().at_scale(L, reference)
        w = np.polynomial.Polynomial([0.0, 1.0])
        denominator = 1.0 + w * (w - self.a) ** 2
        roots = (6.0 * denominator - (3.0 * w - self.a) ** 2 * (w - self.a)).roots()
        real = roots.real[(np.abs(roots.imag) < 1e-9) & (roots.real > self.a / 3.0)]
        return float(np.max((3.0 * real - self.a) / np.sqrt(denominator(real))))

    def lipschitz(self, L: float, reference: Reference) -> float:
        return max(L, self.a)


@register
@dataclass(frozen=True)
class Bump(ScalarSum):
    """g = x²/10 + 5 exp(-x²/2), nonconvex, which separates the two constants.

    The minima are at x² = 2 ln 25, with the value (1 + ln 25)/5. Relative to cosh, g''/√(1 + g'²) has the supremum
    1.6844392 (numerically, rounded up), which is L, and the infimum 1/5 - 5 = -4.8 at the maximum x = 0: the Lipschitz
    constant is 4.8.
    """

    key = "bump"
    formula = "Σ x²/10 + 5 exp(-x²/2)"
    convex = False
    least = (1 + math.log(25)) / 5
    start_of_g = 0.3
    smoothness: ClassVar[dict[str, float]] = {"cosh": 1.6844392}

    @property
    def minimiser(self) -> Floats:
        return np.array([math.sqrt(2.0 * math.log(25.0))])

    def g(self, xp: Namespace, x: Array) -> tuple[Array, Array, Array]:
        square = x * x
        e = 5.0 * xp.exp(-0.5 * square)
        return 0.1 * square + e, x * (0.2 - e), 0.2 + (square - 1.0) * e

    def lipschitz(self, L: float, reference: Reference) -> float:
        return 4.8


@register
@dataclass(frozen=True)
class Cosine(ScalarSum):
    """g = 1 - cos x, nonconvex with a bounded gradient; relative to cosh, |cos x| / √(1 + sin² x) <= 1: L = 1."""

    key = "cosine"
    formula = "Σ 1 - cos x"
    convex = False
    smoothness: ClassVar[dict[str, float]] = {"cosh": 1.0}

    def g(self, xp: Namespace, x: Array) -> tuple[Array, Array, Array]:
        root = xp.sin(0.5 * x)
        return 2.0 * root * root, xp.sin(x), xp.cos(x)

    def lipschitz(self, L: float, reference: Reference) -> float:
        return L  # |cos| takes no larger values where it is negative


@register
@dataclass(frozen=True)
class Cauchy(ScalarSum):
    """g = ln(1 + x²), nonconvex with a vanishing gradient.

    g'' = 2(1-x²)/(1+x²)² lies in [-1/4, 2] and is 2 at the minimum: relative to cosh, both constants are 2.
    """

    key = "cauchy"
    formula = "Σ ln(1 + x²)"
    convex = False
    smoothness: ClassVar[dict[str, float]] = {"cosh": 2.0}

    def g(self, xp: Namespace, x: Array) -> tuple[Array, Array, Array]:
        square = x * x
        return xp.log1p(square), 2.0 * x / (1.0 + square), 2.0 * (1.0 - square) / (1.0 + square) ** 2

    def lipschitz(self, L: float, reference: Reference) -> float:
        return L

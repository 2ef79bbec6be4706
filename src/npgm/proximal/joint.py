"""Steps of several arrays that are one vector to φ, as the parameters of a network are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npgm._common.array import Array, Axis, as_real_array, joint_norm
from npgm.kernels import Quadratic
from npgm.proximal.base import Proximable, slope
from npgm.proximal.roots import positive_root
from npgm.references import Isotropic, Reference, Separable


def step_or_prox(function: Proximable, phi: Reference, y: Array, lr: float | Array, axis: Axis = None) -> Array:
    """`Proximable.step`; the Euclidean proximal point where no point of finite g lies within reach of y.

    A run that starts at a point of finite g stays within reach: this is for one that does not, and for rounding.
    """
    z = function.step(phi, y, lr, axis)
    if not phi.kernel.radius < float("inf"):
        return z
    xp, y = as_real_array(y)
    return xp.where(xp.isnan(z) & ~xp.isnan(y), function.prox(y, lr / phi.scale, axis), z)


def joint_step(
    phi: Isotropic, functions: Sequence[Proximable], points: Sequence[Array], rates: Sequence[float | Array]
) -> list[Array]:
    """Return the z with 0 ∈ ∂gᵢ(zᵢ) + ∇φ(d)ᵢ and dᵢ = (zᵢ - yᵢ)/γᵢ, where φ sees the dᵢ as one vector.

    With equal γᵢ = γ it is argmin Σ gᵢ(zᵢ) + γ φ((z - y)/γ). With the number τ such that λ h'(‖d‖) τ = ‖d‖ each zᵢ is
    the Euclidean proximal point of stepsize γᵢ τ.

    Args:
        phi: φ.
        functions: the gᵢ. Those of sets are projections, however far away the set is.
        points: the yᵢ, of one array API library and on one device.
        rates: the γᵢ > 0.
    """
    if len(points) == 1:
        return [step_or_prox(functions[0], phi, points[0], rates[0])]
    terms = list(zip(functions, points, rates, strict=True))
    if type(phi.kernel) is Quadratic or all(function.indicator for function in functions):
        return [function.prox(y, lr / phi.scale) for function, y, lr in terms]

    def at(tau: Array) -> list[Array]:
        return [function.prox(y, _as(lr * tau, y)) for function, y, lr in terms]

    def excess(tau: Array) -> Array:
        steps = [(y - z) / _as(lr * xp.ones_like(tau), y) for (_, y, lr), z in zip(terms, at(tau), strict=True)]
        m, q = joint_norm(steps)
        d = xp.reshape(m * q, (1,))
        # of the two sides, which makes it nearly linear in ln τ
        return xp.where(d > 0, xp.log(phi.scale * slope(xp, phi, d) * (tau / d)), xp.where(d == 0, -xp.ones_like(d), d))

    m, _ = joint_norm([y for _, y, _ in terms])
    xp, m = as_real_array(m)
    with np.errstate(over="ignore"):  # τ is the largest number where y is a minimiser of g
        return at(positive_root(xp, excess, xp.full((1,), 1.0 / phi.scale, dtype=m.dtype)))


def _as(value: Array, y: Array) -> Array:
    """Return one number as what broadcasts against ``y``, in its dtype or float32."""
    xp, y = as_real_array(y)
    dtype = y.dtype if xp.finfo(y.dtype).bits >= 32 else xp.float32
    return xp.astype(xp.reshape(value, (1,) * y.ndim), dtype)


def is_entrywise(function: Proximable, phi: Reference) -> bool:
    """Whether each entry of a step depends on the same entry of y alone, and on no place in the point."""
    alike = all(np.ndim(value) == 0 for value in vars(function).values())
    return function.separable and alike and (isinstance(phi, Separable) or function.indicator)

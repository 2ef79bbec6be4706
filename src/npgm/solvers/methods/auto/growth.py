"""What the third derivative along a step says of f: how it grows, and whether a quadratic model of it holds."""

from __future__ import annotations

from npgm._common.array import Array, Namespace, dot, one_if_zero, row_norms
from npgm.solvers.point import Trial

COSINE, DEGREES = 0.8, (3.0, 5.0)
"""f grows like a quartic where ∇f and x are at most this far apart, by the cosine of their angle, and the degree is
between these."""


def bend(xp: Namespace, trial: Trial) -> Array:
    """Return f'''·‖p‖³ along the step, by the error of the trapezoidal rule: 12 (½(slope + slope') - Δf)."""
    change = trial.there.f - trial.here.f
    return 12.0 * (trial.slope + 0.5 * trial.product - change)


def is_quartic(xp: Namespace, trial: Trial) -> Array:
    """Return whether f looks homogeneous of degree about 4 along a step from x against ∇f(x), which lies along x.

    Of f(x) = c‖x‖^d along the ray, f'''/f'' is (d-2)/‖x‖.
    """
    size = row_norms(xp, trial.here.x)
    aligned = dot(xp, trial.here.grad, trial.here.x) > COSINE * trial.here.grad_norm * size
    curvature = one_if_zero(xp, trial.product)
    degree = 2.0 - bend(xp, trial) / curvature * (size / one_if_zero(xp, trial.step_norm))
    return aligned & (trial.product > 0.0) & (degree > DEGREES[0]) & (degree < DEGREES[1])

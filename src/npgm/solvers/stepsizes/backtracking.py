"""Backtracking by the descent inequality of the preconditioned step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from npgm._common.array import Array, Namespace, one_if_zero, row_norms
from npgm.references import Isotropic
from npgm.solvers.point import Point, Trial, rounding
from npgm.solvers.preconditioned import Preconditioned
from npgm.solvers.stepsizes.base import Stepsize, register
from npgm.solvers.stepsizes.edge_of_stability import extent


class State(NamedTuple):
    """γ, and that of the last step taken."""

    lr: Array
    last_lr: Array


TAU = 3.0**-0.5
"""The τ of Theorem B for β >= 1/2, at which the bound at the largest γ that passes is least."""
GROWTH = 1.1
"""The factor by which γ grows after a step that is taken."""


@register
@dataclass(frozen=True)
class Backtracking(Stepsize):
    """γ is halved until f(x - γm) <= f(x) + γφ(u-m) - γφ(u), which holds for all γ <= 1/L.

    Without momentum, γ grows by a tenth after each step, since a γ that fits the start need not fit the end. With
    momentum the proof needs a γ that does not grow.

    It is the descent inequality (1.2) itself at the step, with m = βm' + (1-β)u; at β = 0 the test is
    f(x - γu) <= f(x) - γφ(u). For β < 1/2, Σ γ_k φ(u_k) <= (f(x⁰) - inf f)/(1 - 2β): Theorem 2.2 for a stepsize that
    varies, without an L (docs/theory.md). For β >= 1/2, where that says nothing, a step must also pass
    β‖u⁺ - u‖ <= τ(1-β)‖m‖ with τ² = 1/3, which holds for all γ <= τ(1-β)/(βL_p): Theorem B with stepsizes that vary
    then bounds Σ γ_k φ(u_k), for an isotropic and 2-subhomogeneous φ. If a step fails, the iteration stays where it is.
    """

    key = "backtracking"

    def init(self, xp: Namespace, start: Point, phi: Preconditioned, momentum: float) -> State:
        reference = phi.reference
        known = isinstance(reference, Isotropic) and reference.kernel.two_subhomogeneous
        if momentum >= 0.5 and not known:  # where φ(u-m) outweighs φ(u), the test asks for no descent
            raise ValueError(
                f"lr={self.key!r} needs momentum < 1/2, or an isotropic and 2-subhomogeneous φ, not {momentum:g} with "
                f"{reference!r}"
            )
        lr = extent(xp, start.x) / one_if_zero(xp, row_norms(xp, phi(start.grad)))
        return State(lr, lr)

    def coefficients(self, state: State, momentum: float) -> tuple[Array, Array]:
        return (1.0 - momentum) * state.lr, momentum * (state.lr / state.last_lr)

    def judge(
        self, xp: Namespace, trial: Trial, phi: Preconditioned, state: State, momentum: float
    ) -> tuple[Array, State]:
        lr = state.lr
        excess = trial.direction + trial.step / lr if momentum else xp.zeros_like(trial.step)  # u - m
        decrease, slack = lr * trial.stationarity, trial.slack(xp)
        taken = trial.finite & (trial.there.f <= trial.here.f + lr * phi.value(excess)[:, None] - decrease + slack)
        if momentum >= 0.5:
            following_u = phi(xp.where(trial.finite, trial.there.grad, trial.here.grad))
            change = row_norms(xp, following_u - trial.direction)
            # of which rounding of x leaves so much unknown
            lost_in_x = rounding(float(xp.finfo(lr.dtype).eps)) * row_norms(xp, trial.here.x)
            known = trial.step_norm - lost_in_x
            taken = taken & (momentum * change * known <= TAU * (1.0 - momentum) * trial.step_norm**2 / lr)
        # where a decrease is lost in rounding, so is the test, and the secant judges γ in place of f
        lost = decrease <= slack
        relative = lr * phi.curvature * trial.curvature(xp)  # γ over the stepsize 1/L of the secant
        short = ~lost | (GROWTH * relative <= 1.0)
        long = ~taken | (lost & (relative > 1.0) & xp.isfinite(relative))
        following = xp.where(long, 0.5 * lr, lr if momentum else xp.where(short, GROWTH * lr, lr))
        return taken, State(following, xp.where(taken, lr, state.last_lr))

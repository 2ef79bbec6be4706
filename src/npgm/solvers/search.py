"""The heavy ball with a stepsize rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from npgm._common.array import Array, Namespace, select
from npgm.references import Reference
from npgm.solvers.point import Point, Trial
from npgm.solvers.preconditioned import Preconditioned
from npgm.solvers.stepsizes import Stepsize


class State(NamedTuple):
    """λ, the state of the rule, the last step taken, and the step that is being tried: γ, p, u and φ(u)."""

    scale: Array | None
    rule: Any
    last: Array
    lr: Array
    step: Array
    direction: Array
    stationarity: Array


@dataclass(frozen=True)
class Search:
    """The preconditioned heavy ball p = -γ(1-β) u + (momentum), with γ and its acceptance by a rule.

    Args:
        reference: φ, up to its λ where each run has its own.
        stepsize: the rule.
        momentum: β.
    """

    reference: Reference
    stepsize: Stepsize
    momentum: float

    def init(self, xp: Namespace, start: Point, phi: Preconditioned) -> State:
        rule = self.stepsize.init(xp, start, phi, self.momentum)
        none = xp.zeros_like(start.x)
        return State(phi.scale, rule, none, rule.lr, none, none, xp.zeros_like(start.grad_norm))

    def step(self, xp: Namespace, here: Point, state: State) -> tuple[Array, State]:
        phi = self.preconditioned(state)
        u, stationarity = phi(here.grad), phi.stationarity(here.grad)[:, None]
        a, b = self.stepsize.coefficients(state.rule, self.momentum)
        p = b * state.last - a * u
        return p, state._replace(lr=state.rule.lr, step=p, direction=u, stationarity=stationarity)

    def judge(self, xp: Namespace, trial: Trial, state: State) -> tuple[Array, State]:
        taken, rule = self.stepsize.judge(xp, trial, self.preconditioned(state), state.rule, self.momentum)
        return taken, state._replace(rule=rule, last=select(xp, taken, trial.step, state.last))

    def preconditioned(self, state: State) -> Preconditioned:
        """Return φ for all runs."""
        return Preconditioned(self.reference, state.scale)

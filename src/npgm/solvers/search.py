"""A direction and a stepsize rule, put together: what the methods do whose stepsize is not a number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from npgm._array import Array, Namespace, select
from npgm.solvers.directions import Direction
from npgm.solvers.method import Point
from npgm.solvers.stepsizes import Stepsize
from npgm.solvers.trial import Trial


class State(NamedTuple):
    """The states of the parts, the last step taken, and the step that is being tried: γ, p, u and φ(u)."""

    along: Any
    rule: Any
    last: Array
    lr: Array
    step: Array
    direction: Array
    measure: Array


@dataclass(frozen=True)
class Search:
    """The preconditioned heavy ball p = -γ(1-β) u + (momentum), with γ and its acceptance by a rule.

    Args:
        direction: what gives u and φ.
        stepsize: the rule.
        momentum: β.
    """

    direction: Direction
    stepsize: Stepsize
    momentum: float

    def init(self, xp: Namespace, start: Point) -> State:
        along = self.direction.init(xp, start)
        rule = self.stepsize.init(xp, start, self.direction, along, self.momentum)
        none = xp.zeros_like(start.x)
        return State(along, rule, none, rule.lr, none, none, xp.zeros_like(start.grad_norm))

    def step(self, xp: Namespace, here: Point, state: State) -> tuple[Array, State]:
        u, measure = self.direction.at(xp, here, state.along)
        a, b = self.stepsize.coefficients(state.rule, self.momentum)
        p = b * state.last - a * u
        return p, state._replace(lr=state.rule.lr, step=p, direction=u, measure=measure)

    def judge(self, xp: Namespace, trial: Trial, state: State) -> tuple[Array, State]:
        taken, rule = self.stepsize.judge(xp, trial, self.direction, state.along, state.rule, self.momentum)
        along = self.direction.learn(xp, trial, state.along)
        return taken, state._replace(along=along, rule=rule, last=select(xp, taken, trial.step, state.last))

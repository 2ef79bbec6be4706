"""The loss of physics-informed networks after a number of evaluations, against torch's LBFGS and SciPy's BFGS.

Three problems, full batch, in float64, each with a network of three hidden layers of tanh units: Poisson's equation
on a square; convection with speed 30, as in Krishnapriyan et al., Characterizing possible failure modes in
physics-informed neural networks (2021); and Burgers' equation, as in Raissi, Perdikaris and Karniadakis,
Physics-informed neural networks (2019). A change of a start in its tenth digit may change where a run ends tenfold, so
each seed's start is run several times, slightly perturbed. Prints, over all starts, the median [least, most] of the
least loss that each method has seen.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

import numpy as np
import scipy.optimize
import torch
from torch import Tensor
from typer import Option

import npgm.torch
from npgm._common import validate
from npgm._common.array import Floats
from npgm.lab.bench._shared import Seeds

Loss = Callable[[torch.nn.Sequential], Tensor]
INSIDE, EDGE = 256, 64
"""The numbers of points inside of the domain, and on each part of its edge."""
NUDGE = 1e-9
"""The standard deviation of the relative change of a start's entries."""


def network(width: int) -> torch.nn.Sequential:
    """Return a network of two inputs, three hidden layers of so many tanh units, and one output, in float64."""
    hidden = (layer for n in (2, width, width) for layer in (torch.nn.Linear(n, width), torch.nn.Tanh()))
    return torch.nn.Sequential(*hidden, torch.nn.Linear(width, 1)).double()


class _SpentError(Exception):
    """Ends a run whose evaluations are used up."""


class _Run:
    """A network and its loss, of which each evaluation is counted."""

    def __init__(self, problem: Callable[[], Loss], width: int, seed: int, start: int, limit: int) -> None:
        """Draw the network and the points by a seed; the starts are perturbed but for the first, which has number 0."""
        torch.manual_seed(seed)
        self.net, self.loss = network(width), problem()
        if start:
            torch.manual_seed(start)
            with torch.no_grad():
                for entries in self.net.parameters():
                    entries.mul_(1.0 + NUDGE * torch.randn_like(entries))
        self.limit = limit
        self.least: list[float] = []
        """The least loss after each evaluation."""

    def __call__(self) -> Tensor:
        if len(self.least) == self.limit:
            raise _SpentError
        loss = self.loss(self.net)
        self.least.append(min([loss.item(), *self.least[-1:]]))
        return loss

    def after(self, evaluations: int) -> float:
        """Return the least loss after so many evaluations, or at the end if the run has fewer."""
        return self.least[min(evaluations, len(self.least)) - 1]


def _auto(run: _Run) -> None:
    npgm.torch.minimize(run.net, run, tol=0.0, maxiter=run.limit, maxfun=run.limit)


def _torchs(run: _Run) -> None:
    optimizer = torch.optim.LBFGS(
        run.net.parameters(), max_iter=run.limit, max_eval=run.limit, history_size=100, tolerance_grad=0.0,
        tolerance_change=0.0, line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> float:
        optimizer.zero_grad()
        loss = run()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    optimizer.step(closure)  # type: ignore[no-untyped-call]


def _scipys(run: _Run) -> None:
    parameters = list(run.net.parameters())

    def fun(x: Floats) -> tuple[float, Floats]:
        torch.nn.utils.vector_to_parameters(torch.from_numpy(x), parameters)
        loss = run()
        gradients = torch.autograd.grad(loss, parameters)
        return loss.item(), torch.nn.utils.parameters_to_vector(gradients).numpy()

    start = torch.nn.utils.parameters_to_vector(parameters).detach().numpy()
    with np.errstate(all="ignore"):
        scipy.optimize.minimize(fun, start, jac=True, method="BFGS", options={"gtol": 0.0, "maxiter": run.limit})


METHODS = {"npgm.torch.minimize": _auto, "torch.optim.LBFGS": _torchs, "SciPy's BFGS": _scipys}


def _points(number: int, low: tuple[float, float], high: tuple[float, float]) -> Tensor:
    share = torch.rand(number, 2, dtype=torch.float64)
    return torch.tensor(low) + share * (torch.tensor(high) - torch.tensor(low))


def derivatives(net: torch.nn.Sequential, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the network's values, and its first and second derivatives in each coordinate, along the first axis.

    They are carried through the layers, which takes a fraction of the time of differentiating twice.
    """
    value = points
    first = torch.eye(points.shape[1], dtype=points.dtype)[:, None, :].expand(-1, *points.shape)
    second = torch.zeros_like(first)
    for layer in net:
        if isinstance(layer, torch.nn.Linear):
            value, first, second = layer(value), first @ layer.weight.T, second @ layer.weight.T
        else:  # tanh
            value = torch.tanh(value)
            slope = 1.0 - value.square()
            second = slope * (second - 2.0 * value * first.square())
            first = slope * first
    return value, first, second


def poisson() -> Loss:
    """Return the loss of -Δu = 2π² sin(πx) sin(πy) on the unit square, with u = 0 on its edge."""
    inside = _points(INSIDE, (0.0, 0.0), (1.0, 1.0))
    sides = [((0.0, 0.0), (1.0, 0.0)), ((0.0, 1.0), (1.0, 1.0)), ((0.0, 0.0), (0.0, 1.0)), ((1.0, 0.0), (1.0, 1.0))]
    edge = torch.cat([_points(EDGE, *side) for side in sides])
    force = 2.0 * math.pi**2 * torch.sin(math.pi * inside).prod(1, keepdim=True)

    def loss(net: torch.nn.Sequential) -> Tensor:
        residual = derivatives(net, inside)[2].sum(0) + force
        total: Tensor = residual.square().mean() + net(edge).square().mean()
        return total

    return loss


def convection() -> Loss:
    """Return the loss of u_t + 30 u_x = 0 for x in [0, 2π] and t in [0, 1], periodic, from u = sin(x)."""
    inside = _points(INSIDE, (0.0, 0.0), (2.0 * math.pi, 1.0))
    initial = _points(EDGE, (0.0, 0.0), (2.0 * math.pi, 0.0))
    left = _points(EDGE, (0.0, 0.0), (0.0, 1.0))
    right = left + torch.tensor([2.0 * math.pi, 0.0])

    def loss(net: torch.nn.Sequential) -> Tensor:
        _, (x, t), _ = derivatives(net, inside)
        start = net(initial) - torch.sin(initial[:, :1])
        total: Tensor = (
            (t + 30.0 * x).square().mean() + start.square().mean() + (net(left) - net(right)).square().mean()
        )
        return total

    return loss


def burgers() -> Loss:
    """Return the loss of u_t + u u_x = 0.01/π u_xx for x in [-1, 1], t in [0, 1], from -sin(πx), 0 at the ends."""
    inside = _points(INSIDE, (-1.0, 0.0), (1.0, 1.0))
    initial = _points(EDGE, (-1.0, 0.0), (1.0, 0.0))
    ends = torch.cat([_points(EDGE, (side, 0.0), (side, 1.0)) for side in (-1.0, 1.0)])

    def loss(net: torch.nn.Sequential) -> Tensor:
        u, (x, t), (xx, _) = derivatives(net, inside)
        residual = t + u * x - 0.01 / math.pi * xx
        start = net(initial) + torch.sin(math.pi * initial[:, :1])
        total: Tensor = residual.square().mean() + start.square().mean() + net(ends).square().mean()
        return total

    return loss


PROBLEMS = {"poisson": poisson, "convection": convection, "burgers": burgers}
NAMES = list(PROBLEMS)
METHOD_NAMES = list(METHODS)


def run(
    problems: Annotated[list[str], Option(help=f"{', '.join(PROBLEMS)}; repeatable.")] = NAMES,
    methods: Annotated[list[str], Option(help=f"{', '.join(METHODS)}; repeatable.")] = METHOD_NAMES,
    evaluations: Annotated[int, Option(min=1, help="Evaluations of the loss and its gradient.")] = 1500,
    seeds: Seeds = 5,
    starts: Annotated[int, Option(min=1, help="Starts of each seed: its own, and that perturbed.")] = 2,
    width: Annotated[int, Option(min=1, help="The units of a hidden layer.")] = 20,
) -> None:
    """Print a line for each problem and method."""
    chosen = {name: PROBLEMS[validate.choice("problem", name, PROBLEMS)] for name in problems}
    compared = {name: METHODS[validate.choice("method", name, METHODS)] for name in methods}
    third = max(1, evaluations // 3)
    print(f"{'':32}after {third:<6} after {evaluations:<20} ms")
    for title, problem in chosen.items():
        for name, method in compared.items():
            runs = [_Run(problem, width, i, k, evaluations) for i in range(seeds) for k in range(starts)]
            began = time.process_time()
            for run in runs:
                with suppress(_SpentError):
                    method(run)
            spent = 1e3 * (time.process_time() - began) / sum(len(run.least) for run in runs)
            early, ends = ([run.after(number) for run in runs] for number in (third, evaluations))
            spread = f"{statistics.median(ends):.1e} [{min(ends):.1e}, {max(ends):.1e}]"
            print(f"{title:10}  {name:19} {statistics.median(early):.1e}      {spread}  {spent:4.1f}", flush=True)

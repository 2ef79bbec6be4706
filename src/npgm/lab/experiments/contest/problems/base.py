"""What a problem of the contest is, and two ways in which its gradient is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from npgm._common.array import Array, Floats
from npgm.proximal import Box

Function = Callable[[Floats], tuple[float, Floats]]


@dataclass(frozen=True)
class ContestProblem:
    """A smooth function of NumPy's points with its gradient, where to start, and bounds, if there are any."""

    name: str
    fun: Function
    start: Floats
    box: Box | None = None

    def stationarity(self, x: Floats, grad: Floats) -> float:
        """Return ‖∇f(x)‖, or with bounds ‖x - P(x - ∇f(x))‖, where P projects onto them."""
        return float(np.linalg.norm(grad if self.box is None else x - self.box.prox(x - grad, 1.0)))


def of_residuals(residuals: Callable[[Array], Array]) -> Function:
    """Return Σ r(x)², with the derivatives of r by complex steps, which are exact to rounding.

    Args:
        residuals: r of one point of shape (n,) or of several, of shape (n, runs), stacked along the first axis; it must
            be analytic, and written for complex numbers.
    """

    def fun(x: Floats) -> tuple[float, Floats]:
        points = np.asarray(x, np.complex128)[:, None] + 1e-30j * np.eye(x.size)
        values = residuals(points)
        return float(np.sum(values[:, 0].real ** 2)), 2.0 * (values[:, 0].real @ (values.imag * 1e30))

    return fun


def of_columns(design: Floats, loss: Callable[[Floats], tuple[Floats, Floats]], l2: float = 0.0) -> Function:
    """Return the mean of a loss of each entry of ``design @ x``, plus l2 ‖x‖²/2.

    Args:
        design: one row an observation.
        loss: the losses and their derivatives at the predictions.
        l2: the weight of the penalty.
    """

    def fun(x: Floats) -> tuple[float, Floats]:
        losses, slopes = loss(design @ x)
        return float(np.mean(losses) + 0.5 * l2 * (x @ x)), design.T @ slopes / len(slopes) + l2 * x

    return fun

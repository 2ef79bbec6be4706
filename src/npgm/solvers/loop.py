"""The one loop that runs every solver."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult

from npgm import _validate
from npgm._array import Array, Bools, Floats, Namespace, norm, to_host
from npgm.references import Isotropic
from npgm.solvers.method import Method, build
from npgm.solvers.objective import Callback, Objective, as_callback, scalars


class Status(IntEnum):
    """How a run ended."""

    CONVERGED = 0
    MAXITER = 1
    MAXTIME = 2
    DIVERGED = 3
    STOPPED = 99
    """The callback raised StopIteration."""


_RUNNING = -1


def minimize(
    fun: Callable[..., Any],
    x0: Array,
    args: tuple[Any, ...] = (),
    *,
    jac: bool | Callable[..., Any] = True,
    method: str = "npgm",
    maxiter: int = 1000,
    tol: float = 1e-6,
    stationarity_tol: float = 0.0,
    maxtime: float | None = None,
    callback: Callback | None = None,
    history: bool = False,
    batch: bool = False,
    **options: Any,
) -> OptimizeResult:
    """Minimise a smooth function by a first-order method.

    Args:
        fun: ``fun(x, *args)`` returns ``(f, gradient)`` if ``jac`` is True, and ``f`` if ``jac`` is a function. It
            must not change ``x``.
        x0: the start: an array of any shape, of any array API library, in a real floating-point dtype, in which the
            iteration runs; or a sequence of floats.
        args: further arguments of ``fun`` and ``jac``.
        jac: True, or ``jac(x, *args)`` that returns the gradient, of the shape of ``x``.
        method: a key of `npgm.solvers.registry`.
        maxiter: the largest number of iterations.
        tol: stop where ‖∇f(x)‖ <= tol; 0 runs all of ``maxiter`` (or to a gradient of exactly zero).
        stationarity_tol: stop where φ(∇φ*(∇f(x))) <= stationarity_tol, the measure of the paper's theorems, with the
            method's own φ (½‖·‖² for a method without); 0 switches it off.
        maxtime: stop after this many seconds; None for no limit.
        callback: called once an iteration with ``intermediate_result=OptimizeResult(x, fun)`` if that is its only
            parameter, else with a copy of ``x``; it may raise StopIteration to stop.
        history: whether to record every iteration.
        batch: whether the first axis of ``x0`` counts independent runs: ``fun`` then returns one f a run. A run that
            has ended stays where it is.
        **options: the method's own options; ``lr``, the stepsize γ, is one for every method.

    Returns:
        `scipy.optimize.OptimizeResult` with x, fun, jac, nit, nfev, njev, success, status (see `npgm.solvers.Status`)
        and message; if ``history``, also history, a dict of float64 arrays "fun", "grad_norm", "stationarity" and
        "seconds" over k = 0, ..., nit. After a divergence, x, fun and jac are the last finite ones. For a batch,
        each of fun, nit, success, status and message has one entry a run, and a history array has shape
        (iterations + 1, runs), constant after the end of a run.

    Raises:
        TypeError, ValueError: if an argument or option is not accepted, or ``fun`` returns something of the wrong
            shape, or is not finite at ``x0``; before any step is made.

    Example:
        >>> import numpy as np, npgm
        >>> def fun(x):   # a quartic, whose gradient is not Lipschitz
        ...     return np.sum(x**4 / 4 + x**2 / 2), x**3 + x
        >>> npgm.minimize(fun, np.array([1000.0, -1.0]), lr=0.4).success
        True
    """
    solver = build(method, options)
    maxiter = _validate.count("maxiter", maxiter)
    tol = _validate.nonnegative("tol", tol)
    stationarity_tol = _validate.nonnegative("stationarity_tol", stationarity_tol)
    deadline = math.inf if maxtime is None else _validate.nonnegative("maxtime", maxtime)
    objective = Objective(fun, jac, args, x0, batch)
    call = as_callback(callback, objective)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        loop = _Loop(objective, solver, tol, stationarity_tol, history)
        loop.run(maxiter, deadline, call)
        return loop.result()


class _Loop:
    """The state of a call of `minimize`: points and gradients of all runs, and how each run stands."""

    def __init__(
        self, objective: Objective, method: Method, tol: float, stationarity_tol: float, history: bool
    ) -> None:
        self.objective, self.method = objective, method
        self.xp: Namespace = objective.xp
        self.tol, self.stationarity_tol = tol, stationarity_tol
        self.start = time.perf_counter()
        self.records: dict[str, list[Any]] | None = (
            {"fun": [], "grad_norm": [], "stationarity": [], "seconds": []} if history else None
        )
        limits = self.xp.finfo(objective.x0.dtype)
        # sums of squares between these lost no digit to underflow or overflow
        self.safe_squares = float(limits.smallest_normal) / float(limits.eps) ** 2, float(limits.max)
        self.x = objective.x0
        self.f, self.grad = objective(self.x)
        self.grad_norm = self._grad_norm(self.grad)
        if not self._finite(self.f, self.grad_norm).all():
            raise ValueError("fun or its gradient is not finite at x0; start where both are")
        self.k = 0
        self.nit = np.zeros(objective.runs, dtype=np.int64)
        self.status = np.full(objective.runs, _RUNNING)

    def run(self, maxiter: int, deadline: float, callback: Callable[[Array, Array], None] | None) -> None:
        """Iterate until no run goes on."""
        state = self.method.init(self.xp, self.x)
        while True:
            self._check(maxiter, deadline)
            if callback is not None and self.k > 0:
                try:
                    callback(self.x, self.f)
                except StopIteration:
                    self.status[self.status == _RUNNING] = Status.STOPPED
            running = self.status == _RUNNING
            if not running.any():
                return
            x, state = self.method.step(self.xp, self.x, self.grad, state)
            self._move(x, running)

    def _move(self, x: Array, running: Bools) -> None:
        """Go to ``x`` in the runs that are running and find finite values there; end those that do not."""
        if not running.all():
            x = self._where(running, x, self.x)
        f, grad = self.objective(x)
        grad_norm = self._grad_norm(grad)
        self.k += 1
        self.nit[running] = self.k
        finite = self._finite(f, grad_norm)
        if not finite.all():
            self.status[running & ~finite] = Status.DIVERGED
            x, f, grad = (self._where(finite, new, old) for new, old in ((x, self.x), (f, self.f), (grad, self.grad)))
            grad_norm = np.where(finite, grad_norm, self.grad_norm)
        self.x, self.f, self.grad, self.grad_norm = x, f, grad, grad_norm

    def _check(self, maxiter: int, deadline: float) -> None:
        """Record the present iterate, and end the runs that are done."""
        seconds = time.perf_counter() - self.start
        converged = self.grad_norm <= self.tol
        if self.records is not None or self.stationarity_tol > 0.0:
            measure = self._stationarity()
            if self.stationarity_tol > 0.0:
                converged |= measure <= self.stationarity_tol
            if self.records is not None:
                values = to_host(self.f), self.grad_norm, measure, seconds
                for record, value in zip(self.records.values(), values, strict=True):
                    record.append(value)
        running = self.status == _RUNNING
        self.status[running & converged] = Status.CONVERGED
        if self.k >= maxiter:
            self.status[self.status == _RUNNING] = Status.MAXITER
        elif seconds >= deadline:
            self.status[self.status == _RUNNING] = Status.MAXTIME

    def _grad_norm(self, grad: Array) -> Floats:
        squares = to_host(self.xp.vecdot(grad, grad, axis=-1))
        if ((squares > self.safe_squares[0]) & (squares < self.safe_squares[1])).all():
            return np.sqrt(squares)
        return to_host(norm(self.xp, grad, axis=-1)[:, 0])

    def _stationarity(self) -> Floats:
        measure = self.method.measure
        if isinstance(measure, Isotropic):  # a function of the norm alone
            return measure.stationarity(self.grad_norm[:, None], axis=-1)  # type: ignore[no-any-return]
        return to_host(measure.stationarity(self.grad, axis=-1))

    def _finite(self, f: Array, grad_norm: Floats) -> Bools:
        finite: Bools = np.isfinite(to_host(f)) & np.isfinite(grad_norm)
        return finite

    def _where(self, mask: Bools, new: Array, old: Array) -> Array:
        """Select the rows of ``new`` where ``mask`` holds, those of ``old`` elsewhere."""
        return self.xp.stack([new[i, ...] if chosen else old[i, ...] for i, chosen in enumerate(mask)])

    def result(self) -> OptimizeResult:
        """Return what `minimize` returns."""
        objective = self.objective
        smaller_lr = self._smaller_lr() if (self.status == Status.DIVERGED).any() else np.empty(0)
        messages = [self._message(i, smaller_lr) for i in range(objective.runs)]
        success = self.status == Status.CONVERGED
        batch = objective.batch
        result = OptimizeResult(
            x=objective.unflatten(self.x),
            fun=scalars(self.f, objective),
            jac=objective.unflatten(self.grad),
            nit=self.nit if batch else int(self.nit[0]),
            nfev=objective.nfev,
            njev=objective.njev,
            success=success if batch else bool(success[0]),
            status=self.status if batch else Status(self.status[0]),
            message=messages if batch else messages[0],
        )
        if self.records is not None:
            history = {name: np.array(record, dtype=np.float64) for name, record in self.records.items()}
            result.history = history if batch else {name: np.ravel(values) for name, values in history.items()}
        return result

    def _message(self, run: int, smaller_lr: Floats) -> str:
        match Status(self.status[run]):
            case Status.CONVERGED if self.grad_norm[run] <= self.tol:
                return f"Converged: the gradient norm {self.grad_norm[run]:.3g} is at most tol = {self.tol:g}."
            case Status.CONVERGED:
                return f"Converged: φ(∇φ*(∇f)) is at most stationarity_tol = {self.stationarity_tol:g}."
            case Status.MAXITER:
                return f"The maximum number of iterations, {self.k}, was reached."
            case Status.MAXTIME:
                return f"The time limit was reached at iteration {self.nit[run]}."
            case Status.STOPPED:
                return "`callback` raised `StopIteration`."
            case _:
                return (
                    f"Diverged at iteration {self.nit[run]}: f or its gradient is no longer finite. "
                    f"Try a smaller stepsize, for example lr={smaller_lr[run]:.1e}."
                )

    def _smaller_lr(self) -> Floats:
        """Return 1/L for L measured at x0 by one more gradient, where that is below lr/2, else lr/2."""
        xp, precondition, x = self.xp, self.method.measure.precondition, self.objective.x0
        _, grad = self.objective(x)
        short = math.sqrt(float(xp.finfo(x.dtype).eps)) * xp.clip(norm(xp, x, axis=-1), 1.0, None)
        step = grad * (short / xp.clip(norm(xp, grad, axis=-1), float(xp.finfo(x.dtype).tiny), None))
        _, grad_near = self.objective(x - step)
        change = to_host(norm(xp, precondition(grad_near, axis=-1) - precondition(grad, axis=-1), axis=-1)[:, 0])
        inverse = to_host(short[:, 0]) / change
        return np.where(inverse > 0.0, np.fmin(0.5 * self.method.lr, inverse), 0.5 * self.method.lr)

"""The one loop that runs every solver."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult

from npgm._common import validate
from npgm._common.array import Array, Bools, Floats, to_host
from npgm.proximal import as_box
from npgm.references import Isotropic
from npgm.solvers import native
from npgm.solvers.composite import ArrayComposite
from npgm.solvers.composite_method import CompositeMethod
from npgm.solvers.history import Recorder
from npgm.solvers.iterate import ArrayIterate, Iterate, point, unbounded
from npgm.solvers.method import Method, chosen
from npgm.solvers.native import NativeComposite, NativeIterate
from npgm.solvers.objective import Callback, Objective, as_callback, scalars
from npgm.solvers.progress import Probe, Progress


class Status(IntEnum):
    """How a run ended. The first two are a success."""

    CONVERGED = 0
    ROUNDING = 4
    """No progress is possible in the dtype: f no longer falls, and rounding explains ‖∇f‖."""
    MAXITER = 1
    MAXTIME = 2
    MAXFUN = 7
    DIVERGED = 3
    STUCK = 5
    """The steps, taken or tried, no longer change the point, and rounding does not explain its gradient."""
    UNBOUNDED = 6
    """f is -∞ at the last point."""
    STOPPED = 99
    """The callback raised StopIteration."""


SUCCESS = Status.CONVERGED, Status.ROUNDING
_RUNNING = -1


def minimize(
    fun: Callable[..., Any],
    x0: Array,
    args: tuple[Any, ...] = (),
    *,
    jac: bool | str | Callable[..., Any] | None = True,
    method: str | Method | None = None,
    maxiter: int = 10_000,
    tol: float = 1e-6,
    stationarity_tol: float = 0.0,
    maxfun: int | None = None,
    maxtime: float | None = None,
    callback: Callback | None = None,
    history: bool = False,
    batch: bool = False,
    bounds: Any = None,
    **options: Any,
) -> OptimizeResult:
    """Minimise a smooth function f, or f + g with ``prox=g``, by a first-order method.

    Args:
        fun: ``fun(x, *args)`` returns ``(f, gradient)`` if ``jac`` is True, and ``f`` otherwise. It must not change
            ``x``, but may keep it: an array that is referenced elsewhere is not overwritten. It may write every
            gradient into the same array.
        x0: the start, an array of any shape, of any array API library, in a real floating-point dtype, in which the
            iteration runs; or a sequence of numbers. Integers of NumPy become float64.
        args: further arguments of ``fun`` and ``jac``.
        jac: True, or ``jac(x, *args)`` that returns the gradient, of the shape of ``x``. None, "2-point", "3-point" or
            "cs" choose SciPy's finite differences, for one start in a NumPy array.
        method: a key of `npgm.solvers.registry`, or a `Method` with its options. None chooses "auto", which needs no
            stepsize, or "npgm" if ``lr`` is given. With ``prox`` or ``bounds`` it chooses "proximal_lbfgs", or
            "proximal" if ``lr``, ``momentum``, ``reference`` or ``scale`` is given.
        maxiter: the largest number of iterations; each takes one value and one gradient.
        tol: stop if ‖∇f(x)‖ <= tol, or if rounding makes that impossible. Detecting the latter takes 50 iterations
            without progress and one evaluation beside the point. With 0, ``maxiter`` iterations are run unless the
            gradient is exactly zero, which a random ``fun`` may return at a point that is not stationary.
        stationarity_tol: stop if φ(∇φ*(∇f(x))) <= stationarity_tol, the measure of the paper's theorems, with the
            method's own φ (½‖·‖² for a method without). 0 switches it off.
        maxfun: stop after this many calls of ``fun``; one call evaluates all runs of a batch. The current iteration is
            finished; with finite differences it takes one or two calls per variable. None for no limit.
        maxtime: stop after this many seconds, as soon as the call of ``fun`` returns; None for no limit.
        callback: called once an iteration with ``intermediate_result=OptimizeResult(x, fun)`` if that is its only
            parameter, else with a copy of ``x``. It may raise StopIteration to stop.
        history: whether to record every iteration.
        batch: whether the first axis of ``x0`` numbers independent runs. ``fun`` then returns one f for each run. A run
            that has ended stays where it is.
        bounds: as SciPy takes them, or an `npgm.proximal.Box`, for the point of one run. They become ``prox``. A start
            outside is projected, and ``message`` says so.
        **options: the method's own options. Every method takes ``lr``, the stepsize γ. For "gd", "gdm", "npgm" and
            "proximal" it may name a rule (see `npgm.solvers.stepsizes`); a step that fails the rule's test is not
            taken. ``prox``, of `npgm.proximal`, is a function g to add to f. Everywhere here except for ``fun``, f then
            means f + g, and ∇f a subgradient of f + g. At ``x0`` no subgradient is known: it is NaN there, and its norm
            infinite.

    Returns:
        `scipy.optimize.OptimizeResult` with x, fun, jac, nit, nfev, njev, success, status (see `npgm.solvers.Status`),
        message, and best, the x, fun and nit of the least value seen. With ``history``, also history, a dict of arrays
        over k = 0, ..., nit that records its method (see `npgm.solvers.History`). After a divergence, x, fun and jac
        are the last finite ones. If a run did not converge and f and ‖∇f‖ stopped falling long before its end, the
        message says so. It says whether the points cycle or f does not match its gradient, and which stepsize the
        curvature suggests if all steps had the same. For a batch, fun, nit, success, status and message have one entry
        for each run, and a history array has shape (iterations + 1, runs), constant after the end of a run.

    Raises:
        TypeError, ValueError: before the first step, if an argument or option is not accepted, or if ``fun`` returns
            something of the wrong shape or is not finite at ``x0``.

    Example:
        >>> import numpy as np, npgm
        >>> def fun(x):   # a quartic, whose gradient is not Lipschitz
        ...     return np.sum(x**4 / 4 + x**2 / 2), x**3 + x
        >>> npgm.minimize(fun, np.array([1000.0, -1.0])).success
        True
        >>> npgm.minimize(fun, np.array([1000.0, -1.0]), lr=0.4).success   # the paper's base method
        True
    """
    box = None if bounds is None else as_box(bounds, np.shape(x0)[1:] if batch else np.shape(x0))
    solver = chosen(method, options, box)
    maxiter = validate.count("maxiter", maxiter)
    tol = validate.nonnegative("tol", tol)
    stationarity_tol = validate.nonnegative("stationarity_tol", stationarity_tol)
    calls = math.inf if maxfun is None else validate.count("maxfun", maxfun, least=1)
    deadline = math.inf if maxtime is None else validate.nonnegative("maxtime", maxtime)
    objective = Objective(fun, jac, args, x0, batch, box)
    solver = solver.flattened(objective.point_shape)
    call = as_callback(callback, objective)
    with np.errstate(all="ignore"):  # not in the calls of the user's functions
        loop = _Loop(objective, solver, tol, stationarity_tol, history)
        loop.run(maxiter, calls, deadline, call)
        return loop.result()


class _Loop:
    """The state of a call of `minimize`: where all runs are, and how each stands."""

    def __init__(
        self, objective: Objective, method: Method, tol: float, stationarity_tol: float, history: bool
    ) -> None:
        self.objective, self.method = objective, method
        self.tol, self.stationarity_tol = tol, stationarity_tol
        self.start = time.perf_counter()
        stepper = native.stepper(objective, method)
        smooth = ArrayIterate(objective, method) if stepper is None else NativeIterate(objective, method, stepper)
        if history or stationarity_tol > 0.0:
            self.phi = method.preconditioned(objective.xp, point(objective.xp, smooth))
        self.iterate: Iterate = smooth
        if isinstance(method, CompositeMethod):
            self.iterate = (
                NativeComposite(smooth, method) if isinstance(smooth, NativeIterate) else ArrayComposite(smooth)
            )
        self.progress = Progress(objective, self.iterate)
        self.to_a_tolerance = tol > 0.0 or stationarity_tol > 0.0
        self.k = 0
        self.nit = np.zeros(objective.runs, dtype=np.int64)
        self.status = np.full(objective.runs, _RUNNING)
        self.running = np.ones(objective.runs, dtype=np.bool_)
        self.all_run = self.some_run = True
        self.history = Recorder(objective.xp, method, self.phi) if history else None

    def run(
        self, maxiter: int, maxfun: float, deadline: float, callback: Callable[[Array, Floats], None] | None
    ) -> None:
        """Iterate until no run goes on."""
        while True:
            self._check(maxiter, maxfun, deadline)
            if callback is not None and self.k > 0:
                try:
                    callback(self.iterate.x, self.iterate.f)
                except StopIteration:
                    self._end(Status.STOPPED)
            if not self.some_run:
                return
            failed = self.iterate.advance(None if self.all_run else self.running)
            self.k += 1
            due = self.progress.record(self.k)
            if math.isnan(self.iterate.least):
                self._end(Status.UNBOUNDED, unbounded(self.iterate))
            if failed is not None:
                self._end(Status.DIVERGED, failed)
            if due is not None and self.to_a_tolerance and self.objective.nfev < maxfun:
                due &= self.running & (self.iterate.grad_norm > self.tol)
                if due.any():
                    self._end(Status.ROUNDING, due & self.progress.exhausted())
                    self._end(Status.STUCK, due & self.progress.still())

    def _check(self, maxiter: int, maxfun: float, deadline: float) -> None:
        """Record the present iterate, and end the runs that are done."""
        seconds = time.perf_counter() - self.start
        iterate = self.iterate
        if self.history is not None:
            self.history.append(iterate, seconds)
        goes_on = self.k < maxiter and self.objective.nfev < maxfun and seconds < deadline
        if goes_on and iterate.least > self.tol and self.stationarity_tol == 0.0:
            return  # the usual case
        converged = iterate.grad_norm <= self.tol
        if self.stationarity_tol > 0.0:
            converged |= self._stationarity() <= self.stationarity_tol
        self._end(Status.CONVERGED, converged)
        if self.k >= maxiter:
            self._end(Status.MAXITER)
        elif self.objective.nfev >= maxfun:
            self._end(Status.MAXFUN)
        elif seconds >= deadline:
            self._end(Status.MAXTIME)

    def _end(self, status: Status, runs: Bools | None = None) -> None:
        """End those of ``runs``, None for all, that are running."""
        ended = self.running if runs is None else self.running & runs
        self.status[ended], self.nit[ended] = status, self.k
        self.running = self.running & ~ended
        self.all_run, self.some_run = bool(self.running.all()), bool(self.running.any())

    def _stationarity(self) -> Floats:
        if isinstance(self.phi.reference, Isotropic):
            return self.phi.stationarity_of_norms(self.iterate.grad_norm)
        return to_host(self.phi.stationarity(self.iterate.grad))

    def result(self) -> OptimizeResult:
        """Return what `minimize` returns."""
        objective, best = self.objective, self.progress
        messages = self._messages()
        success = self._ended_by(*SUCCESS)
        batch = objective.batch
        result = OptimizeResult(
            x=objective.unflatten(self.iterate.x),
            fun=scalars(self.iterate.f, objective),
            jac=objective.unflatten(self.iterate.grad),
            best=OptimizeResult(
                x=objective.xp.asarray(objective.unflatten(best.x), copy=True),
                fun=scalars(best.f, objective),
                nit=best.nit if batch else int(best.nit[0]),
            ),
            nit=self.nit if batch else int(self.nit[0]),
            nfev=objective.nfev,
            njev=objective.njev,
            success=success if batch else bool(success[0]),
            status=self.status if batch else Status(self.status[0]),
            message=messages if batch else messages[0],
        )
        if self.history is not None:
            eps = float(objective.xp.finfo(objective.x0.dtype).eps)
            result.history = self.history.history(batch, eps, self.nit, self.status == Status.DIVERGED)
        return result

    def _ended_by(self, *statuses: Status) -> Bools:
        return np.array([status in statuses for status in self.status.tolist()])

    def _messages(self) -> list[str]:
        method, objective, progress = self.method, self.objective, self.progress
        messages = [self._message(i) for i in range(objective.runs)]
        for i in np.flatnonzero(objective.projected).tolist():
            messages[i] += " x0 was outside the bounds and was projected onto them."
        unended = self._ended_by(Status.MAXITER, Status.MAXFUN, Status.MAXTIME)
        diverged, stuck = self.status == Status.DIVERGED, self.status == Status.STUCK
        resting = progress.resting(self.nit) & unended
        in_vain = diverged | stuck | resting | (unended & (progress.nit == 0) & (self.nit > 0))
        if not in_vain.any():
            return messages
        cycling = resting & progress.moving()
        calls_left = not (self.status == Status.MAXFUN).any()
        at_start = Probe(method, objective, objective.x0) if calls_left else None
        advised = method.fixed_lr is not None
        here = Probe(method, objective, self.iterate.x) if calls_left and advised and cycling.any() else None
        for i, since in enumerate(progress.last_progress):
            unfallen = f"f and its gradient have not fallen since iteration {since}"
            if cycling[i]:
                messages[i] += f" The points cycle: {unfallen}, while the steps stay long."
            elif resting[i]:
                messages[i] += f" The points rest: {unfallen}, and the steps are too short to change that."
            if at_start is not None and in_vain[i] and at_start.contradicts[i]:
                messages[i] += (
                    " At x0, f does not change as its gradient predicts; check the gradient with "
                    "scipy.optimize.check_grad."
                )
            elif here is not None and cycling[i]:
                messages[i] += f" The curvature there suggests lr={here.lr[i]:.1e}."
            elif at_start is not None and diverged[i] and advised:
                messages[i] += f" Try a smaller stepsize, for example lr={at_start.lr[i]:.1e}."
            elif advised and (stuck[i] or (resting[i] and not cycling[i])):
                messages[i] += f" lr={method.fixed_lr:g} may be too small."
        return messages

    def _message(self, run: int) -> str:
        match Status(self.status[run]):
            case Status.CONVERGED if self.iterate.grad_norm[run] <= self.tol:
                return f"Converged: the gradient norm {self.iterate.grad_norm[run]:.3g} is at most tol = {self.tol:g}."
            case Status.CONVERGED:
                return f"Converged: the stationarity measure is at most stationarity_tol = {self.stationarity_tol:g}."
            case Status.ROUNDING:
                return (
                    f"No progress is possible in {self.iterate.x.dtype}: f no longer falls, and rounding explains the "
                    f"gradient norm {self.iterate.grad_norm[run]:.3g}; tol = {self.tol:g} is out of reach."
                )
            case Status.MAXITER:
                return f"Maximum number of iterations, {self.k}, was reached."
            case Status.MAXFUN:
                return f"Maximum number of evaluations was reached: fun was called {self.objective.nfev} times."
            case Status.MAXTIME:
                return f"The time limit was reached at iteration {self.nit[run]}."
            case Status.STUCK:
                return f"Stuck at iteration {self.nit[run]}: the steps are too short to change x."
            case Status.UNBOUNDED:
                return f"f is -inf at iteration {self.nit[run]}: it has no minimum."
            case Status.STOPPED:
                return "`callback` raised `StopIteration`."
            case _:
                return f"Diverged at iteration {self.nit[run]}: f or its gradient is no longer finite."

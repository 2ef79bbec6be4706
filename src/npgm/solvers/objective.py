"""The user's function and gradient behind one checked call."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import array_api_compat
import numpy as np
from scipy.optimize import OptimizeResult
from scipy.optimize._numdiff import approx_derivative  # which has no public name for all schemes

from npgm._common.array import Array, Floats, as_real_array, to_bools, to_host
from npgm.proximal import Box

Callback = Callable[..., Any]


class NotFiniteError(ValueError):
    """The start, or f or its gradient there, is not finite."""

    @classmethod
    def at_start(cls) -> NotFiniteError:
        return cls("fun or its gradient is not finite at x0; start where both are")


class Objective:
    """Evaluates f and ∇f at points of shape (runs, n), where the user's function sees the shape of ``x0``.

    Args:
        fun, jac, args: as `npgm.minimize` takes them.
        x0: the start, of shape (n1, n2, ...), or (runs, n1, ...) if ``batch``.
        batch: whether the first axis of ``x0`` counts independent runs.
        box: bounds, onto which the start is projected, and outside of which no difference is taken.

    Raises:
        TypeError, ValueError: if an argument is not what `npgm.minimize` accepts.
    """

    def __init__(
        self, fun: Callable[..., Any], jac: Any, args: tuple[Any, ...], x0: Array, batch: bool, box: Box | None = None
    ) -> None:
        if not callable(fun):
            raise TypeError(f"fun must be callable, not {fun!r}")
        self.scheme = _scheme(jac)
        self.xp, x0 = as_real_array(_floating(_detached(x0)), "x0")
        if self.scheme is not None and (batch or not isinstance(x0, np.ndarray)):
            raise ValueError(f"jac={jac!r} works only for one start in a NumPy array; pass the gradient instead")
        if batch and x0.ndim < 1:
            raise ValueError("x0 must have a first axis that numbers the runs, since batch=True")
        if math.prod(x0.shape) == 0:
            raise ValueError(f"x0 must not be empty, but has shape {tuple(x0.shape)}")
        self.fun, self.jac = fun, jac
        self.args = args if isinstance(args, tuple) else (args,)
        self.shape = tuple(x0.shape)
        self.batch = batch
        self.runs = self.shape[0] if batch else 1
        self.x0: Array = self.xp.asarray(self.xp.reshape(x0, (self.runs, -1)), copy=True)
        if not bool(self.xp.all(self.xp.isfinite(self.x0))):
            raise NotFiniteError("x0 must be finite, but contains NaN or infinity")
        self.projected = np.zeros(self.runs, dtype=np.bool_)
        """Which starts were outside of the bounds."""
        self.box = box
        if box is not None:
            given = self.x0
            points = self.xp.reshape(given, (self.runs, *self.point_shape))
            inside = box.prox(points, 1.0, tuple(range(1, points.ndim)))
            self.x0 = self.xp.reshape(inside, (self.runs, -1))
            self.projected = to_bools(self.xp.any(self.x0 != given, axis=-1))
        self.nfev = self.njev = 0
        self.errors = np.geterr()

    @property
    def callers_errstate(self) -> Any:
        """A context in which NumPy warns and raises as where `minimize` was called: the user's functions see nothing of
        what the solver ignores in its own arithmetic."""
        return np.errstate(**self.errors)

    @property
    def point_shape(self) -> tuple[int, ...]:
        """The shape of the variables of one run."""
        return self.shape[1:] if self.batch else self.shape

    def __call__(self, point: Array) -> tuple[Floats | float, Array]:
        """Return f and ∇f at ``point``, which has the shape of ``x0``.

        Returns:
            f as a float or as a NumPy array of shape (runs,) in float64, and ∇f of the shape of ``x0``, perhaps not in
            its dtype, and perhaps in an array that the next call overwrites.
        """
        with self.callers_errstate:
            pair = self.fun(point, *self.args)
            if self.scheme is not None:
                pair = pair, self._differences(point, pair)
            elif self.jac is not True:
                pair = pair, self.jac(point, *self.args)
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(
                f"fun must return the pair (f, gradient), since jac=True, not {type(pair).__name__}; for a function "
                'without gradient give jac="2-point", finite differences'
            )
        value, grad = pair
        if np.ndim(grad) == 0 and self.shape and np.shape(value) == self.shape:
            raise TypeError("fun returned a pair of the gradient's shape and a number: are f and the gradient swapped?")
        self.nfev += 1
        self.njev += 1
        return self._value(value), self._gradient(grad)

    def _differences(self, point: Floats, value: Any) -> Floats:
        """Return the gradient by SciPy's finite differences."""

        def flat(x: Floats) -> Any:
            self.nfev += 1
            return self.fun(x.reshape(self.shape), *self.args)

        f = float(np.asarray(value).item())
        ends = (-np.inf, np.inf) if self.box is None else (self.box.lower, self.box.upper)
        # in the dtype of the point, which could lie outside else
        limits: Any = [np.broadcast_to(end, self.shape).astype(point.dtype).ravel() for end in ends]
        grad: Floats = approx_derivative(flat, np.ravel(point), method=self.scheme, f0=np.atleast_1d(f), bounds=limits)
        return grad.reshape(self.shape)

    def at(self, x: Array) -> tuple[Floats, Array]:
        """Return f of shape (runs,) in float64 and ∇f of shape (runs, n) at ``x`` of shape (runs, n), as new arrays."""
        value, grad = self(self.unflatten(x))
        f = np.empty(self.runs)
        f[...] = value
        return f, self.xp.asarray(self.xp.reshape(grad, (self.runs, -1)), dtype=x.dtype, copy=True)

    def unflatten(self, x: Array) -> Array:
        """Return ``x`` of shape (runs, n) in the shape that the user's function sees."""
        return self.xp.reshape(x, self.shape)

    def _value(self, value: Any) -> Floats | float:
        if isinstance(value, float) and not self.batch:  # the usual case; a float64 of NumPy is one
            return value
        value = self._as_array(value, "f")
        if math.prod(value.shape) != self.runs:
            wanted = f"{self.runs} values, one for each run" if self.batch else "a scalar"
            raise ValueError(f"fun must return {wanted}, but returned an array of shape {tuple(value.shape)}")
        return to_host(self.xp.reshape(value, (self.runs,)))

    def _gradient(self, grad: Any) -> Array:
        if type(grad) is not np.ndarray or grad.dtype is not self.x0.dtype:  # as it is in the usual case
            grad = self._as_array(grad, "the gradient")
        if grad.shape != self.shape:
            raise ValueError(f"the gradient has shape {tuple(grad.shape)}, but x0 has shape {self.shape}")
        return grad

    def _as_array(self, value: Any, name: str) -> Array:
        xp, value = as_real_array(_floating(_detached(value)), name)
        if xp is self.xp:
            return value
        if isinstance(self.x0, np.ndarray):  # of a function of torch or JAX, called with NumPy's points
            return np.asarray(value.cpu() if hasattr(value, "cpu") else value)
        if array_api_compat.is_numpy_array(value):  # a Python or NumPy number beside torch or JAX arrays
            x0 = self.x0
            return self.xp.asarray(value.tolist(), dtype=x0.dtype, device=array_api_compat.device(x0))
        raise TypeError(f"{name} is an array of {type(value).__module__}, but x0 of {type(self.x0).__module__}")


def _scheme(jac: Any) -> str | None:
    """Return the name of SciPy's differences that ``jac`` asks for, None where the user gives the gradient."""
    if jac is True or callable(jac):
        return None
    if jac is None or jac is False:
        return "2-point"
    if jac in ("2-point", "3-point", "cs"):
        return str(jac)
    raise ValueError(
        "jac must be True, if fun returns (f, gradient), a function that returns the gradient, or '2-point', "
        f"'3-point', 'cs' or None for finite differences, not {jac!r}"
    )


def _floating(x: Any) -> Any:
    """Return integers of NumPy, or in a sequence, in float64, as SciPy does; anything else as it is."""
    if not array_api_compat.is_array_api_obj(x):
        x = np.asarray(x)
    return x.astype(np.float64) if isinstance(x, np.ndarray | np.generic) and x.dtype.kind in "iu" else x


def _detached(x: Any) -> Any:
    """Return a torch tensor without its graph, anything else as it is."""
    return x.detach() if hasattr(x, "detach") else x


def as_callback(callback: Callback | None, objective: Objective) -> Callable[[Array, Floats], None] | None:
    """Return SciPy's two kinds of callback as a function of ``x`` and ``f``, or None.

    A callback with the single parameter ``intermediate_result`` receives an `OptimizeResult` by that keyword, any
    other one a copy of ``x``.
    """
    if callback is None:
        return None
    if not callable(callback):
        raise TypeError(f"callback must be callable, not {callback!r}")
    try:
        wants_result = list(inspect.signature(callback).parameters) == ["intermediate_result"]
    except ValueError:  # some builtins have no signature
        wants_result = False

    def call(x: Array, f: Floats) -> None:
        point = objective.xp.asarray(objective.unflatten(x), copy=True)
        with objective.callers_errstate:
            if wants_result:
                callback(intermediate_result=OptimizeResult(x=point, fun=scalars(f, objective)))
            else:
                callback(point)

    return call


def scalars(f: Floats, objective: Objective) -> Any:
    """Return values of all runs as a new array of shape (runs,) for a batch, as a Python number otherwise."""
    return f.copy() if objective.batch else float(f[0])

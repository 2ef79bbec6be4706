"""The solvers as methods of `scipy.optimize.minimize`."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from scipy.optimize import OptimizeResult, OptimizeWarning

from npgm._common.array import Array
from npgm.solvers.loop import Status, minimize
from npgm.solvers.method import registry
from npgm.solvers.objective import NotFiniteError

_COMMON = ("maxiter", "tol", "stationarity_tol", "maxfun", "maxtime", "history")


@dataclass(frozen=True)
class ScipyMethod:
    """A solver as the ``method=`` of `scipy.optimize.minimize`, with its options in ``options=``.

        >>> import numpy as np, npgm, scipy.optimize
        >>> fun = lambda x: (float(np.sum(np.cosh(x) - 1)), np.sinh(x))
        >>> res = scipy.optimize.minimize(
        ...     fun, [5.0, -3.0], jac=True, method=npgm.solvers.npgm, options={"lr": 0.5}
        ... )
        >>> res.success
        True

    Without ``jac``, finite differences supply the gradient; ``hess`` gives a warning. ``disp`` prints how the run
    ended, and warns if it failed. If something is not finite at the start, the run fails but raises no error.

    Raises:
        ValueError: if constraints are given, or bounds to a method without a proximal step.
    """

    key: str

    def __call__(
        self,
        fun: Callable[..., Any],
        x0: Array,
        args: tuple[Any, ...] = (),
        *,
        jac: Any = None,
        hess: Any = None,
        hessp: Any = None,
        bounds: Any = None,
        constraints: Any = (),
        callback: Any = None,
        **options: Any,
    ) -> OptimizeResult:
        if constraints is not None and constraints != () and constraints != []:
            raise ValueError(f"method {self.key!r} does not take constraints")
        if hess is not None or hessp is not None:
            warnings.warn(f"Method {self.key} does not use Hessian information", RuntimeWarning, stacklevel=3)
        display = bool(options.pop("disp", False))
        accepted = {*_COMMON, *registry[self.key].options()}
        if unknown := sorted(set(options) - accepted):
            warnings.warn(
                f"Unknown solver options: {', '.join(unknown)}; accepted: {', '.join(sorted(accepted))}",
                OptimizeWarning,
                stacklevel=3,
            )
        known = {name: value for name, value in options.items() if name in accepted}
        known |= {"jac": _at_a_copy(jac), "method": self.key, "callback": callback, "bounds": bounds}
        for name in ("maxiter", "maxfun"):
            if not isinstance(known.get(name, 0), int):  # SciPy's methods accept any number, and None for the default
                limit = known.pop(name)
                known |= {} if limit is None else {name: int(min(limit, sys.maxsize))}
        try:
            result = minimize(_at_a_copy(fun), x0, args, **known)
        except NotFiniteError as error:
            result = OptimizeResult(
                x=np.asarray(x0), fun=math.nan, jac=np.full(np.shape(x0), math.nan), nit=0, nfev=1, njev=1,
                success=False, status=Status.DIVERGED, message=str(error),
            )  # fmt: skip
        if display:
            if result.success:
                print(result.message)
            else:
                warnings.warn(result.message, OptimizeWarning, stacklevel=3)
            print(f"f = {result.fun}, {result.nit} iterations, {result.nfev} evaluations")
        return result


def _at_a_copy(function: Any) -> Any:
    """Return a function that is called with a copy of the point, as by SciPy's own methods: it may write into it."""
    if not callable(function):
        return function
    return lambda x, *args: function(array_namespace(x).asarray(x, copy=True), *args)

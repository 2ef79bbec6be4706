"""The solvers as methods of `scipy.optimize.minimize`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace
from scipy.optimize import OptimizeResult, OptimizeWarning

from npgm._array import Array
from npgm.solvers.loop import minimize
from npgm.solvers.method import registry

_COMMON = ("maxiter", "tol", "stationarity_tol", "maxtime", "history")


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

    Without ``jac`` the gradient is by finite differences; ``hess`` is warned of, ``disp`` prints how the run ended.

    Raises:
        ValueError: if constraints are given, or bounds to a method other than `npgm.solvers.proximal`.
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
        result = minimize(_at_a_copy(fun), x0, args, **known)
        if display:
            print(result.message, f"f = {result.fun}, {result.nit} iterations, {result.nfev} evaluations", sep="\n")
        return result


def _at_a_copy(function: Any) -> Any:
    """Return a function that is called with a copy of the point, as by SciPy's own methods: it may write into it."""
    if not callable(function):
        return function
    return lambda x, *args: function(array_namespace(x).asarray(x, copy=True), *args)

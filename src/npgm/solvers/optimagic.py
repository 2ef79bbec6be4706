"""`npgm.minimize` as an algorithm of optimagic, which brings its own derivatives, constraints, logs and plots.

>>> import numpy as np
>>> import optimagic as om
>>> from npgm.solvers.optimagic import Auto
>>> res = om.minimize(lambda x: x @ x, params=np.array([1000.0, -1.0]), jac=lambda x: 2 * x, algorithm=Auto)
>>> bool(np.allclose(res.params, 0.0))
True
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds

from npgm._common.array import Floats
from npgm.solvers.loop import minimize

try:
    from optimagic import mark
    from optimagic.optimization.algo_options import CONVERGENCE_GTOL_ABS, STOPPING_MAXFUN, STOPPING_MAXITER
    from optimagic.optimization.algorithm import Algorithm, InternalOptimizeResult
    from optimagic.optimization.internal_optimization_problem import InternalOptimizationProblem
    from optimagic.typing import AggregationLevel, NonNegativeFloat, PositiveInt
except ModuleNotFoundError as error:
    if error.name != "optimagic":
        raise
    raise ModuleNotFoundError(
        "npgm.solvers.optimagic needs optimagic: pip install optimagic", name="optimagic"
    ) from error

__all__ = ["Auto"]


@mark.minimizer(
    name="npgm_auto",
    solver_type=AggregationLevel.SCALAR,
    is_available=True,
    is_global=False,
    needs_jac=True,
    needs_hess=False,
    needs_bounds=False,
    supports_parallelism=False,
    supports_bounds=True,
    supports_infinite_bounds=True,
    supports_linear_constraints=False,
    supports_nonlinear_constraints=False,
)
@dataclass(frozen=True)
class Auto(Algorithm):  # type: ignore[misc]
    """The ``algorithm`` of `optimagic.minimize` that runs `npgm.minimize`, with its defaults.

    Pass the class, or an instance with options, such as ``Auto(stopping_maxfun=500)``.
    """

    convergence_gtol_abs: NonNegativeFloat = CONVERGENCE_GTOL_ABS
    """``tol`` of `npgm.minimize`: stop where the Euclidean norm of the gradient, or with bounds of a subgradient, is at
    most this."""

    stopping_maxfun: PositiveInt = STOPPING_MAXFUN
    """The largest number of evaluations of the function with its gradient."""

    stopping_maxiter: PositiveInt = STOPPING_MAXITER
    """The largest number of iterations."""

    stopping_maxtime: NonNegativeFloat | None = None
    """The seconds after which to stop; None for no limit."""

    def _solve_internal_problem(self, problem: InternalOptimizationProblem, x0: Floats) -> InternalOptimizeResult:
        given = problem.bounds
        lower, upper = (
            np.full(x0.shape, default) if end is None else end
            for end, default in ((given.lower, -np.inf), (given.upper, np.inf))
        )
        bounded = bool(np.isfinite(lower).any() or np.isfinite(upper).any())
        result = minimize(
            problem.fun_and_jac,
            x0,
            bounds=Bounds(lower, upper) if bounded else None,
            tol=self.convergence_gtol_abs,
            maxfun=self.stopping_maxfun,
            maxiter=self.stopping_maxiter,
            maxtime=self.stopping_maxtime,
        )
        return InternalOptimizeResult(
            x=result.x,
            fun=result.fun,
            jac=result.jac,
            success=result.success,
            status=int(result.status),
            message=result.message,
            n_iterations=result.nit,
            n_fun_evals=result.nfev,
            n_jac_evals=result.njev,
        )

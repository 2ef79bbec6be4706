"""The checks of SciPy's own tests of `scipy.optimize.minimize`, with `npgm.solvers.auto` in the place of its methods.

Not among them are those of options and results that auto has not (bounds, constraints, Hessians, ``hess_inv``, ``gtol``,
``maxls``, the wording of L-BFGS-B's messages), those that count evaluations, and two that differ by intent: where f is NaN
at all points but the first SciPy returns a NaN, and this the first point; and ``tol`` is absolute here.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from scipy import optimize

import npgm

with pytest.MonkeyPatch.context() as patch:
    patch.setattr(pytest.mark, "_config", None)  # as SciPy has markers of its own
    suite = pytest.importorskip("scipy.optimize.tests.test_optimize")

CHECKS = [
    ("CheckOptimizeParameterized", "cg_cornercase"),
    ("CheckOptimizeParameterized", "bfgs_infinite"),
    ("TestOptimizeSimple", "finite_differences_jac"),
    ("TestOptimizeSimple", "bfgs_double_evaluations"),
    ("TestOptimizeSimple", "minimize_l_bfgs_b"),
    ("TestOptimizeSimple", "minimize_tol_parameter"),
    ("TestOptimizeSimple", "minimize_coerce_args_param"),
    ("TestOptimizeSimple", "minimize_callback_copies_array"),
    ("TestOptimizeSimple", "no_increase"),
    ("TestOptimizeSimple", "respect_maxiter"),
    ("TestOptimizeSimple", "nan_values"),
    ("TestOptimizeSimple", "duplicate_evaluations"),
    ("TestOptimizeSimple", "callback_stopiteration"),
    ("TestOptimizeSimple", "minimize_warnings_gh1953"),
    ("TestOptimizeSimple", "ndim_error"),
    ("TestOptimizeResultAttributes", "attributes_present"),
    ("TestWorkers", "smoke"),
    (None, "result_x_shape_when_len_x_is_one"),
    (None, "minimize_maxiter_noninteger"),
    (None, "x_overwritten_user_function"),
]
SLOW = {"cg_cornercase", "minimize_tol_parameter"}


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::scipy.optimize.OptimizeWarning")
@pytest.mark.parametrize(
    ("case", "name"), [pytest.param(*c, marks=[pytest.mark.slow] * (c[1] in SLOW), id=c[1]) for c in CHECKS]
)
def test_auto_passes_scipys_check(case, name, monkeypatch):
    original = optimize.minimize

    def minimize(fun, x0, args=(), method=None, **kwargs):
        return original(fun, x0, args, method=npgm.solvers.auto, **kwargs)

    monkeypatch.setattr(optimize, "minimize", minimize)
    owner = suite if case is None else getattr(suite, case)()
    if case is not None:
        owner.use_wrapper, owner.disp = True, False
        getattr(owner, "setup_method", lambda: None)()
    check = getattr(owner, f"test_{name}", None)
    if check is None:
        pytest.skip("this version of SciPy has no such check")
    values = {"method": ["bfgs", "newton-cg"], "workers": [None], "new_cb_interface": [0, 1, 2]}
    calls = [{}]
    for parameter in inspect.signature(check).parameters:
        calls = [call | {parameter: value} for call in calls for value in values[parameter]]
    for call in calls:
        check(**call)


def test_basinhopping_survives_a_step_to_nan():
    def fun(x):
        return float(np.sum(x**2)) if (x < 1.5).all() else np.nan

    res = optimize.basinhopping(fun, [1.0, 1.0], niter=10, rng=0, minimizer_kwargs={"method": npgm.solvers.auto})
    assert res.lowest_optimization_result.success

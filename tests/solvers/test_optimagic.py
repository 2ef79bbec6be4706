"""`npgm.solvers.optimagic.Auto` inside of optimagic itself."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import npgm

pytestmark = [
    pytest.mark.slow,  # optimagic loads pandas and plotly, and is imported by what calls it
    pytest.mark.skipif(importlib.util.find_spec("optimagic") is None, reason="needs optimagic"),
]

START = np.array([-1.2, 1.0])


def fun(x):
    return float((1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2)


def jac(x):
    b = x[1] - x[0] ** 2
    return np.array([-2 * (1 - x[0]) - 400 * x[0] * b, 200 * b])


def pair(x):
    return fun(x), jac(x)


def auto(*args, **kwargs):
    import optimagic as om

    from npgm.solvers.optimagic import Auto

    return om.minimize(*args, algorithm=Auto(**kwargs.pop("options", {})), **kwargs)


@pytest.mark.parametrize("derivatives", [{"jac": jac}, {"fun_and_jac": pair}])
def test_a_run_is_that_of_minimize(derivatives):
    found = auto(fun, params=START, options={"convergence_gtol_abs": 1e-9}, **derivatives)
    want = npgm.minimize(pair, START, tol=1e-9)
    np.testing.assert_array_equal(found.params, want.x)
    assert (found.n_iterations, found.n_fun_evals, found.message) == (want.nit, want.nfev, want.message)
    assert found.success


@pytest.mark.parametrize("bounds", [{"upper": [0.5, np.inf]}, {"lower": [-2.0, -2.0], "upper": [0.5, 0.2]}])
def test_bounds_hold_and_those_at_infinity_are_none(bounds):
    import optimagic as om

    given = om.Bounds(**{name: np.array(end) for name, end in bounds.items()})
    start = np.array([-1.2, 0.1])
    found = auto(fun, params=start, jac=jac, bounds=given, options={"convergence_gtol_abs": 1e-8})
    want = om.minimize(fun, params=start, jac=jac, bounds=given, algorithm="scipy_lbfgsb")
    np.testing.assert_allclose(found.params, want.params, atol=1e-4)
    infinite = om.Bounds(lower=np.full(2, -np.inf), upper=np.full(2, np.inf))
    free, unbounded = (auto(fun, params=START, jac=jac, **given) for given in ({}, {"bounds": infinite}))
    np.testing.assert_array_equal(free.params, unbounded.params)


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"stopping_maxfun": 7}, npgm.solvers.Status.MAXFUN),
        ({"stopping_maxiter": 5}, npgm.solvers.Status.MAXITER),
        ({"stopping_maxtime": 0.0}, npgm.solvers.Status.MAXTIME),
    ],
)
def test_each_budget_ends_a_run(options, status):
    found = auto(fun, params=START, jac=jac, options=options)
    assert (found.status, found.success) == (status, False)


def test_trees_scaling_fixed_parameters_numerical_derivatives():
    from optimagic import FixedConstraint

    found = auto(
        lambda p: (p["a"] - 1) ** 2 + 1e4 * (p["b"] - p["c"]) ** 2,
        params={"a": 5.0, "b": 3.0, "c": 2.0},
        constraints=FixedConstraint(lambda p: p["c"]),
        scaling=True,
    )
    np.testing.assert_allclose([found.params[name] for name in "abc"], [1.0, 2.0, 2.0], atol=1e-4)

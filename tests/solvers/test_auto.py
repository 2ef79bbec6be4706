"""The parts of the method "auto", and where each of them has its turn."""

from __future__ import annotations

import numpy as np
import pytest

import npgm
from npgm.solvers.methods.auto import growth
from npgm.solvers.methods.auto.line import ARMIJO, cubic_minimiser
from npgm.solvers.methods.auto.quasi_newton import QuasiNewton, at_end
from npgm.solvers.point import Point, Trial
from npgm.theory import certify


def trial(fun, x, y):
    """Return the step from x to y."""
    points = []
    for point in (x, y):
        f, grad = fun(point)
        points.append(Point(point[None], np.array([[f]]), grad[None], np.linalg.norm(grad).reshape(1, 1)))
    return Trial.of(np, *points, (y - x)[None], np.zeros((1, x.size)), np.zeros((1, 1)))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("decades", [0, 3])
def test_the_compact_form_is_that_of_bfgs(decades, wide):
    """Built from a diagonal matrix where the variables are of different scales, else from a multiple of the identity."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((6, 6))
    units = np.logspace(0, decades, 6)
    A = (A @ A.T + 6 * np.eye(6)) * np.outer(units, units)

    def quadratic(x):
        return 0.5 * x @ A @ x, A @ x

    newton = QuasiNewton(memory=4)
    x = rng.standard_normal(6) / units
    state = newton.init(np, trial(quadratic, x, x).here)
    pairs, gain, E = [], 0.0, None
    for _ in range(9):
        step = trial(quadratic, x, x + rng.standard_normal(6) / units)
        state = newton.learn(np, step, newton.curved(step), state, np.array([[wide]]))
        pairs.append((step.step[0], step.change[0]))
        s, y = pairs[-1]
        E = y @ y / (s @ y) * np.eye(6) if E is None else E
        along_s, along_y = s @ E @ s, y @ np.linalg.solve(E, y)
        gain = 0.9 * gain + np.log(y @ y * (s @ s) / along_y / along_s)
        B = along_y / (s @ y) * E
        E = np.diag(np.diag(B - np.outer(B @ s, B @ s) / (s @ B @ s) + np.outer(y, y) / (s @ y)))
        even = s @ y / (y @ y) * np.eye(6)
        H, along = (np.linalg.inv(E), along_s * along_y) if gain > 2.0 else (even, s @ s * (y @ y))
        H *= np.sqrt(along) / (s @ y) if wide else 1.0
        for s, y in pairs[-4:]:
            V = np.eye(6) - np.outer(y, s) / (s @ y)
            H = V.T @ H @ V + np.outer(s, s) / (s @ y)
        here = trial(quadratic, x, x).here
        np.testing.assert_allclose(newton.at(np, here, state)[0][0], H @ here.grad[0], rtol=1e-7)
    assert (gain > 2.0) == (decades > 0)


@pytest.mark.parametrize(
    ("height", "end", "ratio"),
    [(0.0, 2.0, 5.0 / 3.0), (0.0, -0.4, 1.0 / 3.0), (0.0, -0.49, 0.2), (1e12, 2.0, 1.0)],
)
def test_a_pair_has_the_curvature_at_the_end_of_its_step(height, end, ratio):
    """Of x³ + 1.5x² that is 6x + 3, unless the height hides how f changes."""

    def cubic(x):
        return height + np.sum(x**3 + 1.5 * x**2), 3.0 * x**2 + 3.0 * x

    step = trial(cubic, np.zeros(1), np.array([end]))
    pair = at_end(np, step)
    np.testing.assert_allclose(pair.change, ratio * step.change, rtol=1e-6)
    np.testing.assert_allclose(pair.product, pair.change * pair.step, rtol=1e-12)
    np.testing.assert_allclose(pair.change_norm, np.abs(pair.change), rtol=1e-12)


def test_steps_are_wide_but_after_a_rejection_or_a_heavy_ball():
    def quadratic(x):
        return 0.5 * x @ ([1.0, 1e-4] * x), [1.0, 1e-4] * x

    method = npgm.solvers.methods.auto.Auto()
    step = trial(quadratic, np.array([2.0, 2.0]), np.array([1.0, 1.0]))
    state = method.init(np, step.here)
    state = state._replace(newtons=~state.newtons, opening=~state.opening, search=state.search._replace(step=step.step))
    rejected = state.line._replace(rejections=np.ones((1, 1)))
    for before, width in (
        (state, step.step_norm * step.change_norm / step.product),
        (state._replace(line=rejected), 1.0),
        (state._replace(limit=np.full((1, 1), 1e9)), 1.0),
    ):
        taken, after = method.judge(np, step.here, step.there, before)
        assert taken.all()
        np.testing.assert_allclose(after.newton.width, width)


def test_the_cubic_is_least_where_its_slope_is_zero():
    for cubic in ([1.0, 2.0, -3.0], [-0.3, 4.0, -1.0], [2.0, -3.0, -1.0]):
        p = np.polynomial.Polynomial([0.0, *cubic[::-1]])
        least = cubic_minimiser(np, p(1.0), p.deriv()(0.0), p.deriv()(1.0))
        assert p.deriv()(least) == pytest.approx(0.0, abs=1e-12)
        assert p.deriv(2)(least) > 0.0


@pytest.mark.parametrize(("power", "quartic"), [(2, False), (4, True), (8, False)])
def test_the_degree_of_growth_is_found(power, quartic):
    def fun(x):
        return np.sum(x**power), power * x ** (power - 1)

    x = np.array([3.0, 2.9])
    assert growth.is_quartic(np, trial(fun, x, 0.95 * x))[0, 0] == quartic


def test_the_steps_of_auto_promise_what_armijo_asks_for():
    """The γ of the history makes of σγφ(u) Armijo's share of the slope, so that one bound holds for all steps."""
    problem = npgm.problems.registry["quadratic"](a=(1.0, 30.0, 900.0))
    history = npgm.minimize(problem, np.ones(3), tol=1e-8, history=True).history
    taken = history["taken"]
    assert taken[:-1].sum() > 5
    asked = 0.1 * history["lr"] * history["stationarity"]
    falls = -np.diff(history["fun"])
    assert (falls[taken[:-1]] >= asked[:-1][taken[:-1]] - 1e-12).all()
    # of a quasi-Newton step in a quadratic function, f falls by half of the slope
    assert asked[8] / falls[8] == pytest.approx(2.0 * ARMIJO, rel=0.5)
    assert certify.auto(history, minimum=0.0).holds

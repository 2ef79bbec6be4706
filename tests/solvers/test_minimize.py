from __future__ import annotations

import pickle
import time

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import torch
from hypothesis import given
from hypothesis import strategies as st

import npgm
from npgm.solvers import Status, registry

pytestmark = pytest.mark.usefixtures("solver_path")


def fun(x):
    return 0.5 * float(x @ x), x


START = np.array([3.0, -4.0])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"method": "newton"}, ValueError, "unknown method 'newton'; accepted: adgd, adgd_accel, auto, clipped_gd"),
        ({"method": npgm.solvers.gd}, TypeError, "method must be a string"),
        (
            {"bounds": [(0.0, 1.0)] * 2, "method": "gd", "lr": 0.1},
            ValueError,
            r"'gd' takes no bounds; use 'proximal_lbfgs'",
        ),
        ({"bounds": [(0.0, 1.0)], "lr": 0.1}, ValueError, "bounds has 1 pairs, but x0 has 2 entries"),
        ({"lr": None}, TypeError, "lr must be a real number, not None"),
        ({"maxiter": -1}, ValueError, "maxiter must be at least 0, not -1"),
        ({"maxiter": 1.5}, TypeError, "maxiter must be an integer, not 1.5"),
        ({"tol": -1e-3}, ValueError, "tol must be nonnegative and finite, not -0.001"),
        ({"stationarity_tol": np.inf}, ValueError, "stationarity_tol must be nonnegative and finite"),
        ({"maxfun": 0}, ValueError, "maxfun must be at least 1, not 0"),
        ({"maxfun": 9.5}, TypeError, "maxfun must be an integer, not 9.5"),
        ({"maxtime": -1}, ValueError, "maxtime must be nonnegative and finite, not -1"),
        ({"reference": "isotropic"}, ValueError, "unknown reference 'isotropic'; accepted: isotropic-artanh"),
        ({"reference": npgm.Cosh()}, TypeError, "reference must be a reference function, such as"),
        ({"callback": 3}, TypeError, "callback must be callable, not 3"),
        ({"jac": "4-point"}, ValueError, "jac must be True, if fun returns"),
        ({"jac": "2-point", "x0": torch.ones(2)}, ValueError, "works only for one start in a NumPy array"),
        ({"fun": lambda x: (x, 0.5 * float(x @ x))}, TypeError, "are f and the gradient swapped"),
        ({"fun": None}, TypeError, "fun must be callable, not None"),
        ({"x0": np.array([1j, 2])}, TypeError, "x0 has dtype complex128"),
        ({"x0": ["a"]}, TypeError, "x0 has dtype <U1"),
        ({"x0": torch.arange(3)}, TypeError, "x0 has dtype torch.int64"),
        ({"x0": np.array([])}, ValueError, r"x0 must not be empty, but has shape \(0,\)"),
        ({"x0": np.zeros((0, 3)), "batch": True}, ValueError, "x0 must not be empty"),
        ({"x0": np.array(1.0), "batch": True}, ValueError, "x0 must have a first axis"),
        ({"x0": np.array([1.0, np.nan])}, ValueError, "x0 must be finite"),
        (
            {"fun": lambda x: 1.0},
            TypeError,
            r"fun must return the pair \(f, gradient\), .* not float; .* jac=\"2-point\"",
        ),
        ({"fun": lambda x: (x, x)}, ValueError, r"fun must return a scalar, but returned an array of shape \(2,\)"),
        ({"fun": lambda x: (1.0, x[:1])}, ValueError, r"the gradient has shape \(1,\), but x0 has shape \(2,\)"),
        ({"fun": lambda x: (1.0, None)}, TypeError, "the gradient has dtype object"),
        ({"fun": lambda x: ("a", x)}, TypeError, "f has dtype"),
        ({"fun": lambda x: (1j, x)}, TypeError, "f has dtype complex128"),
        ({"fun": lambda x: (np.nan, x)}, ValueError, "fun or its gradient is not finite at x0"),
        ({"fun": lambda x: (1.0, x * np.inf)}, ValueError, "fun or its gradient is not finite at x0"),
        ({"batch": True, "x0": np.ones((3, 2))}, ValueError, "fun must return 3 values, one for each run"),
    ],
)
def test_bad_input_is_named_before_any_step(change, error, message):
    arguments = {"fun": fun, "x0": START, "lr": 0.5, **change}
    if change.get("batch") and "empty" not in message:
        arguments["fun"] = lambda x: (1.0, x)
    with pytest.raises(error, match=message):
        npgm.minimize(arguments.pop("fun"), arguments.pop("x0"), **arguments)


def test_a_method_may_need_lr_and_the_default_does_not():
    with pytest.raises(TypeError, match="method 'npgm' needs the option 'lr'"):
        npgm.minimize(fun, START, method="npgm")
    assert npgm.minimize(fun, START, history=True).history.method.key == "auto"
    assert npgm.minimize(fun, START, lr=0.5, history=True).history.method.key == "npgm"
    with pytest.raises(ValueError, match=r"method 'auto' chooses its stepsize; for lr=0\.5 use method='npgm'"):
        npgm.minimize(fun, START, method="auto", lr=0.5)


def test_the_start_is_not_changed_and_may_be_a_list():
    start = START.copy()
    res = npgm.minimize(fun, start, lr=0.5)
    np.testing.assert_array_equal(start, START)
    np.testing.assert_array_equal(npgm.minimize(fun, list(START), lr=0.5).x, res.x)


def test_any_shape_and_separate_gradient():
    start = np.arange(6.0).reshape(2, 3)
    res = npgm.minimize(lambda x, a: a * np.sum(x**2), start, (0.5,), jac=lambda x, a: 2 * a * x, lr=0.5)
    assert res.x.shape == res.jac.shape == (2, 3)
    assert res.success
    scalar = npgm.minimize(lambda x: (0.5 * x**2, x), np.array(3.0), lr=0.5)
    assert scalar.x.shape == ()
    assert scalar.success


def test_history_is_what_happened():
    phi = npgm.reference("separable-cosh", scale=2.0)
    points = [START]
    res = npgm.minimize(fun, START, lr=0.5, reference=phi, maxiter=7, tol=0.0, history=True, callback=points.append)
    assert len(points) == res.nit + 1 == 8
    np.testing.assert_allclose(res.history["fun"], [fun(x)[0] for x in points])
    np.testing.assert_allclose(res.history["grad_norm"], [np.linalg.norm(x) for x in points])
    np.testing.assert_allclose(res.history["stationarity"], [phi(phi.precondition(x)) for x in points])
    assert (np.diff(res.history["seconds"]) > 0).all()
    assert res.history.method == registry["npgm"](lr=0.5, reference=phi)
    assert pickle.loads(pickle.dumps(res.history)).method == res.history.method
    single = npgm.minimize(fun, START.astype(np.float32), lr=0.5, history=True).history
    assert (res.history.eps, single.eps) == (2.0**-52, 2.0**-23)
    assert "history" not in npgm.minimize(fun, START, lr=0.5)


def test_a_method_that_is_built_already():
    built = registry["npgm"](lr=0.5, momentum=0.3)
    np.testing.assert_array_equal(
        npgm.minimize(fun, START, method=built, maxiter=5).x,
        npgm.minimize(fun, START, lr=0.5, momentum=0.3, maxiter=5).x,
    )
    with pytest.raises(TypeError, match="has its options already; 'lr' is one too many"):
        npgm.minimize(fun, START, method=built, lr=0.5)


@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-cosh"])
def test_stationarity_tolerance(name):
    phi = npgm.reference(name)
    res = npgm.minimize(fun, START, lr=0.1, reference=phi, tol=0.0, stationarity_tol=1e-3, history=True)
    assert res.success
    assert "stationarity_tol" in res.message
    assert res.message.isascii()  # whatever the encoding of the terminal that a user prints it on
    assert res.history["stationarity"][-1] <= 1e-3 < res.history["stationarity"][-2]


def test_tol_zero_runs_all_of_maxiter():
    res = npgm.minimize(fun, START, lr=1e-3, tol=0.0, maxiter=25)
    assert (res.nit, res.status, res.success) == (25, Status.MAXITER, False)
    none = npgm.minimize(fun, START, lr=1e-3, maxiter=0)
    assert (none.nit, none.nfev) == (0, 1)


def test_time_limit(monkeypatch):
    clock = 0.0

    def slow(x):
        nonlocal clock
        clock += 1.0
        return fun(x)

    monkeypatch.setattr(time, "perf_counter", lambda: clock)
    res = npgm.minimize(slow, START, lr=1e-6, maxtime=5.0)
    assert (res.status, res.nfev) == (Status.MAXTIME, 5)
    assert npgm.minimize(fun, START, lr=1e-6, maxtime=0.0).nit == 0


@pytest.mark.parametrize("options", [{}, {"lr": 0.1}, {"lr": 1e-12}], ids=["auto", "npgm", "resting"])
@pytest.mark.parametrize("maxfun", [1, 2, 7, 60])
def test_fun_is_called_at_most_maxfun_times(options, maxfun):
    calls = []

    def slope(x):  # as flat as it gets, never
        calls.append(x)
        return float(np.sum(np.exp(-x))), -np.exp(-x)

    res = npgm.minimize(slope, START, tol=1e-200, maxfun=maxfun, **options)
    assert (len(calls), res.nfev, res.status, res.success) == (maxfun, maxfun, Status.MAXFUN, False)
    assert f"fun was called {maxfun} times" in res.message


def test_finite_differences_end_an_iteration_that_has_begun():
    res = npgm.minimize(lambda x: fun(x)[0], START, jac="2-point", tol=0.0, maxfun=10)
    assert (res.nit, res.nfev, res.status) == (3, 12, Status.MAXFUN)  # START has two entries


def test_callbacks_of_both_kinds_may_stop():
    seen = []

    def with_result(intermediate_result):
        seen.append(intermediate_result.fun)
        if len(seen) == 3:
            raise StopIteration

    res = npgm.minimize(fun, START, lr=0.1, callback=with_result)
    assert (res.nit, res.status, res.success) == (3, Status.STOPPED, False)
    assert "StopIteration" in res.message
    assert res.fun == seen[-1]

    def with_point(x):
        x[:] = 0.0  # a copy: the iteration is not disturbed
        raise StopIteration

    res = npgm.minimize(fun, START, lr=0.1, callback=with_point)
    assert res.nit == 1
    assert np.linalg.norm(res.x) > 4
    res = scipy.optimize.minimize(
        fun, START, jac=True, method=npgm.solvers.gd, callback=with_result, options={"lr": 0.1, "maxiter": 5}
    )
    assert res.nit == 5  # the third call was the one that stops


@pytest.mark.parametrize("method", ["adgd", "npgm"])
def test_a_function_may_reuse_its_gradient_array(method):
    buffer = np.empty(2)

    def reusing(x):
        np.multiply(x, [1.0, 0.1], out=buffer)
        return 0.5 * float(x @ buffer), buffer

    options = {"lr": 0.5} if method == "npgm" else {}
    got = npgm.minimize(reusing, START, method=method, maxiter=30, tol=0.0, **options)
    want = npgm.minimize(lambda x: (0.0, x * [1.0, 0.1]), START, method=method, maxiter=30, tol=0.0, **options)
    np.testing.assert_array_equal(got.x, want.x)
    assert got.jac is not buffer


@pytest.mark.parametrize("method", sorted(npgm.solvers.registry))
def test_errstate_is_the_callers_in_his_functions_alone(method):
    seen = []

    def gradient(value):
        def function(x):
            seen.append(np.geterr())
            return 0.0, np.full_like(x, value)

        return function

    def callback(x):
        seen.append(np.geterr())

    suited = {"lr": "auto" if method == "auto" else 0.5, "prox": npgm.proximal.L1(1.0)}
    accepted = npgm.solvers.registry[method].options()
    options = {name: value for name, value in suited.items() if name in accepted}
    options |= {"method": method, "tol": 0.0, "maxiter": 20, "history": True, "callback": callback}
    with np.errstate(all="raise"):
        caller = np.geterr()
        for dtype in (np.float16, np.float32, np.float64):
            start = np.array([1e-3, -2e-5, 0.0], dtype)  # whose squares underflow in float16
            for value in (1e-3, np.finfo(dtype).smallest_normal, np.finfo(dtype).max / 4):
                npgm.minimize(gradient(value), start, **options)
    assert len(seen) > 20
    assert all(state == caller for state in seen)


def test_what_the_users_function_does_is_not_silenced():
    def overflows(x):
        return 0.0, np.exp(1e4 + x)

    with pytest.raises(FloatingPointError), np.errstate(over="raise"):
        npgm.minimize(overflows, START, lr=0.5)
    with pytest.warns(RuntimeWarning, match="overflow"), pytest.raises(ValueError, match="not finite at x0"):
        npgm.minimize(overflows, START, lr=0.5)


def test_exceptions_of_the_user_pass_through():
    def broken(x):
        if x[0] < 2.9:
            raise ZeroDivisionError("mine")
        return fun(x)

    with pytest.raises(ZeroDivisionError, match="mine"):
        npgm.minimize(broken, START, lr=0.1)
    with pytest.raises(KeyboardInterrupt):
        npgm.minimize(fun, START, lr=0.1, callback=lambda x: (_ for _ in ()).throw(KeyboardInterrupt))


def test_integers_are_taken_as_scipy_takes_them():
    def steps(x):
        return np.int64(np.rint(x @ x)), np.rint(2.0 * x).astype(np.int64)

    def floats(x):
        value, grad = steps(x)
        return float(value), grad.astype(np.float64)

    res = npgm.minimize(steps, [3, 4], method="gd", lr=0.1)
    np.testing.assert_array_equal(res.x, npgm.minimize(floats, [3.0, 4.0], method="gd", lr=0.1).x)
    assert res.jac.dtype == np.float64
    same = scipy.optimize.minimize(
        lambda x: list(steps(x)), [3, 4], jac=True, method=npgm.solvers.gd, options={"lr": 0.1}
    )
    np.testing.assert_array_equal(same.x, res.x)


def test_nan_along_the_way_ends_the_run_at_the_last_finite_point():
    def hole(x):
        f, g = fun(x)
        return (np.nan, g) if np.linalg.norm(x) < 2 else (f, g)

    res = npgm.minimize(hole, START, lr=0.5, history=True)
    assert res.status == Status.DIVERGED
    assert np.linalg.norm(res.x) >= 2
    assert np.isfinite(res.history["fun"]).all()
    assert len(res.history["fun"]) == res.nit + 1


def test_torch_points_may_require_grad_and_do_not_grow_a_graph():
    start = torch.tensor(START, requires_grad=True)

    def with_autograd(x):
        x = x.requires_grad_()
        f = 0.5 * (x @ x)
        return f, torch.autograd.grad(f, x, create_graph=True)[0]

    res = npgm.minimize(with_autograd, start, lr=0.5)
    assert res.success
    assert res.x.grad_fn is None


def logistic(dtype):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(2000, 10)).astype(dtype)
    labels = np.where(A @ rng.normal(size=10) + rng.normal(size=2000) > 0, 1, -1).astype(dtype)

    def fun(x):
        margins = labels * (A @ x)
        return np.sum(np.logaddexp(dtype(0), -margins)), -A.T @ (labels / (1 + np.exp(margins)))

    return fun


@pytest.mark.parametrize("options", [{}, {"lr": "auto"}, {"method": "adgd"}], ids=str)
def test_a_run_ends_where_rounding_leaves_no_progress(options):
    res = npgm.minimize(logistic(np.float32), np.zeros(10, np.float32), **options)
    assert (res.status, res.success) == (Status.ROUNDING, True)
    assert res.nfev < 1000
    assert np.linalg.norm(res.jac) < 1e-2
    assert "rounding explains the gradient norm" in res.message
    assert "lr" not in res.message
    everything = npgm.minimize(logistic(np.float32), np.zeros(10, np.float32), tol=0.0, maxiter=500, **options)
    assert everything.nit == 500


def test_each_run_of_a_batch_ends_where_its_own_progress_does():
    def fun(x):
        return np.sum((x - 1e8) ** 2 + 1.0, axis=-1), 2.0 * (x - 1e8)

    res = npgm.minimize(fun, np.array([[0.0, 3.0], [1e8, 1e8]], np.float32), batch=True, method="gd", lr=0.2, tol=1e-3)
    np.testing.assert_array_equal(res.status, [Status.ROUNDING, Status.CONVERGED])
    assert res.success.all()


def test_an_infinite_minimum_ends_the_runs_that_come_to_it():
    def fun(x):
        with np.errstate(over="ignore", divide="ignore"):
            return np.log(np.abs(x))[..., 0], 1.0 / x

    res = npgm.minimize(fun, np.array([1.0]), method="gd", lr=1.0)
    assert (res.status, res.x, res.fun, res.success, res.best.fun) == (Status.UNBOUNDED, 0.0, -np.inf, False, -np.inf)
    batch = npgm.minimize(fun, np.array([[1.0], [3.0]]), batch=True, method="gd", lr=1.0, maxiter=20)
    np.testing.assert_array_equal(batch.status, [Status.UNBOUNDED, Status.MAXITER])
    np.testing.assert_array_equal(batch.nit, [1, 20])


@pytest.mark.parametrize("options", [{"method": "gd", "lr": 0.1}, {}, {"lr": "backtracking"}], ids=str)
def test_a_gradient_of_the_wrong_sign_is_said_to_be_one(options):
    res = npgm.minimize(lambda x: (0.5 * float(x @ x), -x), START, maxiter=300, **options)
    assert not res.success
    assert "scipy.optimize.check_grad" in res.message
    assert "lr=" not in res.message


@pytest.mark.parametrize("method", ["adgd", "adgd_accel"])
def test_a_method_that_finds_its_stepsize_is_not_told_one(method):
    def holed(x):
        return (np.nan, x) if np.linalg.norm(x) < 4 else fun(x)

    res = npgm.minimize(holed, START, method=method, history=True)
    assert res.status == Status.DIVERGED
    assert "lr" not in res.message
    lr = res.history["lr"][: res.nit]
    assert lr[-1] > 10 * lr[0]


@given(scale=st.floats(1e-12, 1e12), exponent=st.integers(-100, 100))
def test_badly_scaled_objectives_do_not_break_the_loop(scale, exponent):
    size = 10.0**exponent
    res = npgm.minimize(
        lambda x: (0.5 * scale * float(x @ x), scale * x), START * size, lr=0.5 / scale, maxiter=50, method="gd"
    )
    assert np.isfinite(res.x).all()
    assert np.linalg.norm(res.x) <= np.linalg.norm(START) * size * (1 + 1e-12)


@pytest.mark.parametrize("separate", [False, True])
def test_a_function_may_write_into_its_point_as_with_scipy(separate):
    def writes(x):
        f, g = fun(x.copy())
        x[:] = np.nan
        return f, g

    arguments = {"jac": True} if not separate else {"jac": lambda x: writes(x)[1]}
    res = scipy.optimize.minimize(
        (lambda x: writes(x)[0]) if separate else writes,
        START,
        method=npgm.solvers.gd,
        options={"lr": 0.1, "maxiter": 9, "tol": 0.0},
        **arguments,
    )
    np.testing.assert_array_equal(res.x, npgm.minimize(fun, START, method="gd", lr=0.1, maxiter=9, tol=0.0).x)


def test_scipy_refuses_what_it_cannot_do():
    arguments = {"jac": True, "method": npgm.solvers.gd, "options": {"lr": 0.1}}
    with pytest.raises(ValueError, match="method 'gd' takes no bounds"):
        scipy.optimize.minimize(fun, START, bounds=[(0, 1), (0, 1)], **arguments)
    with pytest.raises(ValueError, match="method 'gd' does not take constraints"):
        scipy.optimize.minimize(fun, START, constraints={"type": "eq", "fun": lambda x: x[0]}, **arguments)
    for name in ("hess", "hessp"):
        with pytest.warns(RuntimeWarning, match="Method gd does not use Hessian information"):
            scipy.optimize.minimize(fun, START, **arguments, **{name: lambda x, *p: x})
    with pytest.warns(scipy.optimize.OptimizeWarning, match="Unknown solver options: typo; accepted: .*lr"):
        scipy.optimize.minimize(fun, START, jac=True, method=npgm.solvers.gd, options={"lr": 0.1, "typo": 1})
    for start in ([np.nan, 1.0], [np.inf, 1.0]):
        res = scipy.optimize.minimize(fun, start, **arguments)
        assert (res.success, res.status, res.nit) == (False, Status.DIVERGED, 0)
        assert "x0 must be finite" in res.message
    with pytest.raises(AttributeError, match="no attribute 'newton'; the solvers are adgd"):
        npgm.solvers.newton  # noqa: B018


def test_the_manners_of_scipy(capsys):
    def value(x):
        return np.sum((x - [1.0, 2.0]) ** 2)

    for jac in (None, "2-point", "3-point", "cs"):
        res = npgm.minimize(value, [3, -4], jac=jac, tol=1e-5)
        assert res.success
        assert res.nfev > res.njev == res.nit + 1
        np.testing.assert_allclose(res.x, [1.0, 2.0], atol=1e-4)
        res = scipy.optimize.minimize(value, [3, -4], jac=jac, method=npgm.solvers.auto, tol=1e-5, options={"disp": 1})
        assert res.message in capsys.readouterr().out
    want = npgm.minimize(fun, START, lr=0.5)
    for convert in (torch.from_numpy, jnp.asarray):

        def foreign(x, convert=convert):
            y = convert(x)
            return 0.5 * (y * y).sum(), y

        got = npgm.minimize(foreign, np.array([3, -4]), lr=0.5)
        assert type(got.x) is np.ndarray
        np.testing.assert_allclose(got.x, want.x, atol=1e-6)


def test_a_users_own_method_is_found_by_name():
    from dataclasses import dataclass

    from npgm.solvers import Method, register

    @dataclass(frozen=True)
    class SignDescent(Method):
        key = "sign"
        update = "x ← x - γ sign(∇f)"

        def init(self, xp, start):
            return None

        def step(self, xp, here, state):
            return here.x - self.lr * xp.sign(here.grad), None

    register(SignDescent)
    try:
        assert npgm.minimize(fun, START, method="sign", lr=0.5).success
        assert scipy.optimize.minimize(fun, START, jac=True, method=npgm.solvers.sign, options={"lr": 0.5}).success
    finally:
        del npgm.solvers.registry["sign"]

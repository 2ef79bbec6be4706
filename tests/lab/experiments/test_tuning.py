import dataclasses
import math
import re
import signal
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import commands
import dying
import processes
from npgm.lab import data, experiments
from npgm.lab.experiments import catalogue
from npgm.lab.experiments.solving import instances
from npgm.lab.experiments.solving.experiment import SolvingExperiment
from npgm.lab.experiments.spec import MethodSpec
from npgm.lab.experiments.training.experiment import ImageExperiment, ImagePreset
from npgm.lab.experiments.tuning import tune, write_table
from npgm.lab.experiments.tuning.grid import WIDEST, Grid
from npgm.lab.experiments.tuning.tune import SPREAD, spread

TINY = """
title = "Phase retrieval with few unknowns"
kind = "solving"
source = "Nothing"
problem = "phase-retrieval"
options = { n = 30, m = 10, batch_size = 3 }
measure = "gap"
converged_below = 1e-3
quantities = ["gap"]
[presets.smoke]
starts = [3, 2]
maxiter = 200
"""
METHODS = """
[settings]
variance = [0.25, 0.5]
[[methods]]
label = "sHGD"
method = "npgm"
options = { lr = 0.02 }
reference = { name = "separable-cosh", scale = 1000.0 }
note = "γ = 1/50"
[[methods]]
label = "clipped SGD"
method = "clipped_gd"
options = { lr = 1e-3, max_step = 1.0 }
"""


def tiny(folder, text=TINY + METHODS):
    path = Path(folder) / "tiny.toml"
    path.write_text(text)
    return catalogue.parse(path)


def searched(grid, function):
    """Return the end of a search, and the stepsizes in the order of their trials."""
    values = {}
    while wanted := grid.search(values).wanted:
        values |= {lr: function(lr) for lr in wanted}
    return grid.search(values), list(values)


@given(st.floats(-14, 14), st.floats(0.1, 10), st.sampled_from([1e-9, 1 / 45, 1.0, 2e5]))
def test_the_minimum_is_found_within_the_factor_of_the_grid(where, skew, centre):
    def value(lr):
        distance = math.log2(lr / centre) - where
        return max(distance, -skew * distance)

    search, tried = searched(Grid(centre, 100), value)
    assert abs(math.log2(search.best / centre) - where) <= 0.5 + 0.01
    assert search.tried == sorted(tried)
    assert not search.limited
    assert len(tried) <= 9 + 7


@given(st.dictionaries(st.floats(-20, 20), st.just(0.0)), st.data())
def test_an_interruption_does_not_change_the_course_of_a_search(others, data):
    def value(lr):
        return math.sin(5.0 * lr) + 0.1 * abs(lr - 3.0) if lr < 9.0 else math.inf

    grid = Grid(0.3, 12)
    search, tried = searched(grid, value)
    part = data.draw(st.sets(st.sampled_from(tried)))
    values = {lr: value(lr) for lr in part} | {abs(lr) + 100.0: v for lr, v in others.items()}
    while wanted := grid.search(values).wanted:
        assert set(wanted) <= set(tried) - set(values)
        values[wanted[-1]] = value(wanted[-1])
    assert grid.search(values) == search


def test_a_best_at_an_edge_extends_the_grid():
    search, tried = searched(Grid(1.0, 100), lambda lr: -lr if lr < 1000 else math.inf)
    assert tried[:7] == [1.0, 0.25, 4.0, 0.0625, 16.0, 64.0, 256.0]
    assert search.best == 724.0
    search, _ = searched(Grid(1.0, 100), lambda lr: math.inf if lr > 0.001 else abs(lr - 3e-4))
    assert search.best == pytest.approx(3e-4, rel=0.2)
    search, tried = searched(Grid(1.0, 100), lambda lr: -lr)
    assert search.best == pytest.approx(2.0**WIDEST, rel=1e-2)


def test_equal_values_leave_the_stepsize_as_it_is():
    search, tried = searched(Grid(1e-9, 100), lambda lr: 0.0)
    assert (search.best, len(tried)) == (1e-9, 9)


def test_the_limit_of_a_search():
    grid = Grid(1.0, 3)
    assert (grid.search({}).best, grid.search({}).tried) == (1.0, [])
    search, tried = searched(grid, lambda lr: lr)
    assert (tried, search.best, search.limited) == ([1.0, 0.25, 4.0], 0.25, True)
    assert searched(Grid(1.0, 9), lambda lr: abs(math.log(lr)))[0].limited is False
    assert searched(Grid(1.0, 8), lambda lr: abs(math.log(lr)))[0].limited is True


class Quadratics:
    """½ c ‖x‖² with a curvature c for each seed, on which gradient descent is best at 1/c and diverges above 2/c."""

    def __init__(self, curvatures):
        self.curvatures = np.array(curvatures)[:, None]

    def __call__(self, *, threads):
        return self

    def starts(self, seeds):
        return np.ones((len(seeds), 2))

    def objective(self, seeds):
        c = self.curvatures[list(seeds)]
        return lambda x: (0.5 * np.sum(c * x**2, axis=-1), c * x)

    def optima(self, seeds):
        return [0.0] * len(seeds)


def quadratics(tmp_path, monkeypatch, curvatures, lr=0.125, maxiter=60):
    monkeypatch.setitem(instances.registry, "quadratics", Quadratics(curvatures))
    path = tmp_path / "quadratics.toml"
    path.write_text(
        f"""
title = "t"
kind = "solving"
source = "s"
problem = "quadratics"
converged_below = 1e-6
[presets.smoke]
starts = [{len(curvatures)}]
maxiter = {maxiter}
[[methods]]
label = "GD"
method = "gd"
options = {{ lr = {lr} }}
"""
    )
    return catalogue.parse(path)


@pytest.mark.slow
@pytest.mark.parametrize("lr", [0.125, 8, 0.0001])
def test_gradient_descent_on_a_quadratic_function(tmp_path, monkeypatch, lr):
    experiment = quadratics(tmp_path, monkeypatch, [1.0, 1.1], lr)
    (tuned,) = tune(experiment, "smoke", tmp_path, jobs=1, trials=20)
    assert 0.84 < tuned.after.options["lr"] < 1.19
    assert tuned.before is experiment.methods[0]
    assert max(tuned.values_after) < 1e-6
    store = experiments.Store(tmp_path / "quadratics" / "runs")
    assert store.missing(experiment.runs("smoke")) == []  # those at the paper's stepsize


@pytest.mark.slow
@pytest.mark.parametrize("maxiter", [60, 550])
def test_a_stepsize_on_which_seeds_diverge_or_differ_is_lowered(tmp_path, monkeypatch, maxiter):
    experiment = quadratics(tmp_path, monkeypatch, [1.0, 1.2, 3.0], maxiter=maxiter)
    (tuned,) = tune(experiment, "smoke", tmp_path, jobs=1)
    assert (tuned.best, tuned.after.options["lr"]) == (1.0, 0.5)
    frame = experiments.Store(tmp_path / "quadratics" / "runs").read(experiment.runs("smoke"))
    assert not (frame["status"] == "DIVERGED").any()
    text = write_table(experiment, "smoke", tmp_path, [tuned])[0].read_text()
    assert "| GD | 0.125 | 0.5, lowered from 1 |" in text
    alone = tune(experiment, "smoke", tmp_path, jobs=1, seeds=1)
    assert alone[0].after.options["lr"] == 1.0
    assert "| one only | 9 |" in write_table(experiment, "smoke", tmp_path, alone)[0].read_text()


def test_a_sweep_tries_what_it_lists(tmp_path, monkeypatch):
    quadratics(tmp_path, monkeypatch, [1.0, 1.1])
    path = tmp_path / "quadratics.toml"
    path.write_text("sweep = [3.0, 0.7, 0.2, 0.01]\n" + path.read_text())
    experiment = catalogue.parse(path)
    (tuned,) = tune(experiment, "smoke", tmp_path, jobs=1)
    assert (tuned.after.options["lr"], tuned.trials, tuned.limited) == (0.7, 4, False)
    assert "over 3, 0.7, 0.2, 0.01." in write_table(experiment, "smoke", tmp_path, [tuned])[0].read_text()
    path.write_text("tuning_seed = 100\n" + path.read_text())
    with pytest.raises(ValueError, match="sweep and tuning_seed exclude each other"):
        catalogue.parse(path)


def test_a_stepsize_is_not_lowered_where_that_does_not_help(tmp_path, monkeypatch):
    experiment = quadratics(tmp_path, monkeypatch, [1.0, 1e-3])
    (tuned,) = tune(experiment, "smoke", tmp_path, jobs=1)
    assert tuned.after.options["lr"] == tuned.best == 1.0
    assert ", do not agree | 9 |" in write_table(experiment, "smoke", tmp_path, [tuned])[0].read_text()


def test_a_method_that_always_diverges(tmp_path, monkeypatch):
    experiment = quadratics(tmp_path, monkeypatch, [1e30, 1e30], maxiter=3000)
    (tuned,) = tune(experiment, "smoke", tmp_path, jobs=1, trials=7)
    assert tuned.limited
    assert tuned.values_before == tuned.values_after == [math.inf, math.inf]
    text = write_table(experiment, "smoke", tmp_path, [tuned])[0].read_text()
    assert "| 2 of 2 diverged | 2 of 2 diverged | diverged, do not agree | 7, search not finished |" in text


def test_the_spread_of_seeds(tmp_path):
    experiment = tiny(tmp_path)
    assert spread(experiment, [1.0, 3.0, 2.0]) == 3.0
    assert spread(experiment, [1e-12, -1.0, 2e-9]) == pytest.approx(2.0)
    assert spread(experiment, [1e-6]) == 1.0
    assert spread(experiment, [-1e-6]) == 1.0
    assert spread(experiment, [math.inf, math.inf]) == spread(experiment, [1.0, math.inf]) == math.inf
    assert SPREAD > 1.0


def counted(monkeypatch, kind=SolvingExperiment):
    """Return a list that every run that is computed enters with its name."""
    names = []

    def compute(self, runs, resources, do=kind.compute):
        names.extend(run.key for run in runs)
        return do(self, runs, resources)

    monkeypatch.setattr(kind, "compute", compute)
    return names


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A whole tuning: its folder, what it found, and the names of the runs that it computed."""
    folder = tmp_path_factory.mktemp("tuned")
    with pytest.MonkeyPatch.context() as monkeypatch:
        names = counted(monkeypatch)
        return folder, tune(tiny(folder), "smoke", folder, jobs=1), names


def runs_in(folder):
    return {path: path.stat().st_mtime_ns for path in folder.glob("tiny/runs/*.parquet")}


@pytest.mark.slow
def test_no_run_is_computed_twice_and_none_again(done, monkeypatch):
    folder, tuned, computed = done
    assert len(computed) == len(set(computed)) == len(runs_in(folder))
    assert [(entry.setting["variance"], entry.before.label) for entry in tuned] == [
        (variance, label) for variance in (0.25, 0.5) for label in ("sHGD", "clipped SGD")
    ]
    again = counted(monkeypatch)
    assert tune(tiny(folder), "smoke", folder, jobs=2) == tuned
    assert again == []


@pytest.mark.slow
def test_the_stepsize_found_is_better(done):
    _, tuned, _ = done
    for entry in tuned:
        assert entry.values_after[0] <= entry.values_before[0]
        assert len(entry.values_after) == {0.25: 3, 0.5: 2}[entry.setting["variance"]]
        options = {**entry.before.options, "lr": entry.after.options["lr"]}
        assert dataclasses.replace(entry.before, options=options) == entry.after


@pytest.mark.slow
def test_the_table_and_a_specification_with_its_stepsizes(done, tmp_path):
    folder, tuned, _ = done
    table, *specifications = write_table(tiny(folder), "smoke", folder, tuned)
    text = table.read_text()
    assert text.count("| method | the paper's γ | γ found |") == 2
    for part in ("## variance = 0.25", "200 iterations a run", "`npgm tune tiny --preset smoke`", "| sHGD | 0.02 |"):
        assert part in text
    assert [path.name for path in specifications] == ["smoke-variance0.25.toml", "smoke-variance0.5.toml"]
    store = experiments.Store(folder / "tiny" / "runs")
    for path, starts in zip(specifications, (3, 2), strict=True):
        taken = tiny(tmp_path, TINY.replace("[3, 2]", f"[{starts}]") + path.read_text())
        assert [method.label for method in taken.methods] == ["sHGD", "clipped SGD"]
        assert len(taken.runs("smoke")) == 2 * starts
        assert store.missing(taken.runs("smoke")) == []
    assert not list(folder.rglob("*part"))


@pytest.mark.slow
def test_a_killed_tuning_goes_on_and_computes_nothing_again(done, tmp_path, monkeypatch):
    _, tuned, computed = done
    runs = tmp_path / "tiny" / "runs"
    work = partial(tune, tiny(tmp_path), "smoke", tmp_path, jobs=1)
    status = dying.run(work, how=signal.SIGKILL, when=runs, parquet=len(computed) // 2)
    assert status == -signal.SIGKILL
    kept = runs_in(tmp_path)
    assert len(kept) < len(computed)
    further = counted(monkeypatch)
    assert tune(tiny(tmp_path), "smoke", tmp_path, jobs=1) == tuned
    assert {path.stem for path in kept}.isdisjoint(further)
    assert sorted([*further, *(path.stem for path in kept)]) == sorted(computed)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


@pytest.mark.slow
def test_two_processes_tune_together(done, tmp_path):
    assert processes.make(2 * [partial(tune, tiny(tmp_path), "smoke", tmp_path, jobs=1)]) == [0, 0]
    assert {path.name for path in runs_in(tmp_path)} == {path.name for path in runs_in(done[0])}
    assert tune(tiny(tmp_path), "smoke", tmp_path, jobs=1) == done[1]


@pytest.mark.slow
def test_a_training(tmp_path, monkeypatch):
    preset = ImagePreset(starts=[2], epochs=1, examples=300)
    network = {"name": "mlp", "widths": [784, 8]}
    experiment = dataclasses.replace(experiments.load("mnist"), network=network, presets={"smoke": preset},
                                     settings={"preprocessing": ["unit"]}, readings={})  # fmt: skip
    computed = counted(monkeypatch, ImageExperiment)
    tuned = tune(experiment, "smoke", tmp_path, methods=["SGD", "Adam"], jobs=1, trials=2)
    assert len(computed) == len(set(computed))
    assert [entry.before.label for entry in tuned] == ["SGD", "Adam"]
    assert all(math.isfinite(value) for entry in tuned for value in entry.values_after)
    text = write_table(experiment, "smoke", tmp_path, tuned)[0].read_text()
    assert "training loss at γ found | seeds at γ found, worst / best" in text
    assert " ± " in text


def test_the_command(tmp_path):
    arguments = ["phase-retrieval", "--preset", "smoke", "--methods", "sHGD", "--seeds", 1, "--trials", 2]
    printed = re.sub(r"\s+", " ", commands.npgm("tune", *arguments, "--jobs", 1, "--output", tmp_path))
    folder = tmp_path / "phase-retrieval" / "tuning"
    for part in ("Stepsizes: Stochastic phase retrieval", "2, search not finished", str(folder / "smoke.md"),
                 str(folder / "smoke-variance0.25.toml"), "round 1: 4 runs, expected to take"):  # fmt: skip
        assert part in printed
    assert "Warning" not in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "unknown experiment 'nothing'; accepted: "),
        (["mnist", "--preset", "huge"], "unknown preset 'huge'; accepted: cpu, paper, smoke"),
        (["mnist", "--methods", "GD"], "unknown method 'GD'; accepted: Adam, SGD, iHGD, sHGD"),
        (["mnist", "--trials", "0"], "trials must be at least 1, not 0"),
        (["mnist", "--seeds", "0"], "seeds must be at least 1, not 0"),
        (["mnist", "--preset", "smoke", "--jobs", "0"], "jobs must be at least 1, not 0"),
        (["mnist", "--preset", "smoke", "--device", "abacus"], "device 'abacus' cannot be used"),
        (["mnist", "--output", "/dev/null/x"], "Not a directory"),
    ],
)
def test_what_a_user_can_mend_is_one_line(tmp_path, arguments, message):
    output = [] if "--output" in arguments else ["--output", tmp_path]
    assert message in commands.refused("tune", *arguments, *output)


@pytest.mark.slow
def test_data_that_cannot_be_had(tmp_path, monkeypatch):
    monkeypatch.setenv("NPGM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NPGM_DATA", raising=False)
    monkeypatch.setattr(data.CIFAR100, "urls", {})
    said = commands.refused("tune", "cifar100", "--preset", "smoke", "--jobs", 1, "--output", tmp_path)
    assert "cifar100: the data set cifar100 could not be fetched" in said


def test_a_method_without_a_stepsize(tmp_path):
    text = TINY + METHODS + '[[methods]]\nlabel = "AdGD"\nmethod = "adgd"\noptions = {}\n'
    with pytest.raises(ValueError, match="method 'AdGD' has no option 'lr' to tune"):
        tune(tiny(tmp_path, text), "smoke", tmp_path)
    assert not (tmp_path / "tiny").exists()


def test_methods_for_a_remark_are_tuned_if_they_are_named(tmp_path):
    experiment = tiny(tmp_path)
    methods = [experiment.methods[0], dataclasses.replace(experiment.methods[1], role="check")]
    experiment = dataclasses.replace(experiment, methods=methods)
    labels = [{entry.before.label for entry in tune(experiment, "smoke", tmp_path, methods=m, trials=1, seeds=1, jobs=1)}
              for m in (None, ["clipped SGD"])]  # fmt: skip
    assert labels == [{"sHGD"}, {"clipped SGD"}]


def test_ranks_of_torchrun_are_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    with pytest.raises(ValueError, match="start it alone"):
        tune(experiments.load("phase-retrieval"), "smoke", tmp_path)
    assert list(tmp_path.iterdir()) == []


class Valley(ImageExperiment):
    """One whose loss is a known function of the stepsize and of λ or the radius, and of the seed not."""

    def compute(self, runs, resources):
        lr, radius = runs[0].method.options["lr"], runs[0].method.radius
        loss = abs(math.log2(lr / 0.04)) + (0.0 if radius is None else 5.0 * abs(math.log10(radius / 1e-3)))
        rows = {"k": [1], "seconds": [1.0], "train_loss": [loss], "test_loss": [loss], "test_accuracy": [0.5]}
        return [pl.DataFrame({**rows, "status": ["MAXITER"]}, schema_overrides={"k": pl.Int32}) for _ in runs]

    def estimate(self, runs, resources):
        return 1.0


def valley():
    mnist = experiments.load("mnist")
    npgm = MethodSpec("npgm", "npgm", {"lr": 0.01}, {"name": "isotropic-cosh", "scale": 0.1})
    clip = MethodSpec("clip", "sgd", {"lr": 0.01, "clip": 0.001})
    fields = {f.name: getattr(mnist, f.name) for f in dataclasses.fields(mnist)}
    preset = ImagePreset(starts=[2], epochs=1, examples=10)
    fields |= {"methods": [npgm, clip, MethodSpec("plain", "sgd", {"lr": 1.0})], "presets": {"smoke": preset}}
    fields |= {"settings": {}, "readings": {}, "claims": [], "options": mnist.options | {"preprocessing": "unit"}}
    return Valley(**fields | {"tuning_seed": 7})


@pytest.mark.slow
def test_equal_grids_go_on_at_edges_with_a_seed_of_their_own(tmp_path):
    tuned = tune(valley(), "smoke", tmp_path, jobs=1)
    assert [(t.after.options["lr"], t.after.radius) for t in tuned] == [(0.04, 1e-3), (0.04, 1e-3), (0.0312, None)]
    assert [radius for radius, *_ in tuned[0].by_radius] == [1e-4, 1e-3, 1e-2, 1e-1, 1.0]
    assert tuned[0].by_radius[1] == (1e-3, 0.04, 0.0)
    assert tuned[2].by_radius == ()
    assert all(t.values_after == 2 * [t.values_after[0]] for t in tuned)
    # λ at 0.1, 0.01 and 1, then at 0.001 and 0.0001; three radii; and from 1 down to below 0.0312
    assert [t.trials for t in tuned] == [5 * 7, 3 * 7, 10]
    assert tune(valley(), "smoke", tmp_path, jobs=1) == tuned
    store = experiments.Store.of(valley(), tmp_path)
    frame = pl.concat([pl.read_parquet(path) for path in store.folder.glob("*.parquet")])
    assert set(frame["seed"]) == {0, 1, 7}
    assert len(frame.filter(pl.col("seed") != 7)) == 2 * 6  # no other stepsize is run with the seeds that are reported
    table, specification = write_table(valley(), "smoke", tmp_path, tuned)
    assert "0.04, λ or radius 0.001 in place of 0.1" in table.read_text()
    assert "| npgm | 0.01 | 0.04 | 5 |" in table.read_text()
    assert "with seed 7, which is none of those of the table" in table.read_text()
    assert "scale = 0.001" in specification.read_text()


def test_a_fixed_radius_is_not_searched(tmp_path):
    spec = valley()
    fixed = dataclasses.replace(spec, methods=[dataclasses.replace(spec.methods[0], fixed_radius=True)])
    (tuned,) = tune(fixed, "smoke", tmp_path, jobs=1)
    assert (tuned.after.radius, tuned.trials, len(tuned.by_radius)) == (0.1, 7, 1)
    table, _ = write_table(fixed, "smoke", tmp_path, [tuned])
    assert "λ or radius 0.1 not searched" in table.read_text()


def test_a_grid_that_was_limited_says_so(tmp_path):
    tuned = tune(valley(), "smoke", tmp_path, jobs=1, methods=["plain"], trials=4)
    assert (tuned[0].limited, tuned[0].trials, tuned[0].after.options["lr"]) == (True, 4, 0.25)

"""Runs on a real dask cluster: a scheduler and workers that are processes of this machine."""

import dataclasses
import gc
import importlib
import os
import re
import sys
from pathlib import Path

import distributed
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import commands
from cluster import cluster, connected
from npgm._common import registry
from npgm.lab import data, experiments
from npgm.lab.experiments import engines
from npgm.lab.experiments.solving.experiment import SolvingPreset
from npgm.lab.experiments.training.experiment import ImagePreset


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache of the workers' own, with the data sets of the user's."""
    folder = tmp_path_factory.mktemp("cache")
    (folder / "checkpoints").mkdir()
    for name in ("mnist", "movielens-100k"):
        data.load(name)
        (folder / f"{name}.npz").symlink_to(data.cache_dir() / f"{name}.npz")
    return folder


@pytest.fixture(scope="module")
def address(cache):
    with cluster(cache) as (address, _):
        yield address


def factorisation(maxiter=100):
    preset = SolvingPreset(starts=[3], maxiter=maxiter)
    return dataclasses.replace(experiments.load("matrix-factorization"), settings={"rank": [5]}, presets={"smoke": preset},
                               sharpness_points=3)  # fmt: skip


def multilayer_perceptron():
    preset = ImagePreset(starts=[2, 1], epochs=2, examples=300)
    widths = {"name": "mlp", "widths": [784, 8]}
    return dataclasses.replace(experiments.load("mnist"), network=widths, presets={"smoke": preset})


def without_clock(frame):
    return frame.drop("seconds", "environment")


def assert_same(experiment, store, other):
    everything = experiment.runs("smoke")
    assert {path.name for path in store.folder.iterdir()} == {f"{run.key}.parquet" for run in everything}
    one, two = (without_clock(s.read(everything)) for s in (store, other))
    # up to the last bits of BLAS, which with some kernels depend on where the arrays lie in memory
    assert_frame_equal(one, two, rel_tol=1e-7, abs_tol=1e-9)


@pytest.mark.slow
def test_a_killed_worker_loses_nothing_and_counts_nothing_twice(tmp_path, cache, monkeypatch):
    experiment = factorisation()
    local = experiments.run(experiment, "smoke", tmp_path / "local", jobs=1)
    written = []
    with cluster(cache) as (address, workers):

        def write(store, run, *arguments, do=experiments.Store.write):
            written.append(run.key)
            if len(written) == 2:
                workers[0].kill()
            do(store, run, *arguments)

        monkeypatch.setattr(experiments.Store, "write", write)
        store = experiments.run(experiment, "smoke", tmp_path / "dask", engine="dask", scheduler=address)
        workers[0].join()
        assert workers[0].exitcode == -9
    assert len(written) == len(set(written)) == len(experiment.runs("smoke"))
    assert_same(experiment, store, local)


@pytest.mark.slow
def test_networks_are_those_trained_here(tmp_path, cache, address):
    experiment = multilayer_perceptron()
    local = experiments.run(experiment, "smoke", tmp_path / "local", jobs=1)
    for run in experiment.runs("smoke"):  # empty checkpoints, which are removed as others
        if run.seed == 0:
            number = 2 if run.setting == experiment.grid()[0] else 1
            (cache / "checkpoints" / f"{run.key}-{number}.checkpoint").touch()
    assert_same(experiment, experiments.run(experiment, "smoke", tmp_path, engine="dask", scheduler=address), local)
    assert not list((cache / "checkpoints").iterdir())


@pytest.mark.slow
def test_the_command_reports_what_the_cluster_computed(tmp_path, address):
    options = ["--preset", "smoke", "--seeds", 1, "--output", tmp_path, "--engine", "dask", "--scheduler", address]
    commands.npgm("reproduce", "phase-retrieval", *options)
    runs = experiments.load("phase-retrieval").runs("smoke", seeds=1)
    frame = experiments.Store(tmp_path / "phase-retrieval" / "runs").read(runs)
    assert frame.select("method", *experiments.load("phase-retrieval").settings, "seed", "k").is_unique().all()
    assert frame.filter(pl.col("k") == 0).height == len(runs)
    assert (tmp_path / "phase-retrieval" / "smoke" / "report.md").is_file()


@pytest.mark.slow
def test_workers_need_not_have_what_a_user_registers(tmp_path, address, monkeypatch):
    page = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (tmp_path / "of_the_user.py").write_text("\n\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)))
    (tmp_path / "valley-descent.toml").write_text(re.findall(r"```toml\n(.*?)```", page, re.DOTALL)[0])
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("of_the_user")
    try:
        mine = experiments.load(tmp_path / "valley-descent.toml")
        store = experiments.run(mine, "smoke", tmp_path, engine="dask", scheduler=address)
        assert store.missing(mine.runs("smoke")) == []
    finally:
        for known, entries in registry.extensions():
            for key in entries:
                del known[key]
        del sys.modules["of_the_user"]


@pytest.mark.slow
def test_what_a_run_raises_is_raised(tmp_path, address):
    experiment = dataclasses.replace(multilayer_perceptron(), dataset="cifar100")
    with pytest.raises(RuntimeError, match="the data set cifar100 could not be fetched"):
        experiments.run(experiment, "smoke", tmp_path, engine="dask", scheduler=address)
    with pytest.raises(ValueError, match="device 'cuda:99' cannot be used"):
        experiments.run(multilayer_perceptron(), "smoke", tmp_path, engine="dask", scheduler=address, device="cuda:99")


@pytest.mark.slow
def test_a_call_that_kills_its_workers_is_given_up(cache):
    with cluster(cache, failures=1) as (address, _), connected(address) as client:
        unit = factorisation().runs("smoke")[:1]
        results = engines.Dask(client, "cpu").map(lambda unit, resources: os._exit(1), [unit])
        with pytest.raises(Exception, match="2 different workers, but all those workers died"):
            list(results)


@pytest.mark.slow
def test_workers_of_several_threads_are_refused(tmp_path, cache):
    with (
        cluster(cache, workers=1, nthreads=2) as (address, _),
        pytest.raises(ValueError, match="computes 2 runs in one process; start workers with --nthreads 1"),
    ):
        experiments.run(factorisation(), "smoke", tmp_path, engine="dask", scheduler=address)
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.slow
def test_other_versions_and_a_missing_package_are_refused(tmp_path, address, monkeypatch):
    arguments = {"engine": "dask", "scheduler": address}
    version = distributed.versions._version_cached
    monkeypatch.setattr(
        distributed.versions, "_version_cached", lambda name: "0.0.1" if name == "npgm" else version(name)
    )
    with pytest.raises(ValueError, match=r"the worker tcp://.* has npgm \S+, and this process 0\.0\.1"):
        experiments.run(factorisation(), "smoke", tmp_path, **arguments)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ValueError, match=r"needs the package distributed; install npgm\[distributed\]"):
        experiments.run(factorisation(), "smoke", tmp_path, **arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "spark"], "unknown engine 'spark'; accepted: dask, local"),
        (["--engine", "dask"], "engine 'dask' needs the address of a scheduler, such as tcp://host:8786"),
        (["--scheduler", "tcp://127.0.0.1:1"], "scheduler is for engine 'dask', not for 'local'"),
        (["--engine", "dask", "--scheduler", "tcp://127.0.0.1:1", "--jobs", "2"], "takes neither jobs nor ranks"),
        (["--engine", "dask", "--scheduler", "tcp://127.0.0.1:1"], "tcp://127.0.0.1:1"),
        (["--engine", "dask", "--scheduler", "nonsense"], "nonsense"),
        (["--parallel", "x"], "unknown parallel 'x'; accepted: ddp, fsdp"),
        (["--parallel", "fsdp"], "parallel='fsdp' is for several ranks: start them by torchrun -m npgm"),
    ],
)
def test_what_a_user_can_mend_is_one_line(tmp_path, monkeypatch, options, message):
    monkeypatch.setattr(engines, "TIMEOUT", 0.5)
    assert message in commands.refused("reproduce", "phase-retrieval", "--output", tmp_path, *options)


def clients():
    return {id(kept) for kept in gc.get_objects() if type(kept) is distributed.Client}


@pytest.mark.slow
def test_a_client_that_fails_is_gone(tmp_path, monkeypatch):
    """One that is collected while another starts waits for the lock of that one, for ever."""
    before = clients()
    monkeypatch.setattr(engines, "TIMEOUT", 0.5)
    for address in ("tcp://127.0.0.1:1", "nonsense"):
        with pytest.raises((OSError, ValueError)):
            experiments.run(factorisation(), "smoke", tmp_path, engine="dask", scheduler=address)
    assert clients() <= before

import dataclasses
import re
import signal
from functools import partial

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import commands
import data_parallel
import dying
import processes
from npgm.lab import data, experiments
from npgm.lab.experiments import catalogue, claims, summary
from npgm.lab.experiments.training import checkpoint
from npgm.lab.experiments.training import experiment as training
from npgm.lab.experiments.training.experiment import ImagePreset

small = data_parallel.experiment


def without_clock(frame):
    return frame.drop("seconds")


@pytest.mark.parametrize(
    ("name", "network", "starts", "stepsizes"),
    [
        ("mnist", "mlp", [5, 5], {"iHGD": 1.0, "sHGD": 0.40, "SGD": 0.56, "Adam": 0.001}),
        ("cifar10", "resnet18", [5], {"iHGD": 0.2, "sHGD": 0.35, "SGD": 0.10}),
        ("cifar10-momentum", "resnet18", [3], {"iHGDm": 0.5, "sHGDm": 0.10, "SGDm": 0.05, "Adam": 0.001}),
        ("cifar100", "resnet34", [3], {"iHGDm": 1.0, "sHGDm": 0.1, "SGDm": 0.01, "Adam": 0.001}),
    ],
)
def test_the_paper_presets_are_the_papers(name, network, starts, stepsizes):
    experiment = experiments.load(name)
    assert experiment.preset("paper").starts == starts
    assert {method.label: method.options["lr"] for method in experiment.methods} == stepsizes
    for run in experiment.runs("paper"):
        assert run.training.network["name"] == network
        assert run.training.network.get("stem", "cifar") == "cifar"
        assert run.training.batch_size == (256 if name == "mnist" else 128)
        assert run.training.examples is None
        momentum = run.method.options.get("momentum", 0.0)
        assert momentum == (0.9 if run.method.label.endswith("Dm") else 0.0)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    output = tmp_path_factory.mktemp("results")
    return output, experiments.run(small(), "smoke", output, jobs=1)


@pytest.mark.slow
def test_histories(done):
    frame = done[1].read(small().runs("smoke"))
    assert frame.columns[:5] == ["k", "seconds", "train_loss", "late_loss", "test_loss"]
    assert len(frame) == 2 * 3 * 4
    assert set(frame["k"]) == {1, 2}
    assert set(frame["status"]) == {"MAXITER"}
    assert frame["test_accuracy"].is_between(0, 1).all()
    assert (frame["seconds"] > 0).all()


@pytest.mark.slow
def test_a_further_run_does_nothing_and_reports_the_runs(done):
    output, store = done
    before = {path: path.stat().st_mtime_ns for path in store.folder.iterdir()}
    report, _, figure = experiments.write_report(small(), "smoke", experiments.run(small(), "smoke", output))
    text = report.read_text()
    assert {path: path.stat().st_mtime_ns for path in store.folder.iterdir()} == before
    assert {path.suffix for path in before} == {".parquet"}
    assert figure.stat().st_size > 10_000
    for part in ("“It can be seen that iHGD reaches small training losses fast ...”", "preprocessing = standardised",
                 "| Adam | 0 of 2 |", "seconds an epoch", "networks on cpu.", "network mlp, widths = [784, 8]"):  # fmt: skip
        assert part in text


@pytest.mark.slow
def test_chosen_methods_and_seeds(tmp_path):
    store = experiments.run(small(), "smoke", tmp_path, jobs=1, methods=["SGD", "iHGD"], seeds=1)
    frame = store.read(small().runs("smoke"))
    assert set(frame["method"]) == {"SGD", "iHGD"}
    assert set(frame["seed"]) == {0}
    text = experiments.write_report(small(), "smoke", store)[0].read_text()
    assert "8 runs of this preset are not done" in text
    assert "| iHGD, pixels in [0, 1] | no run of Adam, sHGD is done |" in text


@pytest.mark.slow
def test_a_killed_and_resumed_run_equals_an_uninterrupted_one(tmp_path, monkeypatch):
    chosen = {"jobs": 1, "methods": ["iHGD", "Adam"]}
    whole = experiments.run(small(epochs=3), "smoke", tmp_path / "whole", **chosen)
    runs = tmp_path / "broken" / "mnist" / "runs"
    work = partial(data_parallel.run_with_checkpoints, tmp_path / "broken", jobs=1)
    status = dying.run(work, how=signal.SIGKILL, when=runs, parquet=1, checkpoint=1)
    assert status == -signal.SIGKILL
    assert len(list(runs.glob("*.parquet"))) < 6
    restored = []
    monkeypatch.setattr(checkpoint, "restore", lambda *a, do=checkpoint.restore: restored.append(do(*a)))
    resumed = experiments.run(small(epochs=3), "smoke", tmp_path / "broken", **chosen)
    assert any(restored)
    assert not list(runs.glob("*.checkpoint"))
    everything = small(epochs=3).runs("smoke", ["iHGD", "Adam"])
    assert_frame_equal(without_clock(resumed.read(everything)), without_clock(whole.read(everything)), check_exact=True)


@pytest.mark.slow
def test_two_processes_write_to_one_store(tmp_path, done):
    assert processes.make(2 * [partial(experiments.run, small(), "smoke", tmp_path, jobs=1)]) == [0, 0]
    everything = small().runs("smoke")
    store = experiments.Store(tmp_path / "mnist" / "runs")
    assert len(list(store.folder.iterdir())) == len(everything)
    assert_frame_equal(without_clock(store.read(everything)), without_clock(done[1].read(everything)), check_exact=True)


@pytest.mark.slow
def test_a_diverged_run_ends_and_counts_as_infinite(tmp_path):
    experiment = dataclasses.replace(small(), settings={}, readings={}, options={**small().options, "preprocessing": "unit"},
                                     presets={"smoke": ImagePreset(starts=[1], epochs=3, examples=600)})  # fmt: skip
    overflowing = {"lr": 1.0, "weight_decay": 1e30}  # all parameters are infinite after two steps, on every processor
    wild = dataclasses.replace(experiment.methods[2], options=overflowing)
    experiment = dataclasses.replace(experiment, methods=[*experiment.methods[:2], wild, experiment.methods[3]])
    store = experiments.run(experiment, "smoke", tmp_path, jobs=1)
    frame = store.read(experiment.runs("smoke"))
    assert frame.filter(method="SGD").select("k", "status").rows() == [(1, "DIVERGED")]
    rows = summary.summarise(experiment, frame)
    assert rows.filter(pl.col("diverged"))["method"].to_list() == ["SGD"]
    assert "SGD inf" in claims.decide(experiment, experiment.claims[1], rows).measured
    assert "| SGD | 0 of 1 | 1 |" in experiments.write_report(experiment, "smoke", store)[0].read_text()


def test_means_and_confidence_intervals():
    experiment = experiments.load("mnist")
    runs = pl.DataFrame({"k": [1] * 5 + [2], "seconds": [1.0] * 6, "train_loss": [1.0, 2.0, 3.0, 4.0, 5.0, 7.0]})
    one, two = summary.curve(experiment, runs, "train_loss").to_dicts()
    assert one["middle"] == 3.0
    assert one["high"] - 3.0 == pytest.approx(2.776445 * (2.5 / 5) ** 0.5)  # t(0.975) at 4 degrees of freedom
    assert 3.0 - one["low"] == pytest.approx(one["high"] - 3.0)
    assert (two["low"], two["middle"], two["high"]) == (7.0, 7.0, 7.0)


@pytest.mark.slow
def test_missing_data_do_not_keep_others_from_being_run(tmp_path, monkeypatch):
    monkeypatch.setenv("NPGM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NPGM_DATA", raising=False)
    monkeypatch.setattr(data.CIFAR100, "urls", {})
    monkeypatch.setattr(catalogue, "names", lambda: ["cifar100", "phase-retrieval"])
    printed = commands.npgm("reproduce", "all", "--preset", "smoke", "--jobs", 1, "--output", tmp_path, status=2)
    printed = re.sub(r"\s+", " ", printed)
    assert "cifar100: the data set cifar100 could not be fetched" in printed
    assert printed.rstrip().endswith("not run, for want of data: cifar100")
    report = tmp_path / "cifar100" / "smoke" / "report.md"
    text = report.read_text()
    assert "**No run is done: the data could not be fetched.**" in text
    assert "the folder $NPGM_DATA: not set" in text
    for overview in ("report.md", "index.html"):
        assert "It was not run, since the data could not be fetched" in (tmp_path / overview).read_text()
    report.unlink()
    commands.npgm("report", "cifar100", "--preset", "smoke", "--output", tmp_path)
    assert report.read_text() == text
    store = experiments.Store(tmp_path / "cifar100" / "runs")
    assert "could not be fetched" in store.obstacle
    store.obstacle = None
    assert not list(store.folder.iterdir())
    assert (tmp_path / "phase-retrieval" / "smoke" / "report.md").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "GD"], "unknown method 'GD'; accepted: Adam, SGD, iHGD, sHGD"),
        (["--seeds", "0"], "seeds must be at least 1, not 0"),
        (["--device", "abacus"], "device 'abacus' cannot be used"),
        (["--device", "cuda:99"], "device 'cuda:99' cannot be used"),
    ],
)
def test_what_a_user_can_mend_is_one_line(tmp_path, arguments, message):
    assert message in commands.refused("reproduce", "mnist", "--preset", "smoke", "--output", tmp_path, *arguments)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "mlp"', 'name = "nothing"', "unknown network 'nothing'; accepted: gpt, lstm, mlp, resnet-cifar, resnet18, resnet34, rnn"),
        ("widths", "depths", "unexpected keyword argument 'depths'"),
        ('dataset = "mnist"', 'dataset = "nothing"', "unknown data set 'nothing'; accepted: cifar10"),
        ('dataset = "mnist"', 'dataset = "shakespeare"', "an experiment of the kind 'image-training' needs images, which 'shakespeare' is not"),
        ("augment", "augmentation", "unexpected keyword argument 'augmentation'"),
        ('["unit", "standardised"]', '["unit", "x"]', "unknown preprocessing 'x'; accepted: standardised, unit"),
        ("epochs = 2\n", "epochs = 0\n", "epochs must be at least 1, not 0"),
        ("epochs = 2\n", "maxiter = 3\n", r"presets\.smoke has no key 'maxiter'; accepted: starts, inconclusive, network, stepsize_sweep, epochs, examples"),
        ('{ lr = 1.0 }\nreference = { ', '{ lr = 1.0, scale = "auto" }\nreference = { scale = 2.0, ', r"methods\[0\]: with the option scale, a reference takes only its name, not scale"),
        ("lr = 0.56", "rate = 0.56", r"methods\[2\]: .*unexpected keyword argument 'rate'"),
        ("lr = 0.56", "lr = -1.0", r"methods\[2\]: Invalid learning rate: -1.0"),
        ('method = "sgd"', 'method = "gd"', r"methods\[2\]: unknown method 'gd'; accepted: adam, adamw, muon, npgm, sgd"),
        ('quantities = ["train_loss"', 'quantities = ["gap"', "unknown quantity 'gap'; accepted: late_loss, test_accuracy"),
    ],
)  # fmt: skip
def test_errors_name_the_file_and_the_key(tmp_path, old, new, message):
    text = (catalogue.SPECS / "mnist.toml").read_text()
    assert old in text
    (tmp_path / "mine.toml").write_text(text.replace(old, new))
    with pytest.raises(ValueError, match=rf"mine\.toml: .*{message}"):
        catalogue.parse(tmp_path / "mine.toml")


def test_a_run_key_changes_with_what_its_numbers_depend_on():
    def keys(**changes):
        return {run.key for run in dataclasses.replace(small(), **changes).runs("smoke")}

    preset = ImagePreset(starts=[2, 1], epochs=2, examples=300)
    assert keys(presets={"smoke": preset}) == keys()
    for change in (
        {"presets": {"smoke": dataclasses.replace(preset, epochs=3)}},
        {"presets": {"smoke": dataclasses.replace(preset, examples=301)}},
        {"network": {"name": "mlp", "widths": [784, 9]}},
        {"options": {**small().options, "batch_size": 255}},
        {"options": {**small().options, "precision": "bfloat16"}},
    ):
        assert keys(**change).isdisjoint(keys())


def test_seeds_share_a_unit_where_the_network_allows_it():
    mnist, cifar = experiments.load("mnist"), experiments.load("cifar10")
    assert mnist.runs_at_once(mnist.runs("paper")[0]) == training.BATCH == 5
    assert cifar.runs_at_once(cifar.runs("paper")[0]) == 1

"""Training on two ranks, started by torchrun, ends where that of one process does."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from polars.testing import assert_frame_equal
from torch import nn
from torch.func import functional_call
from typer.testing import CliRunner

import data_parallel
from npgm import cli, experiments
from npgm.experiments import ranks
from npgm.experiments.training import checkpoint
from npgm.experiments.training.parallel import Single

SCRIPT = Path(data_parallel.__file__)


@pytest.fixture
def one_rank(monkeypatch):
    """This process as torchrun would start it, with no other one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    names = (
        "TORCHELASTIC_RUN_ID",
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
    )
    for name, value in zip(names, ("x", "0", "0", "1", "1", "127.0.0.1", port), strict=True):
        monkeypatch.setenv(name, value)
    yield
    ranks.leave()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--jobs", "2"], "jobs cannot be set under torchrun"),
        (["--engine", "dask", "--scheduler", "tcp://127.0.0.1:1"], "and neither jobs nor ranks of torchrun"),
        (["--device", "cpu:0"], "device must be a kind of device, such as cpu or cuda, under torchrun, not 'cpu:0'"),
        (["--device", "abacus"], "device 'abacus' cannot be used"),
        (["--parallel", "x"], "unknown parallel 'x'; accepted: ddp, fsdp"),
    ],
)
def test_what_a_user_can_mend_is_one_line(tmp_path, one_rank, options, message):
    done = CliRunner().invoke(cli.app, ["reproduce", "mnist", "--preset", "smoke", "--output", str(tmp_path), *options])
    assert done.exit_code == 2, done.exception
    assert message in re.sub(r"\s+", " ", done.output)


def test_more_ranks_than_images():
    among = Single()
    among.size = 19
    with pytest.raises(ValueError, match="the smallest minibatch has 18 examples, too few for 19 ranks"):
        data_parallel.trainer("fsdp-mlp", among)


def test_shares_are_all_of_a_batch():
    for size in (1, 2, 3, 7):
        among, parts = Single(), []
        among.size = size
        for among.rank in range(size):
            parts += range(50)[among.share(3, 48)]
        assert parts == list(range(3, 48))


def torchrun(*command, world=2):
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world), *map(str, command)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "250"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What each rank ended at, and how the command did."""
    folder = tmp_path_factory.mktemp("ranks")
    process = torchrun(SCRIPT, "train", folder)
    _, errors = process.communicate(timeout=1200)
    assert (folder / "1.pt").is_file(), errors[-4000:]
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)], process.returncode, errors, folder


def without_clock(history):
    return [{name: values for name, values in row.items() if name != "seconds"} for row in history]


def assert_near(history, other):
    assert len(history) == len(other)
    for row, one in zip(without_clock(history), without_clock(other), strict=True):
        for name, values in row.items():
            assert values == pytest.approx(one[name], rel=1e-5), name


class Halves(nn.Module):
    """A network that normalises the halves of a batch apart, and keeps the running statistics of the first."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, images):
        if not self.training:
            return self.network(images)
        first, second = images.tensor_split(2)
        others = {name: buffer.clone() for name, buffer in self.network.named_buffers()}
        return torch.cat([self.network(first), functional_call(self.network, others, (second,))])


class InHalves(Single):
    """One process that computes what two ranks do."""

    def wrap(self, network, device):
        self.halves = Halves(network)
        return self.halves


def alone(case):
    if not case.endswith("resnet"):
        return data_parallel.finished(data_parallel.trainer(case, Single()))
    trainer = data_parallel.trainer(case, among := InHalves())
    trainer.ensemble.train = among.halves.train
    return data_parallel.finished(trainer)


@pytest.mark.slow
@pytest.mark.parametrize("case", data_parallel.CASES)
def test_two_ranks_train_as_one_process(trained, case):
    (first, second), *_ = trained
    assert without_clock(first[case]["history"]) == without_clock(second[case]["history"])
    expected = alone(case)
    assert_near(first[case]["history"], expected.history)
    parameters = expected.ensemble.state_dict()
    for name, got in first[case]["parameters"].items():
        torch.testing.assert_close(got, parameters[name], rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["fsdp-mlp", "fsdp-adam"])
def test_a_checkpoint_of_parts_goes_on_as_parts_and_as_a_whole(trained, case):
    (first, _), *_, folder = trained
    assert without_clock(first[case]["resumed"]) == without_clock(first[case]["history"])
    whole = data_parallel.trainer(case, Single())
    assert checkpoint.restore(whole, folder / f"{case}.checkpoint")
    assert_near(data_parallel.finished(whole).history, first[case]["history"])


@pytest.mark.slow
def test_a_rank_that_fails_ends_the_others(trained):
    _, code, errors, _ = trained
    assert code != 0
    assert "the second rank fails" in errors


@pytest.mark.slow
def test_killed_and_resumed_ranks_end_where_uninterrupted_ones_do(tmp_path):
    runs = tmp_path / "broken" / "mnist" / "runs"
    process = torchrun(SCRIPT, "run", tmp_path / "broken")
    _, errors = process.communicate(timeout=1200)  # torchrun ends the other rank
    assert "Signal 9 (SIGKILL)" in errors, errors[-4000:]
    assert 0 < len(list(runs.glob("*.parquet"))) < 6
    process = torchrun(SCRIPT, "run", tmp_path / "broken", tmp_path / "whole")
    _, errors = process.communicate(timeout=1200)
    assert process.returncode == 0, errors[-4000:]
    experiment = data_parallel.experiment()
    everything = experiment.runs("smoke", ["iHGD", "Adam"])
    stores = [experiments.Store(tmp_path / name / "mnist" / "runs") for name in ("broken", "whole")]
    assert all({path.suffix for path in store.folder.iterdir()} == {".parquet"} for store in stores)
    resumed, whole = (store.read(everything) for store in stores)
    assert_frame_equal(resumed.drop("seconds"), whole.drop("seconds"), check_exact=True)
    solved = experiments.load("phase-retrieval").runs("smoke")
    assert not experiments.Store(tmp_path / "whole" / "phase-retrieval" / "runs").missing(solved)
    single = experiments.run(experiment, "smoke", tmp_path / "single", jobs=1, methods=["iHGD", "Adam"])
    columns = ["seconds", "environment"]
    assert_frame_equal(whole.drop(columns), single.read(everything).drop(columns), rel_tol=1e-4)
    assert whole["environment"].str.ends_with("networks on cpu, each on 2 ranks (DDP)").all()


@pytest.mark.slow
def test_the_command_prints_and_writes_once(tmp_path):
    options = ["--preset", "smoke", "--methods", "iHGD", "--seeds", "1", "--output", tmp_path, "--parallel", "fsdp"]
    process = torchrun("-m", "npgm", "reproduce", "mnist", *options)
    printed, errors = process.communicate(timeout=1200)
    assert process.returncode == 0, errors[-4000:]
    report = tmp_path / "mnist" / "smoke" / "report.md"
    assert "each on 2 ranks (FSDP)" in report.read_text()
    assert printed.count(str(report)) == 1
    assert printed.count("expected to take") == 1
    assert len(list((tmp_path / "mnist" / "runs").iterdir())) == 2

"""Training on two ranks ends where that of one process does."""

import signal
import socket

import pytest
import torch
from polars.testing import assert_frame_equal
from torch import nn
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.func import functional_call

import commands
import data_parallel
from npgm.lab import experiments
from npgm.lab.experiments import ranks
from npgm.lab.experiments.training import checkpoint
from npgm.lab.experiments.training.parallel import Single


@pytest.fixture
def one_rank(monkeypatch):
    """This process as torchrun would start it, with no other one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    names = [
        "TORCHELASTIC_RUN_ID",
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
    ]
    for name, value in zip(names, ("x", "0", "0", "1", "1", "127.0.0.1", port), strict=True):
        monkeypatch.setenv(name, value)
    yield
    ranks.leave()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--jobs", "2"], "jobs cannot be set under torchrun"),
        (["--engine", "dask", "--scheduler", "tcp://127.0.0.1:1"], "takes neither jobs nor ranks of torchrun"),
        (["--device", "cpu:0"], "device must be a kind of device, such as cpu or cuda, under torchrun, not 'cpu:0'"),
        (["--device", "abacus"], "device 'abacus' cannot be used"),
        (["--parallel", "x"], "unknown parallel 'x'; accepted: ddp, fsdp"),
    ],
)
def test_what_a_user_can_mend_is_one_line(tmp_path, one_rank, options, message):
    assert message in commands.refused("reproduce", "mnist", "--preset", "smoke", "--output", tmp_path, *options)


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


def torchrun(folder, call, *arguments):
    """Make a call on two ranks, as torchrun does but forked; return whether one failed, and the errors."""
    logs = DefaultLogsSpecs(log_dir=str(folder), redirects=Std.ALL)
    config = LaunchConfig(1, 1, 2, rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=0, monitor_interval=0.1,
                          start_method="forkserver", logs_specs=logs)  # fmt: skip
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    failed = False
    try:
        elastic_launch(config, call)(*arguments)
    except ChildFailedError:
        failed = True
    finally:  # the agent's own stay otherwise
        for number, handler in handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
    return failed, "".join(path.read_text() for path in folder.rglob("error.json"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What each rank ended at, and how the launch did."""
    folder = tmp_path_factory.mktemp("ranks")
    failed, errors = torchrun(folder / "logs", data_parallel.train, folder)
    assert failed
    assert (folder / "1.pt").is_file(), errors
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)], errors, folder


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
    (first, _), _, folder = trained
    assert without_clock(first[case]["resumed"]) == without_clock(first[case]["history"])
    whole = data_parallel.trainer(case, Single())
    assert checkpoint.restore(whole, folder / f"{case}.checkpoint")
    assert_near(data_parallel.finished(whole).history, first[case]["history"])


@pytest.mark.slow
def test_a_rank_that_fails_ends_the_others(trained):
    _, errors, _ = trained
    assert "the second rank fails" in errors


@pytest.mark.slow
def test_resumed_ranks_end_where_uninterrupted_ones_do(tmp_path):
    runs = tmp_path / "broken" / "mnist" / "runs"
    failed, errors = torchrun(tmp_path / "first", data_parallel.run, tmp_path / "broken")
    assert failed
    assert list(runs.glob("*.checkpoint")), errors
    assert 0 < len(list(runs.glob("*.parquet"))) < 6
    failed, errors = torchrun(tmp_path / "second", data_parallel.run, tmp_path / "broken", tmp_path / "whole")
    assert not failed, errors
    experiment = data_parallel.experiment(epochs=3)
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
    arguments = [
        "reproduce",
        "mnist",
        "--preset",
        "smoke",
        "--methods",
        "iHGD",
        "--seeds",
        "1",
        "--parallel",
        "fsdp",
        "--output",
    ]
    failed, errors = torchrun(tmp_path / "logs", data_parallel.command, *arguments, str(tmp_path))
    assert not failed, errors
    report = tmp_path / "mnist" / "smoke" / "report.md"
    assert "each on 2 ranks (FSDP)" in report.read_text()
    printed = [path.read_text() for path in (tmp_path / "logs").rglob("stdout.log")]
    assert len(printed) == 2
    assert "".join(printed).count(str(report)) == 1

"""Data, sharded and tensor parallel training on 2 and 4 processes ends where one process does."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from filelock import FileLock
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import parallel

pytestmark = pytest.mark.slow

SCRIPT = Path(parallel.__file__)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What the processes leave in their folder; and the folder."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # one run for all workers of pytest-xdist
    folder = base / "parallel"
    with FileLock(base / "parallel.lock"):
        if not folder.exists():
            folder.mkdir()
            run = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, timeout=300)
            assert run.returncode == 0, run.stderr[-4000:]
    return {world: torch.load(folder / f"{world}.pt") for world in (2, 4)} | {"folder": folder}


@functools.cache
def alone_with(name):
    return alone(**parallel.RUNS[name])


def alone(steps=range(parallel.STEPS), dtype=torch.float64, **options):
    net = parallel.model().to(dtype)
    parallel.train(net, parallel.optimizer(net, **options), steps)
    return [p.detach() for p in net.parameters()]


def assert_equal(got, want):
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("world", "form", "name"), [(world, *case) for world in (2, 4) for case in parallel.cases(world)]
)
def test_trajectory_is_that_of_one_process(results, world, form, name):
    assert_equal(results[world][form, name], alone_with(name))


@pytest.mark.parametrize("name", parallel.FLOAT32)
def test_matrices_in_float32_are_those_of_one_process(results, name):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as torchrun does: products of float32 depend on it
    try:
        want = alone(dtype=torch.float32, **parallel.RUNS[name])
    finally:
        torch.set_num_threads(threads)
    for a, b in zip(results[2]["float32"][name], want, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_checkpoint_of_2_processes_goes_on_with_4(results):
    assert_equal(results[2]["resume"], alone(range(2)))
    assert_equal(results[4]["resume"], alone(range(4)))


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_checkpoint_of_4_processes_goes_on_with_1(results):
    net = parallel.model()
    opt = parallel.optimizer(net)
    state = dict(zip(("model", "optimizer"), get_state_dict(net, opt), strict=True))
    dcp.load(state, checkpoint_id=results["folder"] / "from-4")
    set_state_dict(net, opt, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    parallel.train(net, opt, range(4, 6))
    assert_equal(net.parameters(), alone(range(6)))


def test_nan_in_one_shard_is_seen_by_all_ranks(results):
    outcome = results[4]["nonfinite"]
    assert outcome["propagate"] == ("", False)
    assert outcome["skip"] == ("", True)
    message, unchanged = outcome["raise"]
    assert "parameter 0 of group 0 contains NaN or infinity" in message
    assert unchanged


def test_gradient_scaler_skips_on_all_ranks(results):
    assert_equal(results[4]["scaled"], alone())


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("name", parallel.APART)
def test_processes_with_other_parameters_take_one_norm(results, world, name):
    net = parallel.model()
    opt = parallel.NPGM(net.parameters(), 0.3, 0.9, weight_decay=0.1, **parallel.RUNS[name])
    parallel.train(net, opt, range(parallel.STEPS))
    assert_equal(results[world]["apart"][name], net.parameters())


@pytest.mark.parametrize("name", parallel.TRACKED)
def test_saturation_is_that_of_whole_tensors(results, name):
    want = parallel.tracked(parallel.model(), range(parallel.STEPS), **parallel.RUNS[name])
    assert want.shape == (2, 4)
    assert_equal([results[2]["tracked"][name]], [want])


def test_what_cannot_be_known_is_refused(results):
    for case, message in results[2]["refused"].items():
        if "separable" in case:
            assert not message, case
        else:
            assert ("is a shard of FSDP1" if "fsdp1" in case else "under ZeroRedundancyOptimizer") in message, case

"""Every benchmark of ``npgm bench`` runs, at a size that takes no time."""

from functools import partial

import pytest
import torch

import commands
import processes
from npgm import _native
from npgm.lab import bench
from npgm.lab.bench import pinn

TINY = {
    "accumulate": "--rounds 2 --batch 2",
    "auto-lr": "--steps 1 --examples 64",
    "composite": "--seeds 1 --limit 20",
    "bounds": "--problems logistic --iterations 4 --seeds 2",
    "constraints": "--seeds 1 --steps 1",
    "factorization": "--rounds 2 --iterations 1 --ranks 2",
    "gradient-noise": "--steps 2 --samples 50",
    "imports": "--rounds 2",
    "kernel-accuracy": "--every 40000003",
    "lr-find": "--seeds 1 --steps 1 --exponents 0 1",
    "native-loops": "--seconds 0 --size 1000",
    "peers": "--rounds 2 --least 0.1 --limit 20",
    "pinn": "--seeds 1 --starts 2 --evaluations 3",
    "quadratic": "--limit 200",
    "saturation": "--rounds 2 --seconds 0",
    "solver": "--rounds 2 --sizes 2",
    "sparsity": "--seeds 1 --steps 2",
    "spectral-accuracy": "--ratios 10",
    "steps": "",  # in test_steps.py
    "training": "--rounds 2 --steps 1",
    "variance-reduction": "--steps 10 --seeds 1",
    "weight-decay": "--seeds 1 --steps 1",
}
NATIVE = {"accumulate", "kernel-accuracy", "native-loops"}


def test_each_has_a_tiny_size_and_says_what_it_measures():
    assert sorted(TINY) == bench.names()
    listed = commands.npgm("bench", "--list")
    assert all(name in listed and bench.summary(name) for name in TINY)
    assert "No such command 'x'" in commands.refused("bench", "x")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TINY if name != "steps"])
def test_each_prints_numbers(name, tmp_path):
    if name in NATIVE and not _native.available():
        pytest.skip("built without the native module")
    # in a process of its own: workers of a data loader are forked, which JAX's threads do not survive
    process = processes.start(partial(commands.program, "bench", name, *TINY[name].split()), tmp_path / "output")
    process.join()
    printed = (tmp_path / "output").read_text()
    assert process.exitcode == 0, printed
    assert any(sign.isdigit() for sign in printed)


def test_networks_are_differentiated_as_by_autograd():
    torch.manual_seed(0)
    net = pinn.network()
    points = torch.rand(3, 2, dtype=torch.float64)
    value, first, second = pinn.derivatives(net, points)
    torch.testing.assert_close(value, net(points))
    for i, point in enumerate(points):
        torch.testing.assert_close(first[:, i, 0], torch.func.jacrev(lambda x: net(x)[0])(point))
        torch.testing.assert_close(second[:, i, 0], torch.func.hessian(lambda x: net(x)[0])(point).diagonal())

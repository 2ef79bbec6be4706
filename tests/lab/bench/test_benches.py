"""Every benchmark of ``npgm bench`` runs, at a size that takes no time."""

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch

import commands
import processes
from npgm import _native
from npgm.lab import bench
from npgm.lab.bench import gradient_noise, pinn

TINY = {
    "accumulate": "--rounds 2 --batch 2",
    "auto-lr": "--steps 1 --examples 64",
    "composite": "--seeds 1 --limit 20",
    "bounds": "--problems logistic --iterations 4 --seeds 2",
    "constraints": "--seeds 1 --steps 1",
    "factorization": "--rounds 2 --iterations 1 --ranks 2",
    "gradient-noise": "--samples 50",
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
    "theory-stepsizes": "--maxiter 3 --points 1 --rank 1",
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
    net = pinn.network(5)
    points = torch.rand(3, 2, dtype=torch.float64)
    value, first, second = pinn.derivatives(net, points)
    torch.testing.assert_close(value, net(points))
    for i, point in enumerate(points):
        torch.testing.assert_close(first[:, i, 0], torch.func.jacrev(lambda x: net(x)[0])(point))
        torch.testing.assert_close(second[:, i, 0], torch.func.hessian(lambda x: net(x)[0])(point).diagonal())


def test_the_skewness_and_the_tail_of_known_noise():
    rng = np.random.default_rng(0)
    point = gradient_noise._Point(7, 1.0, np.ones(30), lambda: 1.0 + rng.gamma(4.0, size=30) - 4.0)
    step, *numbers = gradient_noise._column(point, 2000)
    _, gradient, size, along, _, entries, _, _ = map(float, numbers)
    assert step == "7"
    assert gradient == pytest.approx(30.0**0.5, rel=1e-2)
    assert size == pytest.approx(120.0**0.5, rel=0.02)
    assert entries == pytest.approx(1.0, abs=0.1)  # 2/√4
    assert along == pytest.approx(30.0**-0.5, abs=0.15)
    heavy = dataclasses.replace(point, draw=lambda: 1.0 + rng.standard_t(3.0, size=30))
    assert float(gradient_noise._column(heavy, 2000)[-1]) == pytest.approx(2.7, abs=0.4)


@pytest.mark.slow
@pytest.mark.parametrize("network", gradient_noise.NETWORKS)
def test_the_noise_of_a_network_is_measured(network):
    options = ("--problem", network, "--preset", "smoke", "--samples", 50)
    printed = commands.npgm("bench", "gradient-noise", *options)
    assert printed.splitlines()[1].split() == ["step", "0", "2", "4"]
    assert "nan" not in printed

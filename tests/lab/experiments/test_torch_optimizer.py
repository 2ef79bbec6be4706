"""Optimizers of PyTorch on the problems of solvers."""

import numpy as np
import pytest
import torch

import npgm
from npgm.lab.experiments.solving.torch_optimizer import TorchOptimizer
from npgm.problems import MatrixFactorization

SHAPES = [[5, 2], [4, 2]]
PROBLEM = MatrixFactorization(np.random.default_rng(0).standard_normal((5, 4)), rank=2)


@pytest.mark.parametrize(
    ("name", "arguments", "make"),
    [("muon", {"weight_decay": 0.0}, torch.optim.Muon), ("adamw", {"weight_decay": 0.1}, torch.optim.AdamW)],
)
def test_each_run_is_that_of_the_optimizer(name, arguments, make):
    starts = np.stack([PROBLEM.start(seed) for seed in (0, 1)])
    method = TorchOptimizer(0.05, name, SHAPES, arguments)
    found = npgm.minimize(PROBLEM, starts, method=method, maxiter=7, tol=0.0, batch=True, history=True)
    for i, start in enumerate(starts):
        matrices = [torch.nn.Parameter(torch.tensor(part)) for part in np.split(start, [5])]
        optimizer = make(matrices, lr=0.05, **arguments)
        for _ in range(7):
            grad = PROBLEM(np.concatenate([m.detach().numpy() for m in matrices]))[1]
            for matrix, part in zip(matrices, np.split(grad, [5]), strict=True):
                matrix.grad = torch.tensor(part)
            optimizer.step()
        np.testing.assert_array_equal(found.x[i], np.concatenate([m.detach().numpy() for m in matrices]))


def test_what_it_refuses():
    with pytest.raises(ValueError, match="unknown optimizer 'lion'"):
        TorchOptimizer(0.1, "lion", SHAPES)
    with pytest.raises(TypeError, match="nonsense"):
        TorchOptimizer(0.1, "adamw", SHAPES, {"nonsense": 1})
    with pytest.raises(ValueError, match=r"do not have the entries of variables of shape \(9, 3\)"):
        npgm.minimize(lambda x: (0.0, x), np.ones((9, 3)), method=TorchOptimizer(0.1, "adamw", SHAPES))

"""Spectral preconditioning and its peers: `python benchmarks/spectral.py accuracy|factorization|mnist`.

accuracy: errors of ∇φ* on matrices that are random, of low rank, and with small singular values. factorization: ‖∇f‖
of the matrix factorisation of MovieLens 100K, rank 10. mnist: a multilayer perceptron for one epoch, with the same
split of parameters for all methods and the stepsizes of one grid.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import npgm
import npgm.torch
from npgm._array import Floats
from npgm.lab.data import load
from npgm.lab.data.movielens import rating_matrix
from npgm.torch.spectral import precondition


def accuracy() -> None:
    """Print the largest errors of ∇φ* in the spectral norm, relative to its largest singular value, and of an SVD's."""
    rng = np.random.default_rng(0)

    def graded(m: int, n: int, smallest: float) -> Floats:
        u, v = (np.linalg.qr(rng.standard_normal((k, m)))[0] for k in (m, n))
        return u * np.geomspace(1.0, smallest, m) @ v.T

    matrices: list[Floats] = []
    for m, n in [(96, 96), (64, 200)]:
        low = rng.standard_normal((m, m // 8)) @ rng.standard_normal((m // 8, n))
        matrices += [low, low + 1e-3 * rng.standard_normal((m, n)), rng.standard_normal((m, n))]
        matrices += [graded(m, n, smallest) for smallest in (1e-3, 1e-5, 1e-8)]
    for dtype in (torch.float32, torch.float64):
        for ratio in (1.0, 10.0, 1e2, 1e3, 1e4, 2e4, 1e6):
            worst = [0.0, 0.0]
            for kernel, y in product((npgm.Sqrt(), npgm.Artanh()), matrices):
                z = torch.tensor(y, dtype=dtype)
                q = ratio / torch.linalg.matrix_norm(z.double(), 2)
                exact = _by_svd(kernel, z.double(), q)
                size = torch.linalg.matrix_norm(exact, 2)
                made = (
                    precondition(npgm.Spectral(kernel, float(1.0 / q)), [z], method="eigen")[0],
                    _by_svd(kernel, z, q),
                )
                for i, u in enumerate(made):
                    worst[i] = max(worst[i], float(torch.linalg.matrix_norm(u.double() - exact, 2) / size))
            print(f"{dtype}, σmax/λ = {ratio:g}: {worst[0]:.1e}, by an SVD {worst[1]:.1e}", flush=True)


def _by_svd(kernel: npgm.Kernel, z: Tensor, q: Tensor) -> Tensor:
    u, s, vt = torch.linalg.svd(z, full_matrices=False)
    return (u * kernel.precondition(s * q.to(z.dtype))) @ vt


def factorization(starts: int = 10) -> None:
    """Print ‖∇f‖ after 200 and 500 iterations from several starts: median and worst."""
    A = rating_matrix(load("movielens-100k"))
    problem = npgm.problems.MatrixFactorization(A, 10)
    shapes = [(n, 10) for n in A.shape]
    methods: dict[str, dict[str, Any]] = {
        "iHGDm": {"reference": npgm.Isotropic(npgm.Cosh(), 100.0), "lr": 2.0},
        "spectral cosh, after": {"reference": npgm.Blocks(npgm.Spectral(npgm.Cosh(), 100.0), shapes), "lr": 1.0},
    }
    for name, options in methods.items():
        runs = np.stack([
            npgm.minimize(problem, problem.start(i), momentum=0.9, maxiter=500, tol=0.0, history=True, **options)
            .history["grad_norm"][[200, 500]]
            for i in range(starts)
        ])  # fmt: skip
        print(f"{name}: median {np.median(runs, axis=0)}, worst {runs.max(axis=0)} at 200 and 500", flush=True)


def mnist(seeds: int = 3) -> None:
    """Print the loss of the last 100 steps of one epoch, and the accuracy: mean over seeds at the best stepsizes."""
    data = load("mnist")
    inputs, labels = (torch.from_numpy(data[f"train_{k}"]) for k in ("images", "labels"))
    test, test_labels = (torch.from_numpy(data[f"test_{k}"]) for k in ("images", "labels"))
    inputs, test = (x.reshape(len(x), -1).float() / 255.0 for x in (inputs, test))
    labels, test_labels = labels.long(), test_labels.long()
    rest = {"AdamW": lambda ps, lr: torch.optim.AdamW(ps, lr=lr, weight_decay=0.0)}

    def spectral(order: str) -> Callable[..., torch.optim.Optimizer]:
        return lambda ps, lr: npgm.torch.SpectralGD(ps, lr, 0.9, scale=1e-4, momentum_order=order, adjust="rms")

    hidden: dict[str, tuple[Callable[..., torch.optim.Optimizer], tuple[float, ...]]] = {
        "AdamW": (rest["AdamW"], (3e-4, 1e-3, 3e-3)),
        "Muon": (lambda ps, lr: torch.optim.Muon(ps, lr=lr, momentum=0.9, weight_decay=0.0,
                                                 adjust_lr_fn="match_rms_adamw"), (1e-3, 3e-3, 1e-2)),
        "iHGDm": (lambda ps, lr: npgm.torch.IHGD(ps, lr, 0.9), (0.3, 1.0, 3.0)),
        "spectral sqrt, before": (spectral("before"), (1e-3, 3e-3, 1e-2)),
        "spectral sqrt, after": (spectral("after"), (1e-3, 3e-3, 1e-2)),
    }  # fmt: skip

    def train(make: Callable[..., torch.optim.Optimizer], lr: float, lr_rest: float, seed: int) -> tuple[float, float]:
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
        matrices, others = npgm.torch.matrices(net)
        optimizers = [make(matrices["params"], lr), rest["AdamW"](others["params"], lr_rest)]
        losses, order = [], torch.randperm(len(inputs))
        for batch in order.split(256):
            loss: Tensor = nn.functional.cross_entropy(net(inputs[batch]), labels[batch])
            net.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            losses.append(loss.item())
        accuracy = (net(test).argmax(1) == test_labels).float().mean().item()
        return float(np.mean(losses[-100:])), accuracy

    for name, (make, rates) in hidden.items():
        scores = {pair: train(make, *pair, seed=100)[0] for pair in product(rates, (1e-3, 3e-3))}
        best = min(scores, key=lambda pair: scores[pair])
        results = np.array([train(make, *best, seed) for seed in range(seeds)])
        print(f"{name}: loss {results[:, 0].mean():.4f}, accuracy {results[:, 1].mean():.4f}, at {best}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1 if sys.argv[1] == "accuracy" else 2)
    {"accuracy": accuracy, "factorization": factorization, "mnist": mnist}[sys.argv[1]]()

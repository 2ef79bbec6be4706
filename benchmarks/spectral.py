"""Spectral preconditioning beside its peers: `python benchmarks/spectral.py steps|factorization|mnist`.

steps: times of a step in one run, each method after the other in every round, medians over rounds and ratios to
`torch.optim.Muon`'s. factorization: ‖∇f‖ of the matrix factorisation of MovieLens 100K, rank 10. mnist: a multilayer
perceptron for one epoch, with the same split of parameters for all methods and the stepsizes of one grid.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import npgm
import npgm.torch
from npgm.bench.cases import LAYOUTS
from npgm.data import load
from npgm.data.movielens import rating_matrix

ROUNDS = 9


def _muon_in_float32(parameters: list[nn.Parameter]) -> Callable[[], object]:
    """Muon's step with its five iterations in float32, of which torch has bfloat16 alone."""
    buffers = [torch.zeros_like(p) for p in parameters]

    def step() -> None:
        for p, buffer in zip(parameters, buffers, strict=True):
            assert p.grad is not None
            buffer.lerp_(p.grad, 0.05)
            x = p.grad.lerp(buffer, 0.95)
            x = x if x.shape[0] <= x.shape[1] else x.T
            x = x / x.norm().clamp(min=1e-7)
            for _ in range(5):
                gram = x @ x.T
                x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=-4.775, alpha=2.0315), x, beta=3.4445)
            p.data.add_(x if x.shape == p.shape else x.T, alpha=-1e-6)

    return step


def steps() -> None:
    """Print the times of steps on matrices, and on all of ResNet-18, as ratios."""
    layouts: dict[str, list[tuple[int, ...]]] = {
        "512 x 512": [(512, 512)],
        "256 x 784": [(256, 784)],
        "a block of GPT-2": [(768, 2304), (768, 768), (768, 3072), (3072, 768)],
        # torch's Muon takes matrices only
        "ResNet-18": [(s[0], int(np.prod(s[1:]))) for s in LAYOUTS["resnet18"].shapes if len(s) > 1],
    }
    for title, shapes in layouts.items():
        parameters = [nn.Parameter(torch.randn(shape)) for shape in shapes]
        for p in parameters:
            p.grad = torch.randn_like(p)

        def spectral(scale: float, p: list[nn.Parameter] = parameters) -> Callable[[], object]:
            options: dict[str, Any] = {"momentum": 0.95, "momentum_order": "before", "nesterov": True}
            return npgm.torch.SpectralGD(p, lr=1e-6, scale="auto", relative_scale=scale, **options).step

        methods = {
            "Muon (bfloat16)": torch.optim.Muon(parameters, lr=1e-6).step,
            "Muon in float32": _muon_in_float32(parameters),
            "spectral, λ = 0.1 rms": spectral(0.1),
            "spectral, λ = 0.001 rms": spectral(1e-3),
        }
        times: dict[str, list[float]] = {name: [] for name in methods}
        for step in methods.values():
            step()
        for _ in range(ROUNDS):
            for name, step in methods.items():
                began = time.perf_counter()
                step()
                times[name].append(time.perf_counter() - began)
        medians = {name: float(np.median(values)) for name, values in times.items()}
        first = medians["Muon (bfloat16)"]
        print(
            f"{title}: " + "; ".join(f"{n} {1e3 * t:.1f} ms, {t / first:.2f}" for n, t in medians.items()), flush=True
        )


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
    torch.set_num_threads(2)
    {"steps": steps, "factorization": factorization, "mnist": mnist}[sys.argv[1]]()

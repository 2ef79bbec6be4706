"""The measurements of docs/numbers.md: decoupled weight decay, Lightning's lr_find, and an ill-conditioned quadratic.

python benchmarks/carrying_over.py decay lr_find quadratic
"""

from __future__ import annotations

import argparse
import logging
import math
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.optimize
import torch
from torch.utils.data import DataLoader, TensorDataset

import npgm
from npgm.lab.data import load
from npgm.torch import IHGD

STEPS, BATCH, SEEDS = 600, 128, 3

Make = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]


def network() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(784, 100), torch.nn.ReLU(), torch.nn.Linear(100, 10))


def digits() -> TensorDataset:
    arrays = load("mnist")
    images = torch.from_numpy(arrays["train_images"][:20_000]).reshape(-1, 784).to(torch.float32) / 255
    return TensorDataset(images, torch.from_numpy(arrays["train_labels"][:20_000]).long())


def trained(data: TensorDataset, make: Make, seed: int) -> float:
    """Return the loss on all images after `STEPS` steps; infinite where it is not finite."""
    images, labels = data.tensors
    torch.manual_seed(seed)
    model = network()
    optimizer = make(list(model.parameters()))
    for _ in range(STEPS):
        batch = torch.randint(len(images), (BATCH,))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        loss = float(torch.nn.functional.cross_entropy(model(images), labels))
    return loss if math.isfinite(loss) else math.inf


def median_loss(data: TensorDataset, make: Make) -> float:
    return float(np.median([trained(data, make, seed) for seed in range(SEEDS)]))


def decay() -> None:
    """Train with decoupled weight decay c: each step multiplies the parameters by 1 - lr c."""
    data = digits()
    rows: dict[str, Make] = {
        "AdamW, lr = 1e-3, c = 0": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.0),
        "AdamW, lr = 1e-3, c = 0.1": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1),
        "IHGD, lr = 0.5, c = 0": lambda p: IHGD(p, lr=0.5, momentum=0.9),
        "IHGD, lr = 0.5, c = 0.1": lambda p: IHGD(
            p, lr=0.5, momentum=0.9, weight_decay=0.1, decoupled_weight_decay=True
        ),
        "IHGD, lr = 0.5, c = 0.1 · 1e-3/0.5": lambda p: IHGD(
            p, lr=0.5, momentum=0.9, weight_decay=2e-4, decoupled_weight_decay=True
        ),
    }
    for name, make in rows.items():
        print(f"{name:36} loss {median_loss(data, make):.3f}", flush=True)


def lr_find() -> None:
    """Compare the stepsize that Lightning's lr_find suggests with the best of a grid with ratios of 2."""
    import lightning.pytorch as pl
    from lightning.pytorch.tuner import Tuner

    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    data = digits()
    makers: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "SGD": lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9),
        "Adam": lambda p, lr: torch.optim.Adam(p, lr),
        "IHGD": lambda p, lr: IHGD(p, lr, momentum=0.9),
    }

    class Module(pl.LightningModule):
        def __init__(self, make: Callable[..., torch.optim.Optimizer]) -> None:
            super().__init__()
            self.net, self.make, self.lr = network(), make, 1e-3

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return self.make(self.parameters(), self.lr)

    for name, make in makers.items():
        suggested = []
        for seed in range(SEEDS):
            torch.manual_seed(seed)
            with tempfile.TemporaryDirectory() as folder:
                trainer = pl.Trainer(
                    max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
                    enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
                )  # fmt: skip
                finder = Tuner(trainer).lr_find(Module(make), DataLoader(data, BATCH, shuffle=True), update_attr=False)
            suggested.append(finder.suggestion() if finder is not None else math.nan)
        suggestion = float(np.nanmedian(suggested))
        grid = {2.0**k: median_loss(data, lambda p, make=make, k=k: make(p, 2.0**k)) for k in range(-10, 4)}
        best = min(grid, key=grid.__getitem__)
        at = median_loss(data, lambda p, make=make, lr=suggestion: make(p, lr))
        print(
            f"{name:16} suggested {suggestion:.2g}, loss {at:.3f}; best {best:.2g}, loss {grid[best]:.3f}", flush=True
        )


def quadratic() -> None:
    """Count gradients until ‖∇f‖ is 1e-6 of the first, for a quadratic in 100 variables of condition 1e8."""
    curvatures = np.geomspace(1e-8, 1.0, 100)
    start = np.random.default_rng(0).standard_normal(100)
    tol = 1e-6 * float(np.linalg.norm(curvatures * start))

    def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
        return 0.5 * float(x @ (curvatures * x)), curvatures * x

    rows: dict[str, dict[str, Any]] = {
        "gd, γ = 1/L": {"method": "gd", "lr": 1.0},
        "iHGDm, γ = 1, λ = ‖∇f(x⁰)‖/10": {"method": "npgm", "lr": 1.0, "momentum": 0.9, "scale": "auto"},
        "nesterov, γ = 1/L": {"method": "nesterov", "lr": 1.0},
        "adgd_accel": {"method": "adgd_accel", "lr": 1e-3},
        "auto": {},
    }
    for name, options in rows.items():
        res = npgm.minimize(fun, start, tol=tol, maxiter=100_000, **options)
        print(f"{name:32} {f'{res.nfev}' if res.success else f'not in {res.nfev}':>14} gradients, f = {res.fun:.1e}")
    for method in ("L-BFGS-B", "CG"):
        count = 0

        def counted(x: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal count
            f, grad = fun(x)
            count += 1
            if np.linalg.norm(grad) <= tol:
                raise StopIteration(count, f)
            return f, grad

        limits = {"maxiter": 100_000, "gtol": 0.0} | ({"ftol": 0.0, "maxfun": 100_000} if method == "L-BFGS-B" else {})
        try:
            res = scipy.optimize.minimize(counted, start, jac=True, method=method, options=limits)
            print(f"SciPy's {method:24} {f'not in {count}':>14} gradients, f = {res.fun:.1e}")
        except StopIteration as done:
            print(f"SciPy's {method:24} {done.args[0]:14} gradients, f = {done.args[1]:.1e}")


def main() -> None:
    parts = {"decay": decay, "lr_find": lr_find, "quadratic": quadratic}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=parts)
    torch.set_num_threads(1)
    for part in parser.parse_args().parts or parts:
        print(f"\n{part}: {parts[part].__doc__}")
        parts[part]()


if __name__ == "__main__":
    main()

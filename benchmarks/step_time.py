"""Time of an optimizer's step on the CPU, against torch's optimizers and against memory itself.

In each round every contender takes steps in turn, so that other load on the machine meets all of them. Prints ratios
only: the median over the rounds, with the quartiles. "memory" is what torch's in-place sum (12 bytes read and written
for each float32) takes, with its in-place negation besides (8 bytes) where the step has momentum: the same traffic.
"clip" is `torch.nn.utils.clip_grad_norm_`. arsinh takes longer where entries of the gradient are above λ = 1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.utils import clip_grad_norm_

from npgm.torch import IHGD, SHGD

RATIOS = [  # of two contenders, and what is aimed at
    ("sHGD", "memory", 1.25),
    ("sHGDm", "memory, momentum", 1.25),
    ("iHGD", "clip + SGD", 0.60),
    ("iHGDm", "clip + SGDm", 0.60),
    ("iHGDm", "Adam", 0.90),
    ("sHGDm", "Adam", 0.90),
    ("sHGDm", "SGDm", None),
    ("iHGDm", "SGDm", None),
    ("sHGDm", "SGDm, foreach", None),
    ("SGDm", "memory, momentum", None),
    ("sHGDm", "sHGDm, loop", 0.05),
]
MANY = [("sHGDm", "SGDm", 0.70), ("iHGDm", "SGDm", 0.70), *(ratio for ratio in RATIOS if ratio[1] != "SGDm")]


def resnet18() -> list[tuple[int, ...]]:
    """The shapes of the parameters of ResNet-18 for ImageNet."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    channels = 64
    for width in (64, 128, 256, 512):
        for first in (True, False):
            before = channels if first else width
            shapes += [(width, before, 3, 3), (width,), (width,), (width, width, 3, 3), (width,), (width,)]
            if first and before != width:
                shapes += [(width, before, 1, 1), (width,), (width,)]
        channels = width
    return [*shapes, (1000, 512), (1000,)]


LAYOUTS = {
    "one tensor of 11 M": [(11_000_000,)],
    "ResNet-18": resnet18(),
    "10,000 tensors of 1,000": [(1000,)] * 10_000,
}


def contenders(params: list[Parameter]) -> dict[str, Callable[[], object]]:
    lr = 1e-6
    sgd = torch.optim.SGD(params, lr, fused=True)
    sgdm = torch.optim.SGD(params, lr, momentum=0.9, fused=True)
    gradients = [p.grad for p in params if p.grad is not None]
    momentum = [torch.zeros_like(p) for p in params]

    def memory(*also: list[Tensor]) -> None:
        with torch.no_grad():
            for p, g in zip(params, gradients, strict=True):
                p.add_(g)
            for tensors in also:
                for tensor in tensors:
                    tensor.neg_()

    def clipped(optimizer: torch.optim.Optimizer) -> None:
        clip_grad_norm_(params, 1e9)
        optimizer.step()

    return {
        "memory": memory,
        "memory, momentum": lambda: memory(momentum),
        "SGD": sgd.step,
        "SGDm": sgdm.step,
        "SGDm, foreach": torch.optim.SGD(params, lr, momentum=0.9, foreach=True).step,
        "Adam": torch.optim.Adam(params, lr, fused=True).step,
        "clip + SGD": lambda: clipped(sgd),
        "clip + SGDm": lambda: clipped(sgdm),
        "sHGD": SHGD(params, lr, fused=True).step,
        "sHGDm": SHGD(params, lr, momentum=0.9, fused=True).step,
        "sHGDm, loop": SHGD(params, lr, momentum=0.9, fused=False).step,
        "iHGD": IHGD(params, lr, fused=True).step,
        "iHGDm": IHGD(params, lr, momentum=0.9, fused=True).step,
    }


def measure(steps: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of a step of each contender in each round, after one round that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for i in range(rounds + 1):
        for name, step in steps.items():
            if name == "sHGDm, loop" and i > 3:  # it takes most of the time
                continue
            step()  # brings its own state into the caches, and not that of the one before
            start = time.perf_counter()
            step()
            if i:
                times[name].append(time.perf_counter() - start)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument(
        "--dtypes", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16", "float64"]
    )
    parser.add_argument("--layouts", nargs="+", default=list(LAYOUTS), choices=list(LAYOUTS))
    parser.add_argument("--size", type=float, default=1.0, help="the standard deviation of the gradients' entries")
    parser.add_argument("--json", type=Path, help="where to write all ratios of all rounds")
    options = parser.parse_args()
    results = []
    for layout in options.layouts:
        for dtype in options.dtypes:
            torch.manual_seed(0)
            params = [Parameter(torch.randn(shape, dtype=getattr(torch, dtype))) for shape in LAYOUTS[layout]]
            for p in params:
                p.grad = torch.randn_like(p).mul_(options.size)
            steps = contenders(params)
            for threads in options.threads:
                torch.set_num_threads(threads)
                times = measure(steps, options.rounds)
                print(f"\n{layout}, {dtype}, {threads} thread{'s' * (threads > 1)}, {options.rounds} rounds")
                for ours, other, target in MANY if len(params) == 10_000 else RATIOS:
                    ratios = [a / b for a, b in zip(times[ours], times[other], strict=False)]
                    low, median, high = statistics.quantiles(ratios, n=4)
                    aim = "" if target is None else f"  aim {target:.2f}"
                    print(f"  {ours + ' / ' + other:26} {median:7.3f}  [{low:.3f}, {high:.3f}]{aim}", flush=True)
                    results.append(
                        {"layout": layout, "dtype": dtype, "threads": threads, "step": ours, "against": other}
                        | {"target": target, "median": median, "quartiles": [low, high], "ratios": ratios}
                    )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

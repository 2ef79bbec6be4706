"""What `track=True` adds to a step of the optimizers on the CPU: steps with it and without, in turn.

The CPU time of steps of one thread, on gradients of the size of λ: of many small tensors, of what lies in the caches,
and of what does not.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Annotated

import numpy as np
import torch
from typer import Option

from npgm.lab.bench._shared import Rounds, spread
from npgm.lab.threads import with_threads
from npgm.torch import NPGM

LAYOUTS = {"100 tensors of 100": (100, 100), "8 of 32,768": (8, 32_768), "8 of 1,048,576": (8, 1_048_576)}
REFERENCES = ("isotropic-log", "separable-log", "separable-cosh")


def run(
    rounds: Rounds = 15,
    seconds: Annotated[float, Option(help="How long each of the two is repeated in a round.")] = 0.02,
) -> None:
    """Print the ratio of the times, tracked to untracked: medians and quartiles, and microseconds without."""
    with with_threads(1):
        for (layout, (count, size)), name, momentum in itertools.product(LAYOUTS.items(), REFERENCES, (0.0, 0.9)):
            steps = [_step(name, momentum, count, size, track=track) for track in (False, True)]
            number = max(1, int(seconds / _seconds(steps[0], 3)))
            times = np.array([[_seconds(step, number) for step in steps] for _ in range(rounds)])
            ratio = spread(times[:, 1] / times[:, 0], 3)
            plain = 1e6 * np.median(times[:, 0])
            print(f"{layout}, {name}, momentum {momentum:g}: {ratio} of {plain:.0f} μs", flush=True)


def _step(name: str, momentum: float, count: int, size: int, *, track: bool) -> Callable[[], object]:
    torch.manual_seed(0)
    parameters = [torch.randn(size) for _ in range(count)]
    for parameter in parameters:
        parameter.grad = torch.randn(size)
    optimizer = NPGM(parameters, 1e-9, momentum, name, track=track)
    optimizer.step()
    return optimizer.step


def _seconds(step: Callable[[], object], number: int) -> float:
    start = time.thread_time()
    for _ in range(number):
        step()
    return (time.thread_time() - start) / number

"""Training steps of ResNet-18 with iHGDm: gradients are measured in the step, or while they accumulate.

Whole training steps are taken in turn, on images of CIFAR's size, by an optimizer as it is and by one whose gradients a
hook measures in the backward pass, while they may lie in the caches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Annotated
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from typer import Option

from npgm import _native
from npgm.lab.bench._shared import Rounds, Threads, spread
from npgm.lab.networks.resnet import resnet18
from npgm.lab.threads import with_threads
from npgm.torch import IHGD
from npgm.torch.batch import Batch
from npgm.torch.paths import native


def run(
    rounds: Rounds = 15,
    batch: Annotated[int, Option(min=1, help="Images of a step.")] = 16,
    threads: Threads = 1,
) -> None:
    """Print the times of both, and the ratio of the whole steps: medians, and quartiles of the ratio."""
    with with_threads(threads):
        steps = [_training_step(batch, hooked=hooked) for hooked in (False, True)]
        for step in steps:
            step(), step()
        times = np.array([[step() for step in steps] for _ in range(rounds)])
    (plain, plain_step), (hooked, hooked_step) = 1e3 * np.median(times, axis=0)
    ratio = spread(times[:, 1, 0] / times[:, 0, 0], 3)
    print(f"training step {plain:.0f} ms, with hooks {hooked:.0f} ms: ratio {ratio}")
    print(f"of it the optimizer {plain_step:.1f} ms and {hooked_step:.1f} ms")


def _training_step(batch_size: int, *, hooked: bool) -> Callable[[], tuple[float, float]]:
    """Return a function that takes a step and returns its seconds and those of the optimizer in it."""
    torch.manual_seed(0)
    network = resnet18()
    optimizer = IHGD(network.parameters(), lr=1e-3, momentum=0.9, fused=True)
    images, labels = torch.randn(batch_size, 3, 32, 32), torch.randint(10, (batch_size,))
    rules: list[object] = []
    norms: dict[Tensor, float] = {}

    def measure(parameter: Tensor) -> None:
        if rules:
            assert parameter.grad is not None
            buffer = optimizer.state[parameter]["momentum_buffer"]
            tensors = native._EXCHANGE.tensors([parameter], [parameter.grad], [buffer])
            measured = _native.core().measure(tensors, rules[0], threads=torch.get_num_threads())
            norms[parameter] = math.prod(*zip(*measured, strict=True))

    def move(batches: Sequence[Batch]) -> float | None:
        (batch,) = batches
        if not rules:
            rules.append(native._rule(batch.options.rule))
            return unhooked(batches)
        norm = math.hypot(*norms.values())
        native.apply_step(batch, torch.tensor([math.asinh(norm / batch.options.phi.scale) / norm]).double(), None)
        return norm

    unhooked = native.step
    if hooked:
        for parameter in network.parameters():
            parameter.register_post_accumulate_grad_hook(measure)  # type: ignore[no-untyped-call]

    def step() -> tuple[float, float]:
        began = time.perf_counter()
        optimizer.zero_grad()
        cross_entropy(network(images), labels).backward()  # type: ignore[no-untyped-call]
        with mock.patch.object(native, "step", move if hooked else unhooked):
            halfway = time.perf_counter()
            optimizer.step()
        return time.perf_counter() - began, time.perf_counter() - halfway

    return step

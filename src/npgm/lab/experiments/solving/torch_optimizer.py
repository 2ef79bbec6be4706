"""An optimizer of PyTorch beside the solvers, for comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from npgm._common import validate
from npgm._common.array import Array, Namespace
from npgm.lab.experiments.training import optimizers
from npgm.solvers.method import Method
from npgm.solvers.point import Point


@dataclass(frozen=True)
class TorchOptimizer(Method):
    """An optimizer of `npgm.lab.experiments.training.optimizers` on a point that holds matrices one after the other.

    Args:
        lr: its stepsize.
        optimizer: its name.
        shapes: those of the matrices.
        arguments: its other options.

    Raises:
        TypeError, ValueError: if an argument is not accepted.
    """

    key = "torch"
    update = "that of an optimizer of PyTorch"

    optimizer: str
    shapes: Sequence[Sequence[int]]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.choice("optimizer", self.optimizer, optimizers.registry)
        self._build([torch.zeros(1, 1)])
        validate.assign(self, update=optimizers.registry[self.optimizer].update)

    def flattened(self, shape: tuple[int, ...]) -> Method:
        if math.prod(shape) != sum(map(math.prod, self.shapes)):
            raise ValueError(f"shapes {list(self.shapes)} do not have the entries of variables of shape {shape}")
        return self

    def init(self, xp: Namespace, start: Point) -> list[tuple[list[Tensor], Optimizer]]:
        runs = [self._split(x) for x in np.asarray(start.x)]
        return [(matrices, self._build(matrices)) for matrices in runs]

    def step(self, xp: Namespace, here: Point, state: Any) -> tuple[Array, Any]:
        rows = []  # of the state, PyTorch's optimizers change in place
        for (matrices, optimizer), x, grad in zip(state, np.asarray(here.x), np.asarray(here.grad), strict=True):
            for matrix, value, slope in zip(matrices, self._split(x), self._split(grad), strict=True):
                matrix.data.copy_(value)
                matrix.grad = slope
            optimizer.step()
            rows.append(torch.cat([matrix.detach().flatten() for matrix in matrices]).numpy())
        return xp.asarray(np.stack(rows)), state

    def _build(self, matrices: list[Tensor]) -> Optimizer:
        return optimizers.registry[self.optimizer].build(matrices, lr=self.lr, **self.arguments)

    def _split(self, x: np.ndarray) -> list[Tensor]:
        parts = torch.split(torch.from_numpy(x.copy()), [math.prod(shape) for shape in self.shapes])
        return [part.reshape(*shape) for part, shape in zip(parts, self.shapes, strict=True)]

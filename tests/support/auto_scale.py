"""`scale="auto"` once more, in NumPy's float64, as docs/auto-scale.md defines it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

import npgm


def directions(
    name: str, gradients: Iterable[list[np.ndarray]], *, by_tensor: bool, kappa: float = 1.0, rho: float = 0.99
) -> Iterator[list[np.ndarray]]:
    """Yield ∇φ*(y_t) for each y_t, a list of tensors, of the reference function of this name."""
    states: dict[int, tuple[float, float]] = {}
    for tensors in gradients:
        vectors = [[i] for i in range(len(tensors))] if by_tensor else [list(range(len(tensors)))]
        steps: list[np.ndarray] = [np.empty(0)] * len(tensors)
        for number, vector in enumerate(vectors):
            y = np.concatenate([np.ravel(tensors[i]) for i in vector])
            r = math.hypot(*y) / math.sqrt(max(1, sum(_terms(name, tensors[i]) for i in vector)))
            s, w = states.get(number, (0.0, 0.0))
            if 0.0 < r < math.inf:
                if w > 0.0 and rho > 0.0:
                    r = min(r, 10.0 * s / math.sqrt(w))
                s, w = math.sqrt(rho * s**2 + (1.0 - rho) * r**2), rho * w + (1.0 - rho)
                states[number] = s, w
            phi = npgm.reference(name, scale=kappa * s / math.sqrt(w) if w > 0.0 else 1.0)
            if name.startswith("spectral"):
                for i in vector:
                    steps[i] = phi.precondition(_matrix(tensors[i])).reshape(tensors[i].shape)
                continue
            ends = np.cumsum([tensors[i].size for i in vector])[:-1]
            for i, part in zip(vector, np.split(phi.precondition(y), ends), strict=True):
                steps[i] = part.reshape(tensors[i].shape)
        yield steps


def gradients(shapes: Sequence[tuple[int, ...]], steps: int) -> Iterator[list[np.ndarray]]:
    """Yield tensors of sizes that grow and shrink: the first with an outlier, the second zero now and then, the third late."""
    rng = np.random.default_rng(0)
    for t in range(steps):
        tensors = [10.0 ** rng.uniform(-2, 2) * rng.standard_normal(shape) for shape in shapes]
        if t == 4:
            tensors[0] = 1e9 * tensors[0]
        if t % 3 == 2:
            tensors[1] = np.zeros(shapes[1])
        if t < 3:
            tensors[2] = np.zeros(shapes[2])
        yield tensors


def _terms(name: str, tensor: np.ndarray) -> int:
    """How many terms φ adds up; none that counts if it is isotropic."""
    if name.startswith("isotropic"):
        return 0
    return min(_matrix(tensor).shape) if name.startswith("spectral") else tensor.size


def _matrix(tensor: np.ndarray) -> np.ndarray:
    return tensor.reshape(tensor.shape[0], -1) if tensor.ndim > 1 and tensor.size else tensor.reshape(-1, 1)

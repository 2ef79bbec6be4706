"""Largest errors of ∇φ* of a spectral φ, on matrices that are random, of low rank, or of small singular values.

They are in the spectral norm, relative to its own, by the eigenvalues of Gram matrices, for the kernel sqrt by inverses
in float32, and by a singular value decomposition.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Annotated

import numpy as np
import torch
from torch import Tensor
from typer import Option

import npgm
from npgm._common.array import Floats
from npgm.lab.threads import with_threads
from npgm.torch.spectral import precondition

RATIOS = [1.0, 10.0, 1e2, 1e3, 1e4, 2e4, 1e6]
SHAPES = [(96, 96), (64, 200)]


def run(
    ratios: Annotated[list[float], Option(help="σmax/λ; repeatable.")] = RATIOS,
) -> None:
    """Print a line for each dtype and σmax/λ."""
    matrices = list(_matrices())
    with with_threads(1):
        for dtype, ratio in product((torch.float32, torch.float64), ratios):
            worst = np.zeros(3)
            for kernel, y in product((npgm.Sqrt(), npgm.Artanh()), matrices):
                worst = np.maximum(worst, _errors(kernel, torch.tensor(y, dtype=dtype), ratio))
            eigen, default, svd = worst
            line = f"by eigenvalues {eigen:.1e}, sqrt by default {default:.1e}, by an SVD {svd:.1e}"
            print(f"{dtype}, σmax/λ = {ratio:g}: {line}", flush=True)


def _matrices() -> Iterator[Floats]:
    rng = np.random.default_rng(0)
    for m, n in SHAPES:
        low = rng.standard_normal((m, m // 8)) @ rng.standard_normal((m // 8, n))
        yield low
        yield low + 1e-3 * rng.standard_normal((m, n))
        yield rng.standard_normal((m, n))
        for smallest in (1e-3, 1e-5, 1e-8):
            u, v = (np.linalg.qr(rng.standard_normal((k, m)))[0] for k in (m, n))
            yield u * np.geomspace(1.0, smallest, m) @ v.T


def _errors(kernel: npgm.Kernel, z: Tensor, ratio: float) -> Floats:
    """Return the errors by eigenvalues, by default if it is sqrt, and by an SVD, all in the dtype of z."""
    q = ratio / torch.linalg.matrix_norm(z.double(), 2)
    exact = _by_svd(kernel, z.double(), q)
    phi = npgm.Spectral(kernel, float(1.0 / q))
    made = [precondition(phi, [z], method="eigen")[0], exact, _by_svd(kernel, z, q)]
    if isinstance(kernel, npgm.Sqrt):
        made[1] = precondition(phi, [z])[0]
    size = torch.linalg.matrix_norm(exact, 2)
    return np.array([float(torch.linalg.matrix_norm(u.double() - exact, 2) / size) for u in made])


def _by_svd(kernel: npgm.Kernel, z: Tensor, q: Tensor) -> Tensor:
    u, s, vt = torch.linalg.svd(z, full_matrices=False)
    made: Tensor = (u * kernel.precondition(s * q.to(z.dtype))) @ vt
    return made

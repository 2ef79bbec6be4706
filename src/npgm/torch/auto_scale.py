"""λ that follows the gradients, by docs/auto-scale.md: what a vector is measured by.

Nothing here reads a value on the host.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from npgm.references import Spectral
from npgm.torch import norms
from npgm.torch.norms import Norm
from npgm.torch.options import Options, rows_and_columns


def terms(options: Options, parameter: Tensor) -> int:
    """Return how many entries or singular values of a parameter φ adds up, which is not isotropic."""
    n = parameter.numel()
    if isinstance(options.phi, Spectral):
        rows, columns = rows_and_columns(parameter.shape, options.matrix_form)
        return n // max(1, rows // options.blocks, columns)
    return 2 * n if parameter.is_complex() else n


def sizes(norm: Norm, counts: Sequence[int] | Tensor) -> Tensor:
    """Return what λ is measured by, norms or root mean squares: (1) of the page, in the dtype of ``norm``.

    Args:
        norm: the norm of each vector.
        counts: of how many terms each is, 0 where the norm itself is asked for.
    """
    if isinstance(counts, Tensor):
        ratio = norm.ratio / counts.clamp(min=1).sqrt()
    else:  # numbers that a CUDA graph keeps, where a tensor made of them would be copied from the host
        ratio = torch.stack(torch._foreach_div(list(norm.ratio.unbind()), [math.sqrt(max(1, n)) for n in counts]))
    return norms.lengths(Norm(norm.largest, ratio))

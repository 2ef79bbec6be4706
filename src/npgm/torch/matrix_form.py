"""How a spectral φ reads a parameter as matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from npgm.torch.options import Options


def rows_and_columns(shape: Sequence[int], matrix_form: str) -> tuple[int, int]:
    """Return the rows and columns of what a spectral φ sees as one matrix, blocks together; a vector is one column."""
    if matrix_form == "stack" and len(shape) > 1:
        return shape[-2], shape[-1]
    rows = shape[-1 if matrix_form == "transpose" else 0] if shape else 1
    return rows, math.prod(shape) // max(1, rows)


def as_matrices(y: Tensor, options: Options) -> Tensor:
    """Return the matrices of a tensor, of shape (..., rows, columns): a vector is one column."""
    if y.ndim < 2:
        y = y.reshape(-1, 1)
    elif options.matrix_form != "stack":
        y = (y.movedim(-1, 0) if options.matrix_form == "transpose" else y).flatten(1)
    *stack, rows, columns = y.shape
    return y if options.blocks == 1 else y.reshape(*stack, options.blocks, rows // options.blocks, columns)


def of_matrices(u: Tensor, like: Tensor, options: Options) -> Tensor:
    """Return the tensor of which `as_matrices` makes ``u``."""
    if options.matrix_form == "transpose" and like.ndim > 1:
        return u.reshape(like.movedim(-1, 0).shape).movedim(0, -1)
    return u.reshape(like.shape)

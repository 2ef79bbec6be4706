"""Functions with a derivative that is given, and not that of the operations in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npgm._common.array import Array, is_jax


def differentiable(
    function: Callable[[Array], Any], x: Array, *, jvp: Callable[[Array, Array], Any], vjp: Callable[..., Array]
) -> Any:
    """Return ``function(x)``, with the derivative that is given and not that of the operations in it.

    Args:
        function: takes ``x`` to an array, or a tuple of arrays.
        x: where.
        jvp: the derivative at a point along a vector of the shape of ``x``.
        vjp: its transpose at a point: takes what has the shapes of the results to the shape of ``x``.
    """
    if isinstance(x, np.ndarray):
        return function(x)
    if hasattr(x, "detach"):  # torch's
        return _in_torch(function, x, jvp, vjp)
    if not is_jax(x):
        return function(x)
    import jax  # present, since x is one of its arrays

    custom = jax.custom_jvp(function)
    custom.defjvp(lambda points, vectors: (custom(*points), jvp(points[0], vectors[0])))
    return custom(x)


def _in_torch(function: Any, x: Array, jvp: Any, vjp: Any) -> Any:
    import torch

    from npgm._common import torch_function

    if not torch.is_grad_enabled() and torch.autograd.forward_ad._current_level < 0:
        return function(x)  # nothing is differentiated
    kind: Any = torch_function.Reverse if torch.compiler.is_compiling() else torch_function.Differentiable
    return kind.apply(x, function, jvp, vjp)

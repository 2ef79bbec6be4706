"""The arguments of the transformations, which may be arrays and even tracers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SCOPES = ("global", "tensor")


def hyperparameter(check: Callable[[str, Any], float], name: str, value: Any) -> Any:
    """Check a number, a NumPy scalar or an array of no dimension, and return it as a float.

    An array of JAX is returned as it is: it may be a tracer, whose value is not known.
    """
    if isinstance(value, jax.Array):
        return value
    scalar = isinstance(value, np.ndarray | np.generic) and value.ndim == 0
    if scalar and any(jnp.issubdtype(value.dtype, kind) for kind in (jnp.floating, jnp.integer)):
        value = float(value)
    return check(name, value)

"""The leaves of a tree as one vector, or as one each: their dtypes and norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from npgm._common.array import Array, joint_norm


def transformation(
    init: Callable[[optax.Params], optax.OptState], step: Callable[[list[Array], Any], tuple[list[Array], Any]]
) -> optax.GradientTransformationExtraArgs:
    """Return the transformation whose step takes the leaves of the gradients and a state to new ones."""

    def update(
        updates: optax.Updates, state: optax.OptState, params: optax.Params | None = None, **extra: Any
    ) -> tuple[optax.Updates, optax.OptState]:
        del params, extra
        leaves, structure = jax.tree.flatten(updates)
        new, state = step([_real(leaf) for leaf in leaves], state)
        return jax.tree.unflatten(structure, new), state

    return optax.GradientTransformationExtraArgs(init, update)


def _real(leaf: Any) -> Array:
    """Return a gradient as an array; raise TypeError if its dtype is not real and floating."""
    leaf = jnp.asarray(leaf)
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        raise TypeError(f"a gradient has dtype {leaf.dtype}; a real floating-point dtype is needed")
    return leaf


def working_dtype(leaf: Any) -> Any:
    """Return the dtype in which to compute."""
    return widest([leaf.dtype if hasattr(leaf, "dtype") else jnp.asarray(leaf).dtype])


def widest(dtypes: Sequence[Any]) -> Any:
    """Return the widest of the dtypes and of float32."""
    return jnp.dtype(jnp.float64 if jnp.dtype(jnp.float64) in dtypes else jnp.float32)


def norm(vector: Sequence[Array]) -> tuple[Array, Array]:
    """Return (m, q) of shape (), in the widest dtype of the leaves, with ‖vector‖ = m q and ‖vector / m‖ = q."""
    dtype = widest([leaf.dtype for leaf in vector])
    m, q = joint_norm([*vector, jnp.zeros(1, dtype)])
    return m.astype(dtype), q.astype(dtype)


def quotient(y: Array, scale: Any) -> Array:
    """Return y / scale, with finite quotients beyond the largest finite number cut off there."""
    largest = float(np.finfo(y.dtype).max)
    quotient = y / jnp.asarray(scale, y.dtype)
    return jnp.where(jnp.isfinite(y), jnp.clip(quotient, -largest, largest), y)

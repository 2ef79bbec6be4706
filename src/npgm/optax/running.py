"""The running root mean squares that ``scale="auto"`` and ``limit`` keep of each vector."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from npgm._common import optimizers
from npgm._common.array import Array
from npgm.optax.leaves import widest, working_dtype


class AutoScaleState(NamedTuple):
    """What ``scale="auto"`` or a limit remembers of each vector: trees of scalars, or one scalar for all leaves."""

    rms: Any
    """The square root of the exponential moving average of squares, from 0, in the units of the gradient."""
    weight: Any
    """The sum of the weights of that average, 1 - ρ^t."""


def new_state(params: optax.Params, *, by_tensor: bool) -> AutoScaleState:
    """Return the means of nothing, of each leaf or of all as one."""
    dtypes = jax.tree.map(working_dtype, params)
    if not by_tensor:
        dtypes = widest(jax.tree.leaves(dtypes))
    return AutoScaleState(*(jax.tree.map(lambda dtype: jnp.zeros((), dtype), dtypes) for _ in range(2)))


def followed(
    state: Any, sizes: list[Array], decay: Any, outlier: Any = optimizers.OUTLIER
) -> tuple[AutoScaleState, list[Array]]:
    """Take the sizes of the vectors into the running mean of each, and return it with the root mean squares."""
    rms, weight = state  # perhaps restored as a list
    all_rms, structure = jax.tree.flatten(rms)
    all_weights = jax.tree.leaves(weight)
    followed = [
        optimizers.update_rms(jnp, size.astype(rms.dtype), rms, weight, jnp.asarray(decay, rms.dtype), outlier=outlier)
        for rms, weight, size in zip(all_rms, all_weights, sizes, strict=True)
    ]
    new_rms, new_weights, scales = ([values[i] for values in followed] for i in range(3))
    return AutoScaleState(jax.tree.unflatten(structure, new_rms), jax.tree.unflatten(structure, new_weights)), scales

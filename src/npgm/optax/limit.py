"""A gradient that is far longer than those before it is cut, by docs/spikes.md."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from npgm._common import optimizers, validate
from npgm._common.array import Array
from npgm.optax.arguments import SCOPES, hyperparameter
from npgm.optax.leaves import norm, transformation, working_dtype
from npgm.optax.running import followed, new_state


def limit_by_running_norm(
    limit: jax.typing.ArrayLike = 10.0, *, scope: str = "tensor"
) -> optax.GradientTransformationExtraArgs:
    """Shorten each vector of gradients that is much longer than earlier ones (docs/spikes.md).

    A vector that is longer than ``limit`` times the running root mean square of its lengths is cut to that length. Put
    this first in a chain: once a spike of 10⁶ is in the momentum, it stays there for hundreds of steps.

    Args:
        limit: c > 1.
        scope: whether each leaf is a vector, ``"tensor"``, or all leaves are one, ``"global"``.

    Returns:
        A transformation whose updates have the dtypes of the gradients, and whose state is an `AutoScaleState`.

    Raises:
        TypeError, ValueError: if an argument is not accepted; or in an update, if a leaf is not of a real
            floating-point dtype.

    Example:
        >>> optimizer = optax.chain(limit_by_running_norm(10.0), optax.adam(0.01))
    """
    limit = hyperparameter(optimizers.checked_limit, "limit", limit)
    by_tensor = validate.choice("scope", scope, SCOPES) == "tensor"

    def step(leaves: list[Array], state: Any) -> tuple[list[Array], Any]:
        vectors = [[leaf] for leaf in leaves] if by_tensor else [leaves]
        sizes = [m * q for m, q in map(norm, vectors)]
        rms, weight = map(jax.tree.leaves, state)
        known = zip(sizes, rms, weight, strict=True)
        divisors = [
            optimizers.excess(jnp, size.astype(s.dtype), s, w, jnp.asarray(limit, s.dtype)) for size, s, w in known
        ]
        new = [
            (leaf.astype(working_dtype(leaf)) / divisor.astype(working_dtype(leaf))).astype(leaf.dtype)
            for vector, divisor in zip(vectors, divisors, strict=True)
            for leaf in vector
        ]
        state, _ = followed(state, sizes, optimizers.LIMIT_DECAY, limit)
        return new, state

    return transformation(lambda params: new_state(params, by_tensor=by_tensor), step)

"""Nonlinearly preconditioned gradients as optax transformations.

Import the module, since its function `npgm.optax.npgm` would take the package's name:

    >>> import jax.numpy as jnp, optax
    >>> import npgm.optax
    >>> params = {"w": jnp.array([3.0, 4.0]), "b": jnp.array([0.0])}
    >>> optimizer = npgm.optax.ihgd(learning_rate=0.5, momentum=0.9)
    >>> state = optimizer.init(params)
    >>> gradients = {"w": jnp.array([300.0, 400.0]), "b": jnp.array([0.0])}
    >>> updates, state = optimizer.update(gradients, state, params)
    >>> [round(float(u), 4) for u in updates["w"]]   # of norm γ (1-β) arsinh(500) = 0.3454
    [-0.2072, -0.2763]
    >>> params = optax.apply_updates(params, updates)

∇φ* does not commute with scaling, so divide out a loss scale before it. If you sum the loss over the batch instead of
averaging it, or accumulate gradients without averaging them, the direction of the step changes and not only its length,
unless ``scale="auto"``. `optax.MultiSteps` averages. Do not clip the gradients first: it is not needed, and changes
what φ sees.
"""

from npgm.optax.limit import limit_by_running_norm
from npgm.optax.methods import ihgd, ngd, npgm, shgd, sngd
from npgm.optax.preconditioner import TrackedState, scale_by_preconditioner
from npgm.optax.running import AutoScaleState

__all__ = [
    "AutoScaleState",
    "TrackedState",
    "ihgd",
    "limit_by_running_norm",
    "ngd",
    "npgm",
    "scale_by_preconditioner",
    "shgd",
    "sngd",
]

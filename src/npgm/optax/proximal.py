"""A proximal step after each step, for a function g beside the loss."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from npgm._common.array import Array
from npgm.optax.leaves import working_dtype
from npgm.optax.preconditioner import adjustment
from npgm.proximal import Proximable
from npgm.proximal.joint import joint_step, step_or_prox
from npgm.references import Isotropic, Reference, Spectral


def proximal_step(
    prox: Any, phi: Reference, learning_rate: Any, multiple: Any, scope: str, adjust: str | None
) -> optax.GradientTransformation:
    """Return what takes updates that lead to y to those that lead to argmin g + γ φ((· - y)/γ)."""
    for function in jax.tree.leaves(prox):
        if not isinstance(function, Proximable):
            raise TypeError(f"prox must contain functions of npgm.proximal such as L1(1e-4), not {function!r}")

    def init(params: optax.Params) -> optax.OptState:
        del params
        return optax.ScaleByScheduleState(jnp.zeros((), jnp.int32)) if callable(learning_rate) else optax.EmptyState()

    def update(updates: optax.Updates, state: Any, params: optax.Params | None = None) -> tuple[optax.Updates, Any]:
        if params is None:
            raise ValueError("prox needs the parameters: call update(gradients, state, params)")
        lr = learning_rate
        if callable(learning_rate):
            lr = learning_rate(state.count)
            state = optax.ScaleByScheduleState(optax.safe_increment(state.count))
        moves = lr > 0  # where γ is zero, so is the step
        lr = jnp.where(moves, lr, 1.0) * multiple
        leaves, structure = jax.tree.flatten(updates)
        xs = [jnp.asarray(x) for x in jax.tree.leaves(params)]
        functions = jax.tree.leaves(jax.tree.broadcast(prox, params, is_leaf=_is_none), is_leaf=_is_none)
        chosen = [i for i, function in enumerate(functions) if function is not None]
        ys = [xs[i] + leaves[i] for i in chosen]
        rates = [lr.astype(working_dtype(y)) for y in ys]
        functions = [functions[i] for i in chosen]
        if isinstance(phi, Isotropic) and scope == "global" and ys:
            zs = joint_step(phi, functions, ys, rates)
        else:
            zs = [_stepped(*term, phi, adjust) for term in zip(functions, ys, rates, strict=True)]
        for i, y, z in zip(chosen, ys, zs, strict=True):
            leaves[i] = jnp.where(moves, z, y) - xs[i]
        return jax.tree.unflatten(structure, leaves), state

    return optax.GradientTransformation(init, update)


def _stepped(function: Proximable, y: Array, lr: Array, phi: Reference, adjust: str | None) -> Array:
    if not isinstance(phi, Spectral):
        return step_or_prox(function, phi, y, lr)
    matrix = y if y.ndim > 1 else y.reshape(-1, 1)
    if adjust is not None:  # φ is a multiple a of the one named, of its argument over a
        lr = lr * adjustment(adjust, y.shape)
    return step_or_prox(function, phi, matrix, lr, (-2, -1)).reshape(y.shape)


def _is_none(value: Any) -> bool:
    return value is None

"""Nonlinearly preconditioned gradients as optax transformations.

    >>> import jax.numpy as jnp, optax
    >>> from npgm.optax import npgm
    >>> params = {"w": jnp.array([3.0, 4.0]), "b": jnp.array([0.0])}
    >>> optimizer = npgm(learning_rate=0.5, momentum=0.9, reference="isotropic-cosh")
    >>> state = optimizer.init(params)
    >>> gradients = {"w": jnp.array([300.0, 400.0]), "b": jnp.array([0.0])}
    >>> updates, state = optimizer.update(gradients, state, params)
    >>> [round(float(u), 4) for u in updates["w"]]   # of norm γ (1-β) arsinh(500) = 0.3454
    [-0.2072, -0.2763]
    >>> params = optax.apply_updates(params, updates)

∇φ* does not commute with scaling. A loss scale must be divided out before it; a loss that is summed and not averaged
over the batch, or gradients that are accumulated and not averaged, change the direction of the step and not only its
length. `optax.MultiSteps` averages. Clipping the gradients before is not needed, and changes what φ sees.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from npgm import _validate
from npgm._array import Array, scaled_norm
from npgm.references import Isotropic, Reference
from npgm.references import reference as build


def scale_by_preconditioner(reference: Reference | str = "isotropic-cosh") -> optax.GradientTransformation:
    """Replace the gradients by ∇φ*(gradients), without sign or stepsize.

    An isotropic φ sees all leaves as one vector, of whatever shapes and dtypes; under `optax.masked` or
    `optax.partition`, those of its own part. A separable φ acts on each entry. bfloat16 and float16 are computed in
    float32, and the norm of large gradients does not overflow. Zero gradients give a zero update; NaN and infinity
    give NaN where the formula does, as in optax: guard with `optax.apply_if_finite` if wanted.

    Args:
        reference: φ, or its name for `npgm.reference`.

    Returns:
        A stateless transformation whose updates have the dtypes of the gradients.

    Raises:
        TypeError, ValueError: if ``reference`` is not accepted; or in an update, if a leaf is not of a real
            floating-point dtype.

    Example:
        >>> optimizer = optax.chain(scale_by_preconditioner("separable-log"), optax.scale_by_learning_rate(0.1))
    """
    phi = _built(reference)

    def update(updates: optax.Updates, params: optax.Params | None = None) -> optax.Updates:
        del params
        if isinstance(phi, Isotropic):
            return _isotropic(phi, updates)
        return jax.tree.map(phi.precondition, updates)

    return optax.stateless(update)


def npgm(
    learning_rate: optax.ScalarOrSchedule,
    momentum: jax.typing.ArrayLike = 0.0,
    reference: Reference | str = "isotropic-cosh",
    weight_decay: jax.typing.ArrayLike = 0.0,
    *,
    mask: Any | None = None,
    accumulator_dtype: Any | None = None,
) -> optax.GradientTransformation:
    """Algorithm 1 of the paper: m ← β m + (1-β) ∇φ*(g), x ← x - γ m, from m = 0.

    Momentum averages the *preconditioned* gradients, with the factor 1-β. The stepsize, momentum and weight decay may
    be injected by `optax.inject_hyperparams` (with ``static_args="reference"``).

    Args:
        learning_rate: γ >= 0, a number or a schedule.
        momentum: β in [0, 1); at 0 there is no state.
        reference: φ, or its name for `npgm.reference`.
        weight_decay: c >= 0 of the term ½c‖x‖² that is added to the loss, hence to the gradient before the
            preconditioner. For decoupled decay chain `optax.add_decayed_weights` behind `scale_by_preconditioner`.
        mask: which parameters decay, as in `optax.add_decayed_weights`.
        accumulator_dtype: the dtype of m; by default that of the parameters.

    Raises:
        TypeError, ValueError: if an argument is out of range, at construction; values under a JAX transformation are
            not checked.
    """
    if not callable(learning_rate):
        _check(_validate.nonnegative, "learning_rate", learning_rate)
    _check(_validate.fraction, "momentum", momentum)
    _check(_validate.nonnegative, "weight_decay", weight_decay)
    parts = [scale_by_preconditioner(reference)]
    if not _is_zero(weight_decay):
        parts.insert(0, optax.add_decayed_weights(weight_decay, mask))
    if not _is_zero(momentum):
        parts.append(optax.ema(momentum, debias=False, accumulator_dtype=accumulator_dtype))
    parts.append(optax.scale_by_learning_rate(learning_rate))
    return _keep_dtypes(optax.chain(*parts))


def _isotropic(phi: Isotropic, updates: optax.Updates) -> optax.Updates:
    leaves = [_working(jnp.asarray(leaf)) for leaf in jax.tree.leaves(updates)]
    leaves = [leaf for leaf in leaves if leaf.size > 0]
    if not leaves:
        return updates
    norms = [scaled_norm(jnp, leaf)[1:] for leaf in leaves]
    dtype = jnp.result_type(*[q.dtype for _, q in norms])
    # the scale of a zero leaf is 1, which must not hide another leaf that is tiny
    scales = jnp.stack([jnp.where(q == 0, 0.0, m).astype(dtype).reshape(()) for m, q in norms])
    largest = jnp.max(scales)
    m = jnp.where(largest > 0, largest, jnp.ones_like(largest))
    parts = scales / m * jnp.stack([q.astype(dtype).reshape(()) for _, q in norms])
    _, rest, q = scaled_norm(jnp, parts)
    factor = phi.factor(jnp, m, (rest * q).reshape(()))

    def rescale(leaf: Array) -> Array:
        leaf = jnp.asarray(leaf)
        working = _working(leaf)
        return (working / m.astype(working.dtype) * factor.astype(working.dtype)).astype(leaf.dtype)

    return jax.tree.map(rescale, updates)


def _working(leaf: Array) -> Array:
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        raise TypeError(f"a gradient has dtype {leaf.dtype}; a real floating-point dtype is needed")
    return leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))


def _keep_dtypes(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """Return updates in the dtypes of the gradients, and states in theirs, for hyperparameters that are arrays."""

    def update(
        updates: optax.Updates, state: optax.OptState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.OptState]:
        new, new_state = inner.update(updates, state, params)
        return _cast_like(new, updates), _cast_like(new_state, state)

    return optax.GradientTransformation(inner.init, update)


def _cast_like(tree: Any, like: Any) -> Any:
    return jax.tree.map(lambda leaf, target: leaf.astype(target.dtype), tree, like)


def _built(reference: Reference | str) -> Reference:
    if isinstance(reference, str):
        return build(reference)
    if not isinstance(reference, Reference):
        raise TypeError(f"reference must be a reference function or the name of one, not {reference!r}")
    return reference


def _check(check: Any, name: str, value: Any) -> None:
    """Check a Python number; an array may be a tracer, whose value is not known."""
    if not isinstance(value, jax.Array):
        check(name, value)


def _is_zero(value: Any) -> bool:
    return not isinstance(value, jax.Array) and float(value) == 0.0

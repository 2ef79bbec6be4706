"""Algorithm 1 of the paper as a chain of transformations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from npgm._common import optimizers, validate
from npgm.optax.arguments import hyperparameter
from npgm.optax.limit import limit_by_running_norm
from npgm.optax.preconditioner import Scale, scale_by_preconditioner
from npgm.optax.proximal import proximal_step
from npgm.references import Reference, Spectral, as_reference
from npgm.references.training import default_scope, like_sgd


def npgm(
    learning_rate: optax.ScalarOrSchedule,
    momentum: jax.typing.ArrayLike | None = None,
    reference: Reference | str = "isotropic-cosh",
    weight_decay: jax.typing.ArrayLike = 0.0,
    *,
    scale: Scale = None,
    decoupled_weight_decay: bool = False,
    momentum_order: str = "after",
    mask: Any | None = None,
    accumulator_dtype: Any | None = None,
    scope: str | None = None,
    relative_scale: jax.typing.ArrayLike = 1.0,
    scale_decay: jax.typing.ArrayLike = 0.99,
    lr_like: str = "paper",
    limit: jax.typing.ArrayLike | None = None,
    nesterov: bool = False,
    adjust: str | None = None,
    blocks: int | None = None,
    track: bool = False,
    prox: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """Algorithm 1 of the paper: m ← β m + (1-β) ∇φ*(g), x ← x - γ m, from m = 0.

    Momentum averages the *preconditioned* gradients, with the factor 1-β. Every number may be injected by
    `optax.inject_hyperparams`, with ``static_args="reference"`` if ``reference`` is not a name.

    Args:
        learning_rate: γ >= 0, a number or a schedule.
        momentum: β in [0, 1). As in `optax.sgd`, None means none, and has no state.
        reference: φ, or its name for `npgm.reference`.
        weight_decay: c >= 0. The term ½c‖x‖² is added to the loss, so the preconditioner sees the gradient plus c x.
        scale: λ in place of that of ``reference``, or ``"auto"``; see `scale_by_preconditioner`.
        decoupled_weight_decay: whether the decay bypasses the preconditioner, as in AdamW: x ← (1 - γc) x before the
            step.
        momentum_order: ``"before"`` averages the gradients and preconditions the mean: m ← β m + (1-β) g,
            x ← x - γ ∇φ*(m).
        mask: which parameters decay, as in `optax.add_decayed_weights`.
        accumulator_dtype: the dtype of m; by default that of the parameters.
        scope, relative_scale, scale_decay: see `scale_by_preconditioner`.
        lr_like: what ``learning_rate`` means: γ of Algorithm 1, or with ``"sgd"`` that of `optax.sgd`, whose steps
            small gradients then make: x ← x - γ λ m / (h*''(0) (1-β)).
        limit: c > 1 of `limit_by_running_norm`, which comes before all else; None for none. The vectors are those of
            ``scope``.
        nesterov: for a spectral φ, whether β m + (1-β) u replaces m in the step, with the new m and the newest u.
        adjust, blocks, track: see `scale_by_preconditioner`.
        prox: g, a function of `npgm.proximal`, which is added to the loss for each leaf, or a tree of such functions
            and None whose structure is a prefix of the parameters'. After a step to y, the parameters move to argmin g
            + γ φ((· - y)/γ); the parameters of one isotropic φ are one point.

    Raises:
        TypeError, ValueError: if an argument is out of range, at construction; values under a JAX transformation are
            not checked.
    """
    phi = as_reference(reference)
    scope = scope or default_scope(phi.lift)
    if not callable(learning_rate):
        learning_rate = hyperparameter(validate.nonnegative, "learning_rate", learning_rate)
    weight_decay = hyperparameter(validate.nonnegative, "weight_decay", weight_decay)
    # a part that does nothing keeps its place, so that the structure of the state depends on no number
    decay = average = optax.identity()
    if mask is not None or isinstance(weight_decay, jax.Array) or weight_decay != 0.0:
        decay = optax.add_decayed_weights(weight_decay, mask)
    if momentum is not None:
        momentum = hyperparameter(validate.fraction, "momentum", momentum)
        average = optax.ema(momentum, debias=False, accumulator_dtype=accumulator_dtype)
    if nesterov:
        if momentum is None:
            raise ValueError("nesterov needs momentum")
        if not isinstance(phi, Spectral):
            raise ValueError(f"nesterov is for spectral reference functions, not {phi!r}")
        average = _ahead(average, momentum)
    options = {"relative_scale": relative_scale, "scale_decay": scale_decay, "adjust": adjust, "blocks": blocks}
    parts = [scale_by_preconditioner(phi, scale, scope=scope, track=track, **options), average]  # type: ignore[arg-type]
    if validate.choice("momentum_order", momentum_order, optimizers.MOMENTUM_ORDERS) == "before":
        parts.reverse()
    multiple = 1.0
    if validate.choice("lr_like", lr_like, optimizers.LR_LIKE) == "sgd":
        own, beta = phi.scale if scale is None else scale, 0.0 if momentum is None else momentum
        multiple = like_sgd(phi, own, beta, follows=isinstance(scale, str))
        parts.append(optax.scale(multiple))
    parts.insert(len(parts) if decoupled_weight_decay else 0, decay)
    if limit is not None:
        parts.insert(0, limit_by_running_norm(limit, scope=scope))
    parts.append(optax.scale_by_learning_rate(learning_rate))
    if prox is not None:
        if scale is not None and not isinstance(scale, int | float):
            raise ValueError(f"prox needs a scale that is a number, not {scale!r}")
        phi = phi if scale is None else phi.with_scale(scale)
        parts.append(proximal_step(prox, phi, learning_rate, multiple, scope, adjust))
    return _keep_dtypes(optax.chain(*parts))


def _named(name: str, reference: str, summary: str) -> Callable[..., optax.GradientTransformationExtraArgs]:
    """Return `npgm` with its φ chosen, and λ where one looks for it."""
    signature = inspect.signature(npgm)
    options = dict(signature.parameters)
    scale = options.pop("scale").replace(default=1.0, kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
    in_place = [scale if parameter.name == "reference" else parameter for parameter in options.values()]
    signature = signature.replace(parameters=in_place)

    def make(*args: Any, **kwargs: Any) -> optax.GradientTransformationExtraArgs:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        return npgm(reference=reference, **given.arguments)

    make.__name__ = make.__qualname__ = name
    make.__signature__ = signature  # type: ignore[attr-defined]
    make.__doc__ = f'{summary} The arguments are those of `npgm`, with λ = ``scale`` or ``scale="auto"``.'
    return make


ihgd = _named(
    "ihgd", "isotropic-cosh", "Isotropic hyperbolic gradient descent: rescales the gradient to the norm arsinh(‖g‖/λ)."
)
shgd = _named(
    "shgd",
    "separable-cosh",
    "Separable hyperbolic gradient descent: takes each entry of the gradient to arsinh(g_i/λ).",
)
ngd = _named("ngd", "isotropic-log", "Normalised gradient descent: the direction g/(λ + ‖g‖).")
sngd = _named("sngd", "separable-log", "Separable normalised gradient descent: g_i/(λ + |g_i|) in each entry.")


def _ahead(average: optax.GradientTransformation, momentum: Any) -> optax.GradientTransformation:
    """Return what looks ahead along an average, as Nesterov's momentum."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        means, state = average.update(updates, state, params)
        return jax.tree.map(lambda u, m: (momentum * m + (1 - momentum) * u).astype(m.dtype), updates, means), state

    return optax.GradientTransformation(average.init, update)


def _keep_dtypes(inner: optax.GradientTransformationExtraArgs) -> optax.GradientTransformationExtraArgs:
    """Return updates in the dtypes of the gradients, and states in theirs, for hyperparameters that are arrays."""

    def update(
        updates: optax.Updates, state: optax.OptState, params: optax.Params | None = None, **extra: Any
    ) -> tuple[optax.Updates, optax.OptState]:
        updates = jax.tree.map(jnp.asarray, updates)  # Python's numbers and NumPy's arrays
        new, new_state = inner.update(updates, state, params, **extra)
        return _cast_like(new, updates), _cast_like(new_state, state)

    return optax.GradientTransformationExtraArgs(inner.init, update)


def _cast_like(tree: Any, like: Any) -> Any:
    """Cast each leaf to the dtype of its counterpart in a tree that may hold lists for tuples, as restored ones do."""
    leaves, structure = jax.tree.flatten(tree)
    pairs = zip(leaves, jax.tree.leaves(like), strict=True)
    return jax.tree.unflatten(structure, [leaf.astype(jnp.asarray(target).dtype) for leaf, target in pairs])

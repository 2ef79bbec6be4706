"""∇φ* as a transformation of gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from npgm._common import optimizers, validate
from npgm._common.array import Array
from npgm.optax.arguments import SCOPES, hyperparameter
from npgm.optax.leaves import norm, quotient, transformation, widest, working_dtype
from npgm.optax.running import followed, new_state
from npgm.references import Isotropic, Reference, Spectral, as_reference
from npgm.references.training import default_scope

Scale: TypeAlias = jax.typing.ArrayLike | Literal["auto"] | None


class TrackedState(NamedTuple):
    """The state with ``track=True``; ``optax.tree_utils.tree_get(state, "saturation")`` finds its number."""

    inner: Any
    saturation: Array
    """How far ∇φ* was from linear in the last update: 1 - λ ‖u‖ / (h*''(0) ‖y‖) for u = ∇φ*(y), of all leaves together.

    0 for plain gradient descent, near 1 where the gradient was clipped; see `npgm.torch.Saturation`.
    """


def scale_by_preconditioner(
    reference: Reference | str = "isotropic-cosh",
    scale: Scale = None,
    *,
    scope: str | None = None,
    relative_scale: jax.typing.ArrayLike = 1.0,
    scale_decay: jax.typing.ArrayLike = 0.99,
    adjust: str | None = None,
    blocks: int | None = None,
    track: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """Replace the gradients by ∇φ*(gradients), without sign or stepsize.

    An isotropic φ sees all leaves as one vector, of any shapes and dtypes; under `optax.masked` or `optax.partition`,
    the leaves of its own part. A separable φ acts on each entry. A spectral φ acts on each leaf, whose last two axes
    are the rows and columns of a matrix and whose others are a batch; a convolution's kernel of shape (H, W, I, O) is
    one matrix if it is reshaped to (H W I, O) before. bfloat16 and float16 are computed in float32, and the norm of
    large gradients does not overflow. Zero gradients give a zero update; NaN and infinity give NaN where the formula
    does, as in optax; guard with `optax.apply_if_finite` if needed.

    Args:
        reference: φ, or its name for `npgm.reference`.
        scale: λ in place of that of ``reference``. ``"auto"`` makes it follow the gradients (docs/auto-scale.md):
            λ = κ times the running root mean square of the norm of the vector (isotropic), or of the entries or
            singular values of each leaf (separable, spectral), with the present gradient included. Multiplying the loss
            then changes no update.
        scope: whether all leaves are one vector, ``"global"``, or each is one, ``"tensor"``. By default ``"global"``
            for an isotropic φ, and ``"tensor"`` for any other, for which it matters only if ``scale="auto"``.
        relative_scale: κ > 0 of ``scale="auto"``.
        scale_decay: ρ in [0, 1), the decay of that running mean.
        adjust: a factor for ∇φ* of a spectral φ on a matrix whose last axis is the output's, as in flax: ``"aspect"``,
            √max(1, columns/rows), or ``"rms"``, 0.2 √max(rows, columns), for stepsizes of AdamW's size.
        blocks: for a spectral φ, how many matrices of one size each leaf stacks, side by side along the outputs, such
            as the queries, keys and values of one layer; None is 1. Choose the leaves by `optax.partition`, and tell
            `optax.inject_hyperparams` that it is static.
        track: whether the state is a `TrackedState`.

    Returns:
        A transformation whose updates have the dtypes of the gradients. Its state is an `AutoScaleState` if
        ``scale="auto"``, else empty; with ``track`` a `TrackedState` that holds this.

    Raises:
        TypeError, ValueError: if an argument is not accepted; or in an update, if a leaf is not of a real
            floating-point dtype.

    Example:
        >>> precondition = scale_by_preconditioner("separable-log", scale="auto")
        >>> optimizer = optax.chain(precondition, optax.scale_by_learning_rate(0.01))
    """
    phi = as_reference(reference)
    by_tensor = validate.choice("scope", scope or default_scope(phi.lift), SCOPES) == "tensor"
    automatic = isinstance(scale, str) and validate.choice("scale", scale, ["auto"]) == "auto"
    fixed = None if automatic or scale is None else hyperparameter(validate.positive, "scale", scale)
    relative_scale = hyperparameter(validate.positive, "relative_scale", relative_scale)
    scale_decay = hyperparameter(validate.fraction, "scale_decay", scale_decay)
    if adjust is not None:
        if not isinstance(phi, Spectral):
            raise ValueError(f"adjust is for spectral reference functions, not {phi!r}")
        validate.choice("adjust", adjust, optimizers.ADJUSTMENTS)
    if blocks is not None:
        if not isinstance(phi, Spectral):
            raise ValueError(f"blocks is for spectral reference functions, not {phi!r}")
        blocks = validate.count("blocks", blocks, least=1)
    known = phi.scale if fixed is None else fixed
    if isinstance(fixed, float):
        phi, fixed = phi.with_scale(fixed), None
    elif automatic or fixed is not None:
        phi = phi.with_scale(1.0)  # of gradients that are divided by λ

    def init(params: optax.Params) -> optax.OptState:
        state = new_state(params, by_tensor=by_tensor) if automatic else optax.EmptyState()
        dtype = widest([working_dtype(leaf) for leaf in jax.tree.leaves(params)])
        return TrackedState(state, jnp.zeros((), dtype)) if track else state

    def step(leaves: list[Array], state: Any) -> tuple[list[Array], Any]:
        shapes = [leaf.shape for leaf in leaves]
        if blocks is not None:
            leaves = [_in_blocks(leaf, blocks) for leaf in leaves]
        vectors = [[leaf] for leaf in leaves] if by_tensor else [leaves]
        scales = [fixed] * len(vectors)
        inner = state[0] if track else state  # perhaps restored as a list
        if automatic:
            inner, scales = followed(inner, [_size(phi, vector) for vector in vectors], scale_decay)
            scales = [jnp.asarray(relative_scale, value.dtype) * value for value in scales]
        new = [u for vector, value in zip(vectors, scales, strict=True) for u in _preconditioned(phi, vector, value)]
        if track:
            values = [known if value is None else value for value in scales]
            state = TrackedState(inner, _saturation(phi, vectors, new, values))
        else:
            state = inner
        if adjust is not None:
            new = [u * jnp.asarray(adjustment(adjust, u.shape), u.dtype) for u in new]
        if blocks is not None:
            new = [jnp.moveaxis(u, -3, -2).reshape(shape) for u, shape in zip(new, shapes, strict=True)]
        return new, state

    return transformation(init, step)


def _preconditioned(phi: Reference, vector: Sequence[Array], scale: Any) -> list[Array]:
    """Return ∇φ*(vector / scale) in the dtypes of the vector's leaves; a scale of None is 1."""
    if not isinstance(phi, Isotropic):
        ys = [leaf if scale is None else quotient(leaf.astype(working_dtype(leaf)), scale) for leaf in vector]
        us = [phi.precondition(y) if y.size else y for y in ys]
        return [u.astype(leaf.dtype) for u, leaf in zip(us, vector, strict=True)]
    m, q = norm(vector)
    factor = phi.factor(jnp, m if scale is None else quotient(m, scale), q)

    def rescaled(leaf: Array) -> Array:
        working = leaf.astype(working_dtype(leaf))
        return (working / m.astype(working.dtype) * factor.astype(working.dtype)).astype(leaf.dtype)

    return [rescaled(leaf) for leaf in vector]


def _saturation(
    phi: Reference, vectors: Sequence[Sequence[Array]], us: Sequence[Array], scales: Sequence[Any]
) -> Array:
    leaves = [leaf for vector in vectors for leaf in vector]
    of_each = [scale for vector, scale in zip(vectors, scales, strict=True) for _ in vector]
    m, q = norm(leaves)
    scaled = [u.astype(m.dtype) * jnp.asarray(scale, m.dtype) for u, scale in zip(us, of_each, strict=True)]
    size, (a, b) = m * q, norm(scaled)
    return jnp.where(size == 0, 0.0, 1.0 - a * b / (phi.kernel.curvature_at_zero * size)).astype(m.dtype)


def _size(phi: Reference, vector: Sequence[Array]) -> Array:
    """Return what λ is measured by: the norm of the vector, or the root mean square of what φ adds up."""
    m, q = norm(vector)
    if isinstance(phi, Isotropic):
        return m * q
    longest = [max(1, *leaf.shape[-2:], 1) if isinstance(phi, Spectral) else 1 for leaf in vector]
    terms = sum(leaf.size // length for leaf, length in zip(vector, longest, strict=True))
    return m * (q / math.sqrt(max(1, terms)))


def _in_blocks(leaf: Array, blocks: int) -> Array:
    """Return the matrices side by side of which a leaf is made, one after another, as a batch."""
    leaf = jnp.atleast_2d(leaf)  # a vector has one input
    if leaf.shape[-1] % blocks:
        raise ValueError(f"a leaf has {leaf.shape[-1]} outputs, which cannot be {blocks} blocks of one size")
    return jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], blocks, leaf.shape[-1] // blocks), -2, -3)


def adjustment(adjust: str, shape: tuple[int, ...]) -> float:
    """Return what multiplies ∇φ* of a matrix of a spectral φ."""
    inputs, outputs = (1, 1, *shape)[-2:]  # a vector has one input, as the column that it is in npgm.torch
    return optimizers.adjustment(adjust, outputs, inputs)

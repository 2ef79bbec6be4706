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

∇φ* does not commute with scaling. A loss scale must be divided out before it; a loss that is summed and not averaged
over the batch, or gradients that are accumulated and not averaged, change the direction of the step and not only its
length, unless ``scale="auto"``. `optax.MultiSteps` averages. Clipping the gradients before is not needed, and changes
what φ sees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax

from npgm._common import optimizers, validate
from npgm._common.array import Array, joint_norm
from npgm.proximal import Proximable
from npgm.proximal.joint import joint_step, step_or_prox
from npgm.references import Isotropic, Reference, Spectral
from npgm.references import reference as build

Scale: TypeAlias = jax.typing.ArrayLike | Literal["auto"] | None

SCOPES = ("global", "tensor")


class AutoScaleState(NamedTuple):
    """What ``scale="auto"`` or a limit remembers of each vector: trees of scalars, or scalars for all leaves as one."""

    rms: Any
    """The square root of the exponential moving average of squares, from 0, in the units of the gradient."""
    weight: Any
    """The sum of the weights of that average, 1 - ρ^t."""


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

    An isotropic φ sees all leaves as one vector, of whatever shapes and dtypes; under `optax.masked` or
    `optax.partition`, those of its own part. A separable φ acts on each entry. A spectral φ acts on each leaf, whose
    last two axes are the rows and columns of a matrix and whose others are a batch; a convolution's kernel of shape
    (H, W, I, O) is one matrix if it is reshaped to (H W I, O) before. bfloat16 and float16 are computed in float32, and
    the norm of large gradients does not overflow. Zero gradients give a zero update; NaN and infinity give NaN where
    the formula does, as in optax: guard with `optax.apply_if_finite` if wanted.

    Args:
        reference: φ, or its name for `npgm.reference`.
        scale: λ in place of that of ``reference``. ``"auto"`` makes it follow the gradients (docs/auto-scale.md):
            λ = κ times the running root mean square of the norm of the vector (isotropic), or of the entries or
            singular values of each leaf (separable, spectral), the present gradient included. The update is then the
            same for any multiple of the loss.
        scope: whether all leaves are one vector, ``"global"``, or each is one, ``"tensor"``. By default ``"global"``
            for an isotropic φ, and ``"tensor"`` for any other, which it concerns only if ``scale="auto"``.
        relative_scale: κ > 0 of ``scale="auto"``.
        scale_decay: ρ in [0, 1), the decay of that running mean.
        adjust: of a spectral φ, what multiplies ∇φ* of a matrix, whose last axis is the output's, as in flax:
            ``"aspect"``, √max(1, columns/rows), or ``"rms"``, 0.2 √max(rows, columns), for stepsizes of AdamW's size.
        blocks: of a spectral φ, of how many matrices of one size, side by side along the outputs, each leaf is made, as
            queries, keys and values from one layer are; None is 1. Say which leaves by `optax.partition`, and to
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
    phi = _built(reference)
    by_tensor = validate.choice("scope", scope or _default_scope(phi), SCOPES) == "tensor"
    automatic = isinstance(scale, str) and validate.choice("scale", scale, ["auto"]) == "auto"
    fixed = None if automatic or scale is None else _hyperparameter(validate.positive, "scale", scale)
    relative_scale = _hyperparameter(validate.positive, "relative_scale", relative_scale)
    scale_decay = _hyperparameter(validate.fraction, "scale_decay", scale_decay)
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
        state = _new_state(params, by_tensor=by_tensor) if automatic else optax.EmptyState()
        dtype = _widest([_working_dtype(leaf) for leaf in jax.tree.leaves(params)])
        return TrackedState(state, jnp.zeros((), dtype)) if track else state

    def update(
        updates: optax.Updates, state: optax.OptState, params: optax.Params | None = None, **extra: Any
    ) -> tuple[optax.Updates, optax.OptState]:
        del params, extra
        leaves, structure = jax.tree.flatten(updates)
        leaves = [_real(leaf) for leaf in leaves]
        shapes = [leaf.shape for leaf in leaves]
        if blocks is not None:
            leaves = [_in_blocks(leaf, blocks) for leaf in leaves]
        vectors = [[leaf] for leaf in leaves] if by_tensor else [leaves]
        scales = [fixed] * len(vectors)
        inner = state[0] if track else state  # perhaps restored as a list
        if automatic:
            inner, scales = _followed(inner, [_size(phi, vector) for vector in vectors], scale_decay)
            scales = [jnp.asarray(relative_scale, value.dtype) * value for value in scales]
        new = [u for vector, value in zip(vectors, scales, strict=True) for u in _preconditioned(phi, vector, value)]
        if track:
            values = [known if value is None else value for value in scales]
            state = TrackedState(inner, _saturation(phi, vectors, new, values))
        else:
            state = inner
        if adjust is not None:
            new = [u * jnp.asarray(_adjustment(adjust, u.shape), u.dtype) for u in new]
        if blocks is not None:
            new = [jnp.moveaxis(u, -3, -2).reshape(shape) for u, shape in zip(new, shapes, strict=True)]
        return jax.tree.unflatten(structure, new), state

    return optax.GradientTransformationExtraArgs(init, update)


def limit_by_running_norm(
    limit: jax.typing.ArrayLike = 10.0, *, scope: str = "tensor"
) -> optax.GradientTransformationExtraArgs:
    """Cut each vector of gradients that is much longer than those before it, by docs/spikes.md.

    A vector that is longer than ``limit`` times the running root mean square of its lengths is cut to that length. It
    comes first in a chain: before momentum, a spike of 10⁶ would stay in that for hundreds of steps.

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
    limit = _hyperparameter(optimizers.checked_limit, "limit", limit)
    by_tensor = validate.choice("scope", scope, SCOPES) == "tensor"

    def update(
        updates: optax.Updates, state: optax.OptState, params: optax.Params | None = None, **extra: Any
    ) -> tuple[optax.Updates, optax.OptState]:
        del params, extra
        leaves, structure = jax.tree.flatten(updates)
        leaves = [_real(leaf) for leaf in leaves]
        vectors = [[leaf] for leaf in leaves] if by_tensor else [leaves]
        sizes = [m * q for m, q in map(_norm, vectors)]
        rms, weight = map(jax.tree.leaves, state)
        known = zip(sizes, rms, weight, strict=True)
        divisors = [
            optimizers.excess(jnp, size.astype(s.dtype), s, w, jnp.asarray(limit, s.dtype)) for size, s, w in known
        ]
        new = [
            (leaf.astype(_working_dtype(leaf)) / divisor.astype(_working_dtype(leaf))).astype(leaf.dtype)
            for vector, divisor in zip(vectors, divisors, strict=True)
            for leaf in vector
        ]
        state, _ = _followed(state, sizes, optimizers.LIMIT_DECAY, limit)
        return jax.tree.unflatten(structure, new), state

    return optax.GradientTransformationExtraArgs(lambda params: _new_state(params, by_tensor=by_tensor), update)


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
        weight_decay: c >= 0 of the term ½c‖x‖² that is added to the loss, hence to the gradient before the
            preconditioner.
        scale: λ in place of that of ``reference``, or ``"auto"``; see `scale_by_preconditioner`.
        decoupled_weight_decay: whether the decay is taken out of the preconditioner, as in AdamW: x ← (1 - γc) x
            before the step.
        momentum_order: ``"before"`` averages the gradients and preconditions the mean: m ← β m + (1-β) g,
            x ← x - γ ∇φ*(m).
        mask: which parameters decay, as in `optax.add_decayed_weights`.
        accumulator_dtype: the dtype of m; by default that of the parameters.
        scope, relative_scale, scale_decay: see `scale_by_preconditioner`.
        lr_like: what ``learning_rate`` means: γ of Algorithm 1; or ``"sgd"``, that of `optax.sgd`, with which small
            gradients make its steps: x ← x - γ λ m / (h*''(0) (1-β)).
        limit: c > 1 of `limit_by_running_norm`, which comes before all else; None for none. The vectors are those of
            ``scope``.
        nesterov: of a spectral φ, whether β m + (1-β) u takes the place of m in what follows, with the new m and the u
            that it averages.
        adjust, blocks: see `scale_by_preconditioner`.
        adjust, track: see `scale_by_preconditioner`.
        prox: g, a function of `npgm.proximal` that is added to the loss, of each leaf: after a step to y it takes the
            parameters to argmin g + γ φ((· - y)/γ), where those of one isotropic φ are one point. Or a tree of such
            functions and None whose structure is a prefix of that of the parameters.

    Raises:
        TypeError, ValueError: if an argument is out of range, at construction; values under a JAX transformation are
            not checked.
    """
    if not callable(learning_rate):
        learning_rate = _hyperparameter(validate.nonnegative, "learning_rate", learning_rate)
    weight_decay = _hyperparameter(validate.nonnegative, "weight_decay", weight_decay)
    # a part that does nothing keeps its place, so that the structure of the state depends on no number
    decay = average = optax.identity()
    if mask is not None or not _is_zero(weight_decay):
        decay = optax.add_decayed_weights(weight_decay, mask)
    if momentum is not None:
        momentum = _hyperparameter(validate.fraction, "momentum", momentum)
        average = optax.ema(momentum, debias=False, accumulator_dtype=accumulator_dtype)
    if nesterov:
        if momentum is None:
            raise ValueError("nesterov needs momentum")
        if not isinstance(phi := _built(reference), Spectral):
            raise ValueError(f"nesterov is for spectral reference functions, not {phi!r}")
        average = _ahead(average, momentum)
    preconditioner = scale_by_preconditioner(
        reference,
        scale,
        scope=scope,
        relative_scale=relative_scale,
        scale_decay=scale_decay,
        adjust=adjust,
        blocks=blocks,
        track=track,
    )
    parts = [preconditioner]
    parts.insert(
        1 if validate.choice("momentum_order", momentum_order, optimizers.MOMENTUM_ORDERS) == "after" else 0, average
    )
    multiple = 1.0
    if validate.choice("lr_like", lr_like, optimizers.LR_LIKE) == "sgd":
        phi = _built(reference)
        own, beta = phi.scale if scale is None else scale, 0.0 if momentum is None else momentum
        multiple = optimizers.like_sgd(phi, own, beta, follows=isinstance(scale, str))
        parts.append(optax.scale(multiple))
    parts.insert(len(parts) if decoupled_weight_decay else 0, decay)
    if limit is not None:
        parts.insert(0, limit_by_running_norm(limit, scope=scope or _default_scope(_built(reference))))
    parts.append(optax.scale_by_learning_rate(learning_rate))
    if prox is not None:
        if scale is not None and not isinstance(scale, int | float):
            raise ValueError(f"prox needs a scale that is a number, not {scale!r}")
        phi = _built(reference) if scale is None else _built(reference).with_scale(scale)
        parts.append(_proximal_step(prox, phi, learning_rate, multiple, scope or _default_scope(phi), adjust))
    return _keep_dtypes(optax.chain(*parts))


def _proximal_step(
    prox: Any, phi: Reference, learning_rate: Any, multiple: Any, scope: str, adjust: str | None
) -> optax.GradientTransformation:
    """Return what takes updates that lead to y to those that lead to argmin g + γ φ((· - y)/γ)."""
    for function in jax.tree.leaves(prox):
        if not isinstance(function, Proximable):
            raise TypeError(f"prox must hold functions of npgm.proximal such as L1(1e-4), not {function!r}")

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
        rates = [lr.astype(_working_dtype(y)) for y in ys]
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
        lr = lr * _adjustment(adjust, y.shape)
    return step_or_prox(function, phi, matrix, lr, (-2, -1)).reshape(y.shape)


def _is_none(value: Any) -> bool:
    return value is None


def _ahead(average: optax.GradientTransformation, momentum: Any) -> optax.GradientTransformation:
    """Return what looks ahead along an average, as Nesterov's momentum."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        means, state = average.update(updates, state, params)
        return jax.tree.map(lambda u, m: (momentum * m + (1 - momentum) * u).astype(m.dtype), updates, means), state

    return optax.GradientTransformation(average.init, update)


def _named(name: str, reference: str, summary: str) -> Callable[..., optax.GradientTransformationExtraArgs]:
    """Return `npgm` with its φ chosen, and λ where one looks for it."""

    def make(
        learning_rate: optax.ScalarOrSchedule,
        momentum: jax.typing.ArrayLike | None = None,
        scale: Scale = 1.0,
        weight_decay: jax.typing.ArrayLike = 0.0,
        *,
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
        return npgm(
            learning_rate,
            momentum,
            reference,
            weight_decay,
            scale=scale,
            decoupled_weight_decay=decoupled_weight_decay,
            momentum_order=momentum_order,
            mask=mask,
            accumulator_dtype=accumulator_dtype,
            scope=scope,
            relative_scale=relative_scale,
            scale_decay=scale_decay,
            lr_like=lr_like,
            limit=limit,
            nesterov=nesterov,
            adjust=adjust,
            blocks=blocks,
            track=track,
            prox=prox,
        )

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f'{summary} The arguments are those of `npgm`, with λ = ``scale`` or ``scale="auto"``.'
    return make


ihgd = _named(
    "ihgd",
    "isotropic-cosh",
    "Isotropic hyperbolic gradient descent: rescales the gradient to the norm arsinh(‖g‖/λ).",
)
shgd = _named(
    "shgd",
    "separable-cosh",
    "Separable hyperbolic gradient descent: takes each entry of the gradient to arsinh(g_i/λ).",
)
ngd = _named("ngd", "isotropic-log", "Normalised gradient descent: the direction g/(λ + ‖g‖).")
sngd = _named("sngd", "separable-log", "Separable normalised gradient descent: g_i/(λ + |g_i|) in each entry.")


def _default_scope(phi: Reference) -> str:
    return "global" if isinstance(phi, Isotropic) else "tensor"


def _new_state(params: optax.Params, *, by_tensor: bool) -> AutoScaleState:
    dtypes = jax.tree.map(_working_dtype, params)
    if not by_tensor:
        dtypes = _widest(jax.tree.leaves(dtypes))
    return AutoScaleState(*(jax.tree.map(lambda dtype: jnp.zeros((), dtype), dtypes) for _ in range(2)))


def _followed(
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


def _saturation(
    phi: Reference, vectors: Sequence[Sequence[Array]], us: Sequence[Array], scales: Sequence[Any]
) -> Array:
    leaves = [leaf for vector in vectors for leaf in vector]
    of_each = [scale for vector, scale in zip(vectors, scales, strict=True) for _ in vector]
    m, q = _norm(leaves)
    scaled = [u.astype(m.dtype) * jnp.asarray(scale, m.dtype) for u, scale in zip(us, of_each, strict=True)]
    size, (a, b) = m * q, _norm(scaled)
    return jnp.where(size == 0, 0.0, 1.0 - a * b / (phi.kernel.curvature_at_zero * size)).astype(m.dtype)


def _size(phi: Reference, vector: Sequence[Array]) -> Array:
    """Return what λ is measured by: the norm of the vector, or the root mean square of what φ adds up."""
    m, q = _norm(vector)
    return m * (q / math.sqrt(max(1, sum(_terms(phi, leaf) for leaf in vector))))


def _terms(phi: Reference, leaf: Array) -> int:
    """Return how many entries or singular values of a leaf φ adds up; none for an isotropic φ."""
    if isinstance(phi, Isotropic):
        return 0
    rows_and_columns = leaf.shape[-2:] if isinstance(phi, Spectral) else ()
    return int(leaf.size) // max(1, *rows_and_columns, 1)


def _adjustment(adjust: str, shape: tuple[int, ...]) -> float:
    inputs, outputs = (1, 1, *shape)[-2:]  # a vector has one input, as the column that it is in npgm.torch
    return optimizers.adjustment(adjust, outputs, inputs)


def _in_blocks(leaf: Array, blocks: int) -> Array:
    """Return the matrices side by side of which a leaf is made, one after another, as a batch."""
    leaf = jnp.atleast_2d(leaf)  # a vector has one input
    if leaf.shape[-1] % blocks:
        raise ValueError(f"a leaf has {leaf.shape[-1]} outputs, which cannot be {blocks} blocks of one size")
    return jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], blocks, leaf.shape[-1] // blocks), -2, -3)


def _preconditioned(phi: Reference, vector: Sequence[Array], scale: Any) -> list[Array]:
    """Return ∇φ*(vector / scale) in the dtypes of the vector's leaves; a scale of None is 1."""
    if not isinstance(phi, Isotropic):
        return [leaf if leaf.size == 0 else _mapped(phi, leaf, scale) for leaf in vector]
    m, q = _norm(vector)
    factor = phi.factor(jnp, m if scale is None else _quotient(m, scale), q)

    def rescaled(leaf: Array) -> Array:
        working = leaf.astype(_working_dtype(leaf))
        return (working / m.astype(working.dtype) * factor.astype(working.dtype)).astype(leaf.dtype)

    return [rescaled(leaf) for leaf in vector]


def _mapped(phi: Reference, leaf: Array, scale: Any) -> Array:
    if scale is None:
        return phi.precondition(leaf)
    return phi.precondition(_quotient(leaf.astype(_working_dtype(leaf)), scale)).astype(leaf.dtype)


def _quotient(y: Array, scale: Any) -> Array:
    """Return y / scale, with finite quotients beyond the largest finite number cut off there."""
    largest = float(np.finfo(y.dtype).max)
    quotient = y / jnp.asarray(scale, y.dtype)
    return jnp.where(jnp.isfinite(y), jnp.clip(quotient, -largest, largest), y)


def _norm(vector: Sequence[Array]) -> tuple[Array, Array]:
    """Return (m, q) of shape (), in the widest dtype of the leaves, with ‖vector‖ = m q and ‖vector / m‖ = q."""
    dtype = _widest([leaf.dtype for leaf in vector])
    m, q = joint_norm([*vector, jnp.zeros(1, dtype)])
    return m.astype(dtype), q.astype(dtype)


def _real(leaf: Any) -> Array:
    leaf = jnp.asarray(leaf)
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        raise TypeError(f"a gradient has dtype {leaf.dtype}; a real floating-point dtype is needed")
    return leaf


def _working_dtype(leaf: Any) -> Any:
    return _widest([leaf.dtype if hasattr(leaf, "dtype") else jnp.asarray(leaf).dtype])


def _widest(dtypes: Sequence[Any]) -> Any:
    """Return the widest of the dtypes and of float32."""
    return jnp.dtype(jnp.float64 if jnp.dtype(jnp.float64) in dtypes else jnp.float32)


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


def _built(reference: Reference | str) -> Reference:
    if isinstance(reference, str):
        return build(reference)
    if not isinstance(reference, Reference):
        raise TypeError(f"reference must be a reference function or the name of one, not {reference!r}")
    return reference


def _hyperparameter(check: Callable[[str, Any], float], name: str, value: Any) -> Any:
    """Check a number, a NumPy scalar or an array of no dimension, and return it as a float.

    An array of JAX is returned as it is: it may be a tracer, whose value is not known.
    """
    if isinstance(value, jax.Array):
        return value
    if isinstance(value, np.ndarray | np.generic) and value.ndim == 0 and _is_real(value.dtype):
        value = float(value)
    return check(name, value)


def _is_real(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer))


def _is_zero(value: Any) -> bool:
    return not isinstance(value, jax.Array) and value == 0.0

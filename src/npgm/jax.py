"""`npgm.minimize` for functions of JAX, compiled: one `jax.lax.while_loop`, under `jax.jit` and `jax.vmap` as well.

>>> import jax.numpy as jnp
>>> import npgm.jax
>>> def fun(x, a):
...     return jnp.sum(x**4 / 4 + a * x**2 / 2)
>>> res = npgm.jax.minimize(fun, jnp.array([1000.0, -1.0]), args=(1.0,), lr=0.4)
>>> bool(res.success), int(res.status)
(True, 0)
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

try:
    import jax
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    raise ModuleNotFoundError("npgm.jax needs JAX: pip install 'npgm[jax]'", name="jax") from error
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from npgm._common import validate
from npgm._common.array import row_norms
from npgm._common.sharding import explicit_sharding, resharded
from npgm.proximal import as_box
from npgm.solvers import Method, Status
from npgm.solvers.method import chosen
from npgm.solvers.point import Point, rounding
from npgm.solvers.progress import LEFT, PATIENCE, SHRINKS, lowest, nudged

__all__ = ["Result", "minimize"]


class Result(NamedTuple):
    """How a run ended, and where. A pytree; under `jax.vmap` each field has an additional leading axis."""

    x: Any
    """The last point, like ``x0``; after a divergence, the last at which f and its gradient were finite."""
    fun: jax.Array
    """f there; f + g with ``prox``."""
    jac: Any
    """Its gradient there, like ``x0``; with ``prox`` a subgradient."""
    nit: jax.Array
    """The number of iterations."""
    nfev: jax.Array
    """The number of evaluations of f and its gradient."""
    status: jax.Array
    """A `npgm.solvers.Status`: 0 converged, 1 ``maxiter`` reached, 3 diverged or not finite at ``x0``, or others."""
    success: jax.Array
    """Whether ‖∇f(x)‖ <= tol, or as small as the dtype allows."""


def minimize(
    fun: Callable[..., jax.Array],
    x0: Any,
    args: tuple[Any, ...] = (),
    *,
    method: str | Method | None = None,
    maxiter: int | jax.Array = 10_000,
    tol: float | jax.Array = 1e-6,
    bounds: Any = None,
    maxfun: int | jax.Array | None = None,
    **options: Any,
) -> Result:
    """Minimise a smooth function f, or f + g with ``prox=g``, with the steps of `npgm.minimize`.

    It compiles once for each ``fun``, method and shapes. Do not pass a new function in each call; pass what changes in
    ``args``. Derivatives of the result exist in forward mode only, as for any `jax.lax.while_loop`.

    Args:
        fun: ``fun(x, *args)`` returns f, a scalar. `jax.value_and_grad` differentiates it. It must be hashable.
        x0: the start, a pytree of real floating-point arrays, which the method treats as one vector in their common
            dtype. A spectral φ needs a single array.
        args: further arguments of ``fun``, pytrees. A value that is not a tuple is the only argument.
        method: as for `npgm.minimize`, with the same default. JAX must be able to trace your own method; "proximal" is
            not traceable.
        maxiter: the largest number of iterations; each takes one value and one gradient.
        tol: stop if ‖∇f(x)‖ <= tol, or if rounding makes that impossible. With 0, ``maxiter`` iterations are run.
        bounds: as `npgm.minimize` takes them, with numbers that are not traced. A start outside is projected. Bounds
            and ``prox`` need a single array ``x0``, or a g that treats all entries alike.
        maxfun: the largest number of evaluations of f and its gradient; None for no limit.
        **options: the method's own options, Python numbers: ``lr``, a stepsize or a rule such as "auto", ``momentum``,
            ``reference``, ``scale``. A stepsize may also be a JAX array, as under `jax.vmap` or `jax.jacfwd`. ``prox``,
            of `npgm.proximal`, is a function g to add to f: any except total variation and sorted ℓ1, which do not
            compile.

    Raises:
        TypeError, ValueError: if an argument or option is not accepted. A value that is not finite raises nothing; see
            ``status``.
    """
    lr = options.get("lr")
    if isinstance(lr, jax.Array):  # one compilation for all values
        if jnp.shape(lr) != ():
            raise ValueError(f"lr must be a number, not an array of shape {jnp.shape(lr)}; use vmap for several")
        if not isinstance(lr, jax.core.Tracer):
            validate.positive("lr", float(lr))
        options["lr"] = 1.0
    else:
        lr = None
    if not (leaves := jax.tree.leaves(x0)):
        raise ValueError(f"x0 has no entries: {x0!r}")
    for leaf in leaves:
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            raise TypeError(f"x0 has dtype {jnp.result_type(leaf)}; a real floating-point dtype is needed")
    box = None if bounds is None else as_box(bounds, _shape(x0))
    solver = chosen(method, options, box)
    if not solver.smooth and solver.scale_follows:
        raise ValueError(
            f"npgm.jax.minimize takes no scale='auto' with prox, the default of {solver.key!r} for scale=1; "
            "give another scale, or leave out lr and reference, for 'proximal_lbfgs'"
        )
    if box is not None:
        start, unravel = ravel_pytree(x0)
        x0 = unravel(jnp.ravel(box.prox(jnp.reshape(start, _shape(x0)), 1.0)))
    if not isinstance(maxiter, jax.Array):
        maxiter = validate.count("maxiter", maxiter)
    if not isinstance(tol, jax.Array):
        tol = validate.nonnegative("tol", tol)
    if maxfun is None:
        maxfun = int(jnp.iinfo(jnp.int32).max)  # type: ignore[no-untyped-call]
    elif not isinstance(maxfun, jax.Array):
        maxfun = validate.count("maxfun", maxfun, least=1)
    args = args if isinstance(args, tuple) else (args,)  # as SciPy takes them
    result: Result = _run(fun, solver, x0, args, maxiter, tol, maxfun, lr)
    return result


def _shape(x0: Any) -> tuple[int, ...]:
    """Return the shape in which a method sees a tree of arrays: that of a single one, else one vector."""
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(x0)]
    return shapes[0] if len(shapes) == 1 else (sum(map(math.prod, shapes)),)


class _Carry(NamedTuple):
    here: Point
    seen: Point
    """The same with f + g, and a subgradient of that, for a method with a ``prox``."""
    state: Any
    nit: jax.Array
    nfev: jax.Array
    status: jax.Array
    progress: _Progress


class _Progress(NamedTuple):
    """What `npgm.solvers.progress` knows of a run."""

    f: jax.Array
    """The least value."""
    grad_norm: jax.Array
    """The least norm, as of the last progress."""
    last: jax.Array
    """The iteration that brought it."""
    due: jax.Array
    """Whether to ask if any more is possible."""
    still: jax.Array
    """Whether the last step changed no entry of the point."""


_RUNNING = -1


@functools.partial(jax.jit, static_argnums=(0, 1))
def _run(
    fun: Callable[..., jax.Array],
    method: Method,
    x0: Any,
    args: Any,
    maxiter: Any,
    tol: Any,
    maxfun: Any,
    lr: jax.Array | None,
) -> Result:
    start, unravelled = ravel_pytree(x0)
    method = method.flattened(_shape(x0))
    if lr is not None:
        method = copy.copy(method)
        validate.assign(method, lr=lr.astype(start.dtype))
    value_and_grad = jax.value_and_grad(lambda x: fun(unravel(x), *args))

    def unravel(x: jax.Array) -> Any:
        return jax.tree.map(lambda leaf, like: resharded(leaf, explicit_sharding(like)), unravelled(x), x0)

    eps = float(jnp.finfo(start.dtype).eps)  # type: ignore[no-untyped-call]

    def at(x: jax.Array) -> Point:
        f, grad = value_and_grad(x[0])
        return Point(x, f.reshape(1, 1).astype(x.dtype), grad[None], row_norms(jnp, grad[None]))

    def seen(here: Point, state: Any) -> Point:
        if method.smooth:
            return here
        grad = here.grad + state.subgradient
        return Point(here.x, here.f + state.g, grad, row_norms(jnp, grad))

    def status(here: Point, nit: jax.Array, nfev: jax.Array, failed: jax.Array) -> jax.Array:
        ended = jnp.where(nfev >= maxfun, Status.MAXFUN, _RUNNING)
        ended = jnp.where(nit >= maxiter, Status.MAXITER, ended)
        ended = jnp.where(here.grad_norm[0, 0] <= tol, Status.CONVERGED, ended)
        ended = jnp.where(failed[0, 0], Status.DIVERGED, ended)
        return jnp.where(here.f[0, 0] == -jnp.inf, Status.UNBOUNDED, ended).astype(jnp.int32)

    def record(past: _Progress, here: Point, tried: jax.Array, x: jax.Array, nit: jax.Array) -> _Progress:
        f, grad_norm = here.f[0, 0], here.grad_norm[0, 0]
        useful = (grad_norm < SHRINKS * past.grad_norm) | (f < past.f - rounding(eps) * jnp.abs(past.f))
        last = jnp.where(useful, nit, past.last)
        due = (tol > 0) & (grad_norm > tol) & (nit > last) & ((nit - last) % PATIENCE == 0)
        least = jnp.where(useful, jnp.minimum(grad_norm, past.grad_norm), past.grad_norm)
        return _Progress(jnp.minimum(f, past.f), least, last, due, jnp.all(tried == x))

    def advance(carry: _Carry) -> _Carry:
        following, state = method.step(jnp, carry.here, carry.state)
        there = at(following)
        finite = _finite(there)
        if method.judges:
            taken, state = method.judge(jnp, carry.here, there, state)
        else:
            taken = jnp.ones_like(finite)
        arrived = (taken & finite) | (there.f == -jnp.inf)
        here, new = (
            Point(*(jnp.where(arrived, new, old) for new, old in zip(*points, strict=True)))
            for points in ((there, carry.here), (seen(there, state), carry.seen))
        )
        nit, nfev = carry.nit + 1, carry.nfev + 1
        progress = record(carry.progress, new, following, carry.here.x, nit)
        return _Carry(here, new, state, nit, nfev, status(new, nit, nfev, taken & ~finite), progress)

    def runs(carry: _Carry) -> jax.Array:
        return carry.status == _RUNNING

    def ask(carry: _Carry) -> _Carry:
        """Say whether any progress is possible, where there was none for long."""
        here, new, past = carry.here, carry.seen, carry.progress
        near = at(nudged(jnp, here.x, here.grad))
        left = new.grad_norm <= LEFT * row_norms(jnp, near.grad - here.grad)
        exhausted = left & lowest(new.f, past.f, new.grad_norm, row_norms(jnp, here.x), eps)
        nfev = carry.nfev + 1
        ended = jnp.where((carry.status == _RUNNING) & (nfev >= maxfun), Status.MAXFUN, carry.status)
        ended = jnp.where(past.still, Status.STUCK, ended)
        ended = jnp.where(exhausted[0, 0], Status.ROUNDING, ended).astype(jnp.int32)
        return carry._replace(nfev=nfev, status=ended, progress=past._replace(due=jnp.zeros_like(past.due)))

    def on(carry: _Carry) -> _Carry:
        carry = jax.lax.while_loop(lambda carry: runs(carry) & ~carry.progress.due, advance, carry)
        asked = carry.progress.due & ((carry.status == _RUNNING) | (carry.status == Status.MAXITER))
        asked &= carry.nfev < maxfun
        asked_or_not: _Carry = jax.lax.cond(asked, ask, lambda carry: carry, carry)
        return asked_or_not

    here, nit, never = at(start[None]), jnp.zeros((), jnp.int32), jnp.zeros((), bool)
    state = method.init(jnp, here)
    # of f + g no subgradient is known before the first step
    first = here if method.smooth else Point(here.x, here.f + state.g, jnp.nan * here.grad, jnp.inf + 0.0 * here.f)
    nfev = nit + 1
    progress = _Progress(first.f[0, 0], first.grad_norm[0, 0], nit, never, never)
    failed = ~(_finite(here) & jnp.isfinite(first.f))
    carry = _Carry(here, first, state, nit, nfev, status(first, nit, nfev, failed), progress)
    later = jax.eval_shape(advance, carry)
    if len(jax.tree.leaves(later)) > len(jax.tree.leaves(carry)):  # a state that is None until the first step
        none = jax.tree.map(jnp.zeros_like, later.state)
        carry = jax.lax.cond(runs(carry), advance, lambda carry: carry._replace(state=none), carry)
    carry = jax.lax.while_loop(runs, on, carry)
    last = carry.seen
    return Result(
        unravel(last.x[0]),
        last.f[0, 0],
        unravel(last.grad[0]),
        carry.nit,
        carry.nfev,
        carry.status,
        (carry.status == Status.CONVERGED) | (carry.status == Status.ROUNDING),
    )


def _finite(point: Point) -> jax.Array:
    return jnp.isfinite(point.f) & jnp.isfinite(point.grad_norm)

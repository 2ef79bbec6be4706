"""The little that the array API standard leaves open: promotion, norms that do not overflow, host scalars."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias, TypeVar

import array_api_compat
import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

Array: TypeAlias = Any
"""An array of any library that implements the array API standard: NumPy, PyTorch, JAX, CuPy, ..."""

Namespace: TypeAlias = Any
Axis: TypeAlias = int | tuple[int, ...] | None
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Bools: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]

T = TypeVar("T")


def as_real_array(x: Array, name: str = "x") -> tuple[Namespace, Array]:
    """Return the array namespace of ``x``, and ``x`` as one of its arrays; Python numbers become NumPy's.

    Raises:
        TypeError: if ``x`` is not of a real floating-point dtype.
    """
    known = _namespaces.get(type(x))
    if known is not None and x.dtype in known:
        return known[x.dtype], x
    if not array_api_compat.is_array_api_obj(x):
        x = np.asarray(x)
    xp = array_api_compat.array_namespace(x)
    if not _is_real_floating(xp, x.dtype):
        raise TypeError(f"{name} has dtype {x.dtype}; a real floating-point dtype is needed")
    _namespaces.setdefault(type(x), {})[x.dtype] = xp
    return xp, x


_namespaces: dict[type, dict[Any, Namespace]] = {}
"""By class of array and dtype, those that `as_real_array` has accepted: plain dictionaries, which torch.compile traces
without the warnings that it has for a cache of `functools`."""


def _is_real_floating(xp: Namespace, dtype: Any) -> bool:
    try:
        return bool(xp.isdtype(dtype, "real floating"))
    except (TypeError, ValueError):  # strings, objects, ...
        return False


def promote(x: Array) -> tuple[Namespace, Array, Callable[[Array], Array]]:
    """Return the namespace of ``x``, ``x`` in at least float32, and the way back to the dtype of ``x``.

    Sums and quotients in bfloat16 and float16 lose all their digits, so no formula is evaluated in them.
    """
    xp, x = as_real_array(x)
    dtype = x.dtype
    if xp.finfo(dtype).bits >= 32:
        return xp, x, lambda result: result
    return xp, xp.astype(x, xp.float32), lambda result: xp.astype(result, dtype)


def elementwise(formula: Callable[[T, Namespace, Array], Array]) -> Callable[[T, Array], Array]:
    """Turn ``formula(self, xp, x)`` into a method of an array alone, evaluated in at least float32."""

    @functools.wraps(formula)
    def method(self: T, x: Array) -> Array:
        xp, x, restore = promote(x)
        return restore(formula(self, xp, x))

    return method


def scaled_norm(xp: Namespace, y: Array, axis: Axis = None) -> tuple[Array, Array, Array]:
    """Return ``(z, m, q)`` with ``y = m z`` and ``‖y‖ = m q`` over ``axis``, kept as dimensions of size 1.

    ``m`` is max|y|, so that neither a square nor a sum of squares overflows or underflows. It is 1 where y is
    zero or not finite, and at most an eighth of the largest number, lest 1/m be subnormal: XLA multiplies by it.
    Automatic differentiation takes ``m`` for a constant, and ``q`` too where y is zero.
    """
    # max and min, and a dot product below, where abs and squares would each allocate an array of the size of y
    constant = stop_gradient(y)  # m q does not depend on m
    if 0 in y.shape:  # of no entries there is no largest, and the norm is zero
        largest = xp.sum(constant, axis=axis, keepdims=True)
    else:
        largest = xp.maximum(xp.max(constant, axis=axis, keepdims=True), -xp.min(constant, axis=axis, keepdims=True))
    m = xp.clip(divisor(xp, largest), None, 0.125 * float(xp.finfo(y.dtype).max))
    z = y / m
    squares = _sum_of_squares(xp, z, axis)
    nonzero = squares != 0
    # sqrt has no derivative at zero, and an unselected branch must not hand its NaN to automatic differentiation
    q = xp.where(nonzero, xp.sqrt(xp.where(nonzero, squares, xp.ones_like(squares))), xp.zeros_like(squares))
    return z, m, q


def joint_norm(parts: Sequence[Array]) -> tuple[Array, Array]:
    """Return ``(m, q)`` of shape () with ``‖y‖ = m q`` and ``‖y / m‖ = q``, for the vector y of all entries of arrays.

    In the widest dtype of the arrays and of float32; see `scaled_norm`.
    """
    wide = [promote(part)[1] for part in parts]
    xp = array_api_compat.array_namespace(*wide)
    dtype = max((part.dtype for part in wide), key=lambda dtype: xp.finfo(dtype).bits)
    pairs = [[xp.reshape(xp.astype(v, dtype), ()) for v in scaled_norm(xp, part)[1:]] for part in wide]
    # the m of a zero array is 1, which must not hide another array that is tiny
    ms = xp.stack([xp.where(q == 0, xp.zeros_like(m), m) for m, q in pairs])
    m = divisor(xp, xp.max(ms))
    _, rest, q = scaled_norm(xp, ms / m * xp.stack([q for _, q in pairs]))
    return m, xp.reshape(rest * q, ())


def divisor(xp: Namespace, largest: Array) -> Array:
    """Return what to divide by lest squares overflow: max|y|, and 1 where that is zero or not finite."""
    return xp.where((largest > 0) & xp.isfinite(largest), largest, xp.ones_like(largest))


def _sum_of_squares(xp: Namespace, z: Array, axis: Axis) -> Array:
    if isinstance(axis, int):
        return dot(xp, z, z, axis)
    if axis is None and not is_jax(z):
        flat = xp.reshape(z, (-1,))
        return xp.reshape(dot(xp, flat, flat), (1,) * z.ndim)
    return xp.sum(z * z, axis=axis, keepdims=True)


def is_jax(x: Array) -> bool:
    """Return whether an array is JAX's; torch's are known without the cache of which torch.compile warns."""
    return not isinstance(x, np.ndarray) and not hasattr(x, "detach") and bool(array_api_compat.is_jax_array(x))


def dot(xp: Namespace, a: Array, b: Array, axis: int = -1) -> Array:
    """Return the inner products over an axis, which is kept with size 1."""
    # `vecdot` of JAX does not take what is sharded over that axis
    if is_jax(a):
        return xp.sum(a * b, axis=axis, keepdims=True)
    with full_precision(a):  # no array of products is allocated
        products = xp.vecdot(a, b, axis=axis)
    return products[..., None] if axis == -1 else xp.expand_dims(products, axis=axis)


def full_precision(x: Array) -> AbstractContextManager[Any]:
    """Return a context in which products of arrays such as ``x`` are taken in their dtype.

    A caller's `torch.autocast` would take them in 16 bits, where squares overflow.
    """
    if not isinstance(x, np.ndarray) and array_api_compat.is_torch_array(x):
        import torch  # present, since x is one of its arrays

        device = x.device.type
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            return torch.autocast(device, enabled=False)
    return nullcontext()


def one_if_zero(xp: Namespace, q: Array) -> Array:
    """Return ``q`` with 1 in place of 0, to divide by."""
    return xp.where(q == 0, xp.ones_like(q), q)


def norm(xp: Namespace, y: Array, axis: Axis = None) -> Array:
    """Return the Euclidean norm of ``y`` over ``axis``, free of overflow, with the reduced axes kept."""
    squares = _sum_of_squares(xp, y, axis)
    # a zero need not be one
    lost = ~((squares > safe_squares(xp, y.dtype)) & (squares < xp.inf))
    if not holds_somewhere(xp, lost):
        return xp.sqrt(squares)
    _, m, q = scaled_norm(xp, y, axis)
    return xp.where(lost, m * q, xp.sqrt(xp.where(lost, xp.ones_like(squares), squares)))


def safe_squares(xp: Namespace, dtype: Any) -> float:
    """Return the number above which sums of squares that are finite lost no digit to underflow."""
    least = _safe_squares.get(dtype)
    if least is None:
        limits = xp.finfo(dtype)
        _safe_squares[dtype] = least = float(limits.smallest_normal) / float(limits.eps) ** 2
    return least


_safe_squares: dict[Any, float] = {}


def row_norms(xp: Namespace, y: Array) -> Array:
    """Return the norms of the rows of ``y``, of shape (runs, 1)."""
    return norm(xp, y, axis=-1)


def holds_somewhere(xp: Namespace, where: Array) -> bool:
    """Return whether ``where`` holds somewhere; True while JAX traces, when it is not known."""
    if isinstance(where, np.ndarray):
        return bool(where.any())
    try:
        return bool(xp.any(where))
    except TypeError:  # of which JAX's error of a tracer that is asked for its value is one
        return True


def is_traced(x: Array) -> bool:
    """Return whether an array is JAX's with a value that is not known yet, as under ``jit``, ``vmap`` and ``grad``."""
    if not is_jax(x):
        return False
    import jax  # present, since x is one of its arrays

    return isinstance(x, jax.core.Tracer)


State: TypeAlias = tuple[Array, ...]


def repeat(
    xp: Namespace, going: Callable[[State], Array], step: Callable[[State], State], state: State, most: int
) -> State:
    """Return the state after steps that go on while ``going(state)`` holds somewhere, at most ``most`` of them.

    While JAX traces this is one loop of the compiled program, and not its unrolled steps.
    """
    if not any(map(is_traced, state)):
        for _ in range(most):
            if not holds_somewhere(xp, going(state)):
                break
            state = step(state)
        return state
    import jax  # present, since the state is of its arrays

    def goes_on(counted: tuple[Array, State]) -> Array:
        return (counted[0] < most) & xp.any(going(counted[1]))

    def once(counted: tuple[Array, State]) -> tuple[Array, State]:
        return counted[0] + 1, step(counted[1])

    return jax.lax.while_loop(goes_on, once, (0, state))[1]


def select(xp: Namespace, where: Array, new: Array, old: Array) -> Array:
    """Return the rows of ``new`` where ``where`` holds, those of ``old`` elsewhere, without a copy if all are alike."""
    if holds_somewhere(xp, ~where):
        return xp.where(where, new, old) if holds_somewhere(xp, where) else old
    return new


def divide(xp: Namespace, y: Array, scale: float) -> Array:
    """Return ``y / scale``, with finite quotients beyond the largest finite number cut off there."""
    if scale == 1.0:
        return y
    if scale < 1.0:
        limits = xp.finfo(y.dtype)
        bound = float(limits.max) * scale * (1.0 - float(limits.eps))
        y = xp.where(xp.isfinite(y), xp.clip(y, -bound, bound), y)
    return y / scale


def saturated_product(xp: Namespace, m: Array, q: Array) -> Array:
    """Return ``m q`` for nonnegative factors, cut off at the largest finite number where both are finite."""
    # a constant: its derivative would be near the largest number, and NaN in products with zero
    bound = float(xp.finfo(q.dtype).max) / xp.clip(stop_gradient(m), 1.0, None)
    return m * xp.where(xp.isfinite(q), xp.minimum(q, bound), q)


def to_host(x: Array) -> Floats:
    """Copy the few entries of a one-dimensional array to NumPy, in float64."""
    if array_api_compat.is_numpy_array(x):
        return x.astype(np.float64)
    return np.array([float(v) for v in x])


def to_numpy(x: Any) -> np.ndarray[Any, Any]:
    """Return an array of any library, on any device and without its graph, or a number or sequence, as NumPy's."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
    return np.asarray(x.get() if array_api_compat.is_cupy_array(x) else x)


def from_host(xp: Namespace, values: np.ndarray[Any, Any], like: Array) -> Array:
    """Return NumPy's numbers as an array of the library and device of ``like``, and of its dtype unless integers."""
    if isinstance(like, np.ndarray):
        return values if values.dtype.kind == "i" else values.astype(like.dtype, copy=False)
    dtype = None if values.dtype.kind == "i" else like.dtype
    # a copy, as torch warns of memory that must not be written
    return xp.asarray(np.array(values), dtype=dtype, device=array_api_compat.device(like))


def to_bools(x: Array) -> Bools:
    """Copy the few entries of a one-dimensional boolean array to NumPy."""
    return x.copy() if array_api_compat.is_numpy_array(x) else np.array([bool(v) for v in x])


def stop_gradient(x: Array) -> Array:
    """Return ``x`` as a constant of automatic differentiation."""
    if hasattr(x, "detach"):  # torch's
        return x.detach()
    if is_jax(x):
        import jax  # present, since x is one of its arrays

        return jax.lax.stop_gradient(x)
    return x


def axes_last(xp: Namespace, x: Array, axis: Axis) -> tuple[Array, int, Callable[[Array], Array]]:
    """Return ``x`` with the axes ``axis`` last, in their order; how many they are; and the way back.

    Raises:
        numpy.exceptions.AxisError: if ``x`` has no such axis.
        ValueError: if one is repeated.
    """
    axes = tuple(range(x.ndim)) if axis is None else normalize_axis_tuple(axis, x.ndim)
    order = tuple(i for i in range(x.ndim) if i not in axes) + axes
    if order == tuple(range(x.ndim)):
        return x, len(axes), lambda y: y
    back = tuple(order.index(i) for i in range(x.ndim))
    return xp.permute_dims(x, order), len(axes), lambda y: xp.permute_dims(y, back)

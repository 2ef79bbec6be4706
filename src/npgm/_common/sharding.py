"""How an array of JAX lies on a mesh of devices with explicit axes; any other array lies in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from npgm._common.array import Array, is_jax


def unsharded(x: Array, axes: tuple[int, ...]) -> tuple[Array, Callable[[Array], Array]]:
    """Return an array with all of ``axes`` on each device, for what is not computed in parts, and the way back."""
    spec = explicit_sharding(x)
    if spec is None or all(spec[axis] is None for axis in axes):
        return x, lambda y: y
    whole = tuple(axis % x.ndim for axis in axes)
    gathered = type(spec)(*(None if i in whole else name for i, name in enumerate(spec)))
    return resharded(x, gathered), lambda y: resharded(y, spec)


def explicit_sharding(x: Array) -> Any:
    """Return how an array of JAX lies on a mesh with explicit axes; None if it does not."""
    if not is_jax(x):
        return None
    import jax  # present, since x is one of its arrays

    spec = getattr(getattr(jax.typeof(x), "sharding", None), "spec", None) if hasattr(jax, "typeof") else None
    return spec if spec and any(axis is not None for axis in spec) else None


def resharded(x: Array, spec: Any) -> Array:
    """Return an array of JAX as it lies by `explicit_sharding`."""
    import jax

    return x if spec is None else cast(Any, jax.sharding).reshard(x, spec)

"""The array libraries that every array-API function is held to, and points that reach the ends of the number range."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from npgm import _native


@dataclass(frozen=True, repr=False)
class Backend:
    name: str
    array: Callable[[np.ndarray], Any]
    low_precision: tuple[Any, ...]
    """The dtypes below float32."""

    def __repr__(self) -> str:  # without addresses, since processes that share tests compare their names
        return self.name

    def numpy(self, x: Any) -> np.ndarray:
        return np.asarray(x.detach() if self.name == "torch" else x)

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function; with JAX as one program, in place of one for each operation and shape."""
        return jax.jit(function, static_argnames="axis") if self.name == "jax" else function

    def jacobian(self, function: Callable[[Any], Any], x: Any) -> np.ndarray:
        if self.name == "torch":
            return torch.autograd.functional.jacobian(function, x).numpy()
        return np.asarray(_compiled_jacobian(function)(x))

    def derivative(self, function: Callable[[Any], Any], x: Any) -> np.ndarray:
        """Return the derivative of what acts on each entry, for which JAX compiles less than for a Jacobian."""
        if self.name == "torch":
            return torch.autograd.functional.vjp(function, x, torch.ones_like(x))[1].numpy()
        return np.asarray(jax.vjp(function, x)[1](jnp.ones_like(x))[0])


@functools.cache
def _compiled_jacobian(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return jax.jit(jax.jacobian(function))


NUMPY = Backend("numpy", np.asarray, (np.float16,))
TORCH = Backend("torch", lambda x: torch.from_numpy(np.array(x)), (torch.float16, torch.bfloat16))
JAX = Backend("jax", jnp.asarray, (jnp.float16, jnp.bfloat16))
BACKENDS = [NUMPY, TORCH, JAX]
AUTOGRAD = [TORCH, JAX]


def slow_on_jax(*cases: Any) -> list[Any]:
    """Return backends, or cases that have one, of which those of JAX are slow: it compiles every operation for every shape."""
    made = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*case, marks=[pytest.mark.slow] if JAX in case else []) for case in made]


def duals(dtype: type) -> np.ndarray:
    """Return gradients of both signs from 1e-30 to the largest finite number, with zero."""
    largest = float(np.finfo(dtype).max)
    magnitudes = np.concatenate([np.logspace(-30, np.log10(largest) - 1e-3, 301), np.linspace(0.05, 3, 119), [largest]])
    return np.concatenate([-magnitudes[::-1], [0.0], magnitudes]).astype(dtype)


def primals(radius: float, dtype: type) -> np.ndarray:
    """Return points of both signs inside the domain (-radius, radius), from 1e-30 to 50 or close to the radius."""
    end = 50.0 if radius == np.inf else radius * (1 - 2e-3)
    magnitudes = np.concatenate([np.logspace(-30, np.log10(end), 201), np.linspace(0.02 * end, end, 119)])
    return np.concatenate([-magnitudes[::-1], [0.0], magnitudes]).astype(dtype)


def ulps(got: np.ndarray, want: np.ndarray, dtype: type) -> float:
    """Return the largest error in units of the last place of ``want``; what is subnormal may be flushed to zero."""
    limits = np.finfo(dtype)
    want = np.asarray(want, dtype=np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        got = np.asarray(got, dtype=np.float64)
        beyond = np.abs(want) > float(limits.max)
        want = np.where(beyond, np.sign(want) * np.inf, want)
        error = np.abs(got - want) - 2 * float(limits.tiny)
        relative = error / (np.maximum(np.abs(want), float(limits.tiny)) * float(limits.eps))
    return float(np.max(np.where(got == want, 0.0, relative)))


def without_native() -> Any:
    """Return a context in which npgm is as if it had been built without its native module."""
    return mock.patch.object(_native, "_core", None)

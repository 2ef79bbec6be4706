"""A function with its gradient and Hessian-vector products on flat NumPy vectors, for the estimates of `smoothness`."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from npgm._common.array import Floats

Hvp = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Oracle:
    """A twice differentiable function at the vectors of ℝⁿ.

    Args:
        gradient: takes x of shape (n,) to ∇f(x).
        linearize: takes x to ∇f(x) and the function d ↦ ∇²f(x) d.
    """

    gradient: Callable[[Floats], Floats]
    linearize: Callable[[Floats], tuple[Floats, Hvp]]


def from_numpy(fun: Callable[[Floats], tuple[Any, Floats]], hvp: Callable[[Floats, Floats], Floats]) -> Oracle:
    """Return the oracle of ``fun(x) -> (f, ∇f)`` with ``hvp(x, d) -> ∇²f(x) d``, such as the problems of the package.

    The two see flat vectors.
    """

    return Oracle(lambda x: fun(x)[1], lambda x: (fun(x)[1], lambda d: hvp(x, d)))


def from_torch(loss: Callable[[], Any], parameters: Iterable[Any]) -> tuple[Oracle, Floats]:
    """Return the oracle of a PyTorch loss in its parameters as one vector, and their present value.

    Args:
        loss: returns the loss at the parameters' present values, such as
            ``lambda: criterion(model(inputs), targets)``. It must be the same function at each call: no dropout, and
            batch normalisation in evaluation mode. At the first evaluation it is called twice more, and a
            RuntimeWarning says what is not so.
        parameters: the tensors, or pairs of a name and a tensor: ``model.parameters()`` or
            ``model.named_parameters()``. The oracle leaves their values as they were.

    Raises:
        TypeError: if ``parameters`` holds something else, or nothing that requires a gradient.
    """
    import torch

    entries = [entry[1] if isinstance(entry, tuple) else entry for entry in parameters]
    if not all(isinstance(entry, torch.Tensor) for entry in entries):
        raise TypeError("parameters must be tensors, or pairs of a name and a tensor")
    tensors = [tensor for tensor in entries if tensor.requires_grad]
    if not tensors:
        raise TypeError("parameters must contain a tensor that requires a gradient")

    def flatten(parts: Iterable[Any]) -> Floats:
        flat: Floats = torch.cat([part.detach().reshape(-1).cpu().to(torch.float64) for part in parts]).numpy()
        return flat

    sizes = [tensor.numel() for tensor in tensors]

    def split(x: Floats) -> list[Any]:
        if np.shape(x) != (sum(sizes),):
            raise ValueError(f"x must have shape ({sum(sizes)},), as the parameters, not {np.shape(x)}")
        parts = torch.split(torch.from_numpy(np.array(x, dtype=np.float64)), sizes)
        return [part.to(tensor).reshape(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

    @contextlib.contextmanager
    def at(parts: list[Any]) -> Iterator[None]:
        present = [tensor.data for tensor in tensors]
        try:
            for tensor, part in zip(tensors, parts, strict=True):
                tensor.data = part
            yield
        finally:
            for tensor, data in zip(tensors, present, strict=True):
                tensor.data = data

    @functools.cache
    def check() -> None:
        _warn_of_training(loss)

    def gradient(x: Floats) -> Floats:
        with at(split(x)):
            check()
            return flatten(torch.autograd.grad(loss(), tensors, materialize_grads=True))

    def linearize(x: Floats) -> tuple[Floats, Hvp]:
        parts = split(x)
        with at(parts):  # one graph of the gradient for all products at this point
            check()
            grads = torch.autograd.grad(loss(), tensors, create_graph=True, materialize_grads=True)

        def hvp(d: Floats) -> Floats:
            with at(parts):  # the graph refers to the parameters, and so to their values
                products = torch.autograd.grad(
                    grads, tensors, split(d), retain_graph=True, allow_unused=True, materialize_grads=True
                )
            return flatten(products)

        return flatten(grads), hvp

    return Oracle(gradient, linearize), flatten(tensors)


def _warn_of_training(loss: Callable[[], Any]) -> None:
    """Warn if the loss differs from call to call, or calls a batch normalisation in training mode."""
    import torch
    from torch.nn.modules.batchnorm import _BatchNorm
    from torch.nn.modules.dropout import _DropoutNd
    from torch.nn.modules.module import register_module_forward_pre_hook

    found: dict[str, None] = {}

    def note(module: Any, inputs: Any) -> None:
        random = isinstance(module, _DropoutNd) and module.p > 0.0
        if module.training and (random or isinstance(module, _BatchNorm)):
            found[type(module).__name__] = None

    hook = register_module_forward_pre_hook(note)
    try:
        with torch.no_grad():
            first, second = (float(loss()) for _ in range(2))
    finally:
        hook.remove()
    differs = abs(first - second) > 1e-5 * max(abs(first), abs(second))
    if found or differs:
        modules = (
            f"it calls {', '.join(found)} in training mode" if found else f"two calls gave {first!r} and {second!r}"
        )
        warnings.warn(
            f"the loss is not one function of the parameters: {modules}. What is measured of it is noise, or that of "
            "another function; put the model into evaluation mode",
            RuntimeWarning,
            stacklevel=5,
        )


def from_jax(function: Callable[[Any], Any], parameters: Any) -> tuple[Oracle, Floats]:
    """Return the oracle of a JAX function of a pytree of arrays as one vector, and the vector of ``parameters``."""
    import jax
    from jax.flatten_util import ravel_pytree

    start, unravel = ravel_pytree(parameters)
    grad = jax.grad(lambda flat: function(unravel(flat)))
    compiled = jax.jit(grad)
    product = jax.jit(lambda flat, d: jax.jvp(grad, (flat,), (d,))[1])

    def as_jax(x: Floats) -> Any:
        return jax.numpy.asarray(x, dtype=start.dtype)

    def gradient(x: Floats) -> Floats:
        return np.asarray(compiled(as_jax(x)), dtype=np.float64)

    def linearize(x: Floats) -> tuple[Floats, Hvp]:
        flat = as_jax(x)
        return gradient(x), lambda d: np.asarray(product(flat, as_jax(d)), dtype=np.float64)

    return Oracle(gradient, linearize), np.asarray(start, dtype=np.float64)


def as_oracle(source: Any) -> Oracle:
    """Return ``source`` if it is an oracle, or that of an object with ``source(x)`` and ``source.hvp(x, d)``."""
    if isinstance(source, Oracle):
        return source
    if callable(source) and callable(getattr(source, "hvp", None)):
        return from_numpy(source, source.hvp)
    raise TypeError(f"expected an Oracle, or a function with a method hvp(x, d), not {source!r}")

"""∇φ* of a spectral φ on tensors of torch, as fast as its accuracy allows; `npgm.Spectral` is the definition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from npgm._common import validate
from npgm.kernels import Kernel, registry
from npgm.references import Reference, Spectral
from npgm.torch.fused import is_direct
from npgm.torch.norms import divisor, widest_dtype, working_dtype
from npgm.torch.spectral import by_eigen, by_inverses, by_products

METHODS = ("auto", "eigen", "products")

__all__ = ["METHODS", "precondition"]


def precondition(
    phi: Reference,
    matrices: Sequence[Tensor],
    *,
    method: str = "auto",
    dtype: torch.dtype | None = None,
) -> list[Tensor]:
    """Return ∇φ* of each of many matrices; those of one shape are computed together.

    Results are not differentiated, and have the dtypes of their arguments, of which those below float32 are computed in
    float32. A matrix that contains NaN or infinity becomes NaN.

    Args:
        phi: φ, spectral.
        matrices: of shape (..., m, n) each, in any dtypes and on any devices; axes before the last two are a batch.
        method: ``"eigen"`` by the eigenvalues of the Gram matrix, for any kernel; ``"products"`` by matrix products
            alone, without waiting for a device, for the kernels sqrt, logx2 and artanh, with λ at least a thousandth of
            the Frobenius norm; ``"auto"`` by products on accelerators for kernels that have them, and on the CPU in
            float32 for the kernel sqrt by inverses, with λ at least 1/30,000 of the Frobenius norm.
        dtype: in which the products are computed, such as ``torch.bfloat16``.

    Raises:
        TypeError, ValueError: if an argument is not accepted.
    """
    if not isinstance(phi, Spectral):
        raise TypeError(f"phi must be a spectral reference function, not {phi!r}")
    validate.choice("method", method, METHODS)
    if method == "products" and not isinstance(phi.kernel, by_products.KERNELS):
        raise ValueError(f"method 'products' is for the kernels sqrt, logx2 and artanh, not {phi.kernel!r}")
    if is_direct():
        return _precondition(phi, matrices, method, dtype)
    key, parameters = phi.kernel.key, [getattr(phi.kernel, entry.name) for entry in fields(phi.kernel)]  # type: ignore[arg-type]
    scale = phi.scale * torch.ones((), dtype=torch.float64, device="cpu")  # by a product a graph lets it vary
    result: list[Tensor] = torch.ops.npgm.spectral(list(matrices), key, parameters, scale, method=method, dtype=dtype)
    return result


@torch.no_grad()
def _precondition(phi: Spectral, matrices: Sequence[Tensor], method: str, dtype: torch.dtype | None) -> list[Tensor]:
    same: defaultdict[Any, list[int]] = defaultdict(list)
    for i, y in enumerate(matrices):
        if y.ndim < 2 or not y.is_floating_point():
            raise ValueError(f"a matrix must have two axes or more and real entries, not {y.dtype} {tuple(y.shape)}")
        rows, columns = sorted(y.shape[-2:])
        same[rows, columns, working_dtype(y.dtype), y.device].append(i)
    results = list(matrices)
    for (_, _, working, _), members in same.items():
        wide = [_wide(matrices[i]).to(working) for i in members]
        joined = torch.cat([y.reshape(y.shape[:-2].numel(), *y.shape[-2:]) for y in wide])
        done = _of_one_shape(phi, joined, method, dtype) if joined.numel() else joined
        for i, part in zip(members, torch.split(done, [y.shape[:-2].numel() for y in wide]), strict=True):
            y = matrices[i]
            u = part.reshape(_wide(y).shape)
            results[i] = (u if y.shape[-2] <= y.shape[-1] else u.mT).to(y.dtype)
    return results


def _wide(y: Tensor) -> Tensor:
    """Return the matrices with no more rows than columns."""
    return y if y.shape[-2] <= y.shape[-1] else y.mT


def _of_one_shape(phi: Spectral, y: Tensor, method: str, dtype: torch.dtype | None) -> Tensor:
    largest = y.abs().amax((-2, -1))
    # a power of two, by which the division does not round
    m, finite = torch.exp2(torch.log2(divisor(largest)).floor()), torch.isfinite(largest)
    z = y / m[:, None, None]
    whole = y.device.type == "cpu" and bool(finite.all())  # which other devices are not waited for to say
    if not whole:
        z = torch.where(finite[:, None, None], z, 0.0)
    q = m.to(widest_dtype(y.device)) / phi.scale
    products = method == "products" or (method == "auto" and y.device.type != "cpu")
    if products and isinstance(phi.kernel, by_products.KERNELS):
        u = by_products.precondition(phi.kernel, z, q, dtype=dtype)
    elif method == "auto" and by_inverses.takes(phi.kernel, z):
        u = _by_inverses(phi.kernel, z, q)
    else:
        u = by_eigen.precondition(phi.kernel, z, q)
    return u if whole else torch.where(finite[:, None, None], u, torch.nan)


def _by_inverses(kernel: Kernel, z: Tensor, q: Tensor) -> Tensor:
    taken = by_inverses.keeps_to_limit(z, q)
    if taken.all():
        return by_inverses.precondition(z, q)
    result = torch.empty_like(z)
    result[taken] = by_inverses.precondition(z[taken], q[taken])
    result[~taken] = by_eigen.precondition(kernel, z[~taken], q[~taken])
    return result


# The decisions of `by_eigen` depend on values, which no graph has: one node of it is all matrices.
torch.library.define(
    "npgm::spectral",
    "(Tensor[] matrices, str key, float[] parameters, Tensor scale, *, str method, ScalarType? dtype) -> Tensor[]",
)


@torch.library.impl("npgm::spectral", "CompositeExplicitAutograd")
def _(matrices: list[Tensor], key: str, parameters: list[float], scale: Tensor, **options: Any) -> list[Tensor]:
    results = _precondition(Spectral(registry[key](*parameters), scale.item()), matrices, **options)
    return [u.clone() for u in results]  # which are parts of one tensor, and those of an operator are not


@torch.library.register_fake("npgm::spectral")  # type: ignore[untyped-decorator]
def _(matrices: list[Tensor], *args: object, **options: object) -> list[Tensor]:
    made = [_wide(y).new_empty(_wide(y).shape) for y in matrices]
    return [u if y.shape[-2] <= y.shape[-1] else u.mT for y, u in zip(matrices, made, strict=True)]

"""One step of the preconditioned gradient method on tensors: the paths that `npgm.torch.NPGM` chooses from.

The mathematics is that of `npgm.references`. A path is a `Block`: it tells the norms of its gradients and moves its
parameters, by operations of torch or by the operators of `npgm.torch.fused`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import array_api_compat.numpy
import array_api_compat.torch
import numpy as np
import torch
from torch import Tensor
from torch.optim.optimizer import _default_to_fused_or_foreach

from npgm._array import as_real_array
from npgm.references import Isotropic, Reference
from npgm.torch import fused, norms
from npgm.torch.norms import ProcessGroups, working_dtype

if TYPE_CHECKING:
    from npgm._native._core import Tensors

# known before torch.compile traces a step
as_real_array(torch.empty(0, dtype=torch.float32))
as_real_array(torch.empty(0, dtype=torch.float64))


@dataclass(frozen=True)
class Batch:
    """The tensors of one parameter group that have gradients, and what is done with them; see `npgm.torch.NPGM`."""

    parameters: list[Tensor]
    gradients: list[Tensor]
    buffers: list[Tensor]
    """The momentum of each parameter; empty without momentum."""
    reference: Reference
    lr: float | Tensor
    momentum: float
    weight_decay: float
    decoupled_weight_decay: bool
    maximize: bool
    scope: str
    nonfinite: str
    foreach: bool | None
    differentiable: bool
    fused: bool | None

    @property
    def tries_fused(self) -> bool:
        """Whether to take the step in one pass over memory, for the tensors for which that is possible."""
        if self.fused is None:
            return self.foreach is None and not self.differentiable
        return self.fused


def together(batch: Batch) -> Tensors | None:
    """Return all tensors of a group as the native module takes them, if it takes the step of all of them in one call.

    Then they are supported, too, and finding that out takes less time than looking at each.
    """
    if not batch.tries_fused or not fused.accepts(batch.reference) or not fused.is_direct():
        return None
    if isinstance(batch.reference, Isotropic) and any(map(norms.is_flat_shard, batch.parameters)):
        return None
    return fused.gather(batch.parameters, batch.gradients, batch.buffers)


def step(
    batches: Sequence[Batch],
    natives: Sequence[Tensors | None],
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    """Move the parameters of all groups by one step, in place.

    Args:
        batches: one for each parameter group.
        natives: `together` of each.
        grad_scale: what the gradients were multiplied by, of one element.
        found_inf: of one element, nonzero if the step is to leave everything as it is.
    """
    blocks: list[Block] = []
    for i, (batch, native) in enumerate(zip(batches, natives, strict=True)):
        if native is None:
            blocks += _blocks(batch, i, grad_scale)
        else:
            blocks.append(Fused(batch, i, (batch.parameters, batch.gradients, batch.buffers), native, grad_scale))
    measured = [b for b in blocks if isinstance(b.batch.reference, Isotropic) or b.batch.nonfinite == "skip"]
    maxima = dict(zip(measured, norms.largest(measured), strict=True))
    coefficients = _coefficients(maxima)
    keep = _keep(blocks, maxima, found_inf)
    for block in blocks:
        block.move(coefficients.get(block), keep)


def largest(parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return the largest absolute value of each gradient, of shape (1,); it is not finite if any entry is not."""
    return norms.largest([_Piece.of(p, g, None) for p, g in zip(parameters, gradients, strict=True)])


@dataclass(frozen=True, eq=False)
class _Piece:
    """A parameter with its gradient and momentum as this process holds them: plain tensors of real numbers."""

    parameter: Tensor
    gradient: Tensor
    buffer: Tensor | None
    process_groups: ProcessGroups

    @classmethod
    def of(cls, parameter: Tensor, gradient: Tensor, buffer: Tensor | None) -> _Piece:
        process_groups = norms.shard_groups(parameter)
        if norms.is_dtensor(parameter):
            # a nonlinear map needs the sum of partial gradients, as tensor parallelism leaves them
            if gradient.placements != parameter.placements:  # type: ignore[attr-defined]
                gradient = gradient.redistribute(placements=parameter.placements)  # type: ignore[attr-defined]
            parameter, gradient = parameter.to_local(), gradient.to_local()  # type: ignore[attr-defined]
            buffer = None if buffer is None else buffer.to_local()  # type: ignore[attr-defined]
        if parameter.is_complex():
            parameter, gradient = torch.view_as_real(parameter), _as_real(gradient)
            buffer = None if buffer is None else torch.view_as_real(buffer)
        return cls(parameter, gradient, buffer, process_groups)

    def largest(self) -> Tensor:
        y = self.gradient.coalesce().values() if self.gradient.is_sparse else self.gradient
        return _largest(y).reshape(1)


class Block(ABC):
    """Tensors of one group that are moved together."""

    def __init__(self, batch: Batch, index: int, process_groups: ProcessGroups) -> None:
        self.batch = batch
        self.index = index
        self.process_groups = process_groups
        self.per_tensor = False
        """Whether there is a norm for each tensor."""

    @abstractmethod
    def largest(self) -> Tensor:
        """See `norms.Bounded`."""

    @abstractmethod
    def norm(self, m: Tensor) -> Tensor:
        """See `norms.Measurable`."""

    @abstractmethod
    def move(self, coefficient: Tensor | None, keep: Tensor | None) -> None:
        """Move the parameters, if ``keep`` is not False.

        Args:
            coefficient: by what an isotropic φ multiplies the gradients; None for a separable one.
            keep: without dimensions.
        """

    @property
    def decay(self) -> float:
        """The decoupled weight decay."""
        return self.batch.weight_decay if self.batch.decoupled_weight_decay else 0.0

    @property
    def coupled_decay(self) -> float:
        return 0.0 if self.batch.decoupled_weight_decay else self.batch.weight_decay


class Composed(Block):
    """A block that works by operations of torch on one tensor that holds all its gradients."""

    @abstractmethod
    def gradient(self) -> Tensor:
        """The gradient of the loss to minimise, decay included, in the working dtype."""

    @abstractmethod
    def follow(self, u: Tensor, keep: Tensor | None) -> None:
        """Take the direction u into the momentum and move the parameters, if ``keep`` is not False."""

    def largest(self) -> Tensor:
        return _largest(self.gradient()).reshape(1)

    def norm(self, m: Tensor) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(self.gradient() / m.reshape(()))
        return norm.reshape(1)

    def move(self, coefficient: Tensor | None, keep: Tensor | None) -> None:
        self.follow(self.direction(coefficient), keep)

    def direction(self, coefficient: Tensor | None) -> Tensor:
        """∇φ* of the gradient, which for an isotropic φ is a multiple of it."""
        y = self.gradient()
        if coefficient is None:
            u: Tensor = self.batch.reference.precondition(y)
            return u
        return y * coefficient.reshape(())

    def rate(self, u: Tensor, keep: Tensor | None) -> float | Tensor:
        lr = self.batch.lr
        if isinstance(lr, Tensor):
            lr = lr.squeeze()
            # a tensor of one element on the CPU takes part in operations on any device
            lr = lr if lr.device.type == "cpu" else lr.to(u.device)
        elif torch.compiler.is_compiling():
            lr = lr * u.new_ones(())  # in any other use than a product a float is compiled in as a constant
        return lr if keep is None else lr * keep.to(u)

    def weight(self, u: Tensor, keep: Tensor | None) -> float | Tensor:
        weight = 1.0 - self.batch.momentum
        return weight if keep is None else weight * keep.to(u)


class SingleTensor(Composed):
    """One parameter. Its gradient is computed anew each time it is needed, so that no copy of all of them is held."""

    def __init__(self, batch: Batch, index: int, piece: _Piece, grad_scale: Tensor | None) -> None:
        super().__init__(batch, index, piece.process_groups)
        self.parameter, self.buffer, self.grad_scale = piece.parameter, piece.buffer, grad_scale
        self.dtype = _dtype(piece)
        gradient = piece.gradient
        self.sparse: Tensor | None = None
        if gradient.is_sparse:
            # what is coalesced has one value for each index, to which a nonlinear map can be applied; momentum and
            # decay make the step dense
            if self.buffer is None and not batch.weight_decay and self.parameter.dtype == self.dtype:
                self.sparse = gradient = gradient.coalesce()
                gradient = gradient.values()
            else:
                gradient = gradient.to_dense()
        self.raw = gradient

    def gradient(self) -> Tensor:
        y = self.raw.to(self.dtype)
        if self.grad_scale is not None:
            y = y / self.grad_scale.to(y.device)
        if self.batch.maximize:
            y = -y
        if self.coupled_decay:
            y = y.add(self.parameter, alpha=self.coupled_decay)
        return y

    def follow(self, u: Tensor, keep: Tensor | None) -> None:
        if keep is not None:
            u = torch.where(keep.to(u.device), u, 0.0)
        if self.buffer is not None:
            weight = self.weight(u, keep)
            if self.buffer.dtype == self.dtype:
                u = self.buffer.lerp_(u, weight)
            else:
                u = self.buffer.to(self.dtype).lerp_(u, weight)
                self.buffer.copy_(u)
            if self.batch.differentiable:
                u = u.clone()  # the buffer changes in the next step
        if self.sparse is not None:
            u = torch.sparse_coo_tensor(
                self.sparse.indices(), u, self.parameter.shape, is_coalesced=True, check_invariants=False
            )
        lr = self.rate(u, keep)
        x = self.parameter.to(self.dtype)
        if self.decay:
            x.mul_(1.0 - lr * self.decay)
        if isinstance(lr, Tensor):
            x.sub_(u * lr)
        else:
            x.add_(u, alpha=-lr)
        if x is not self.parameter:
            self.parameter.copy_(x)


class MultiTensor(Composed):
    """Parameters of one dtype on one device, by `torch._foreach_*` and a flat copy of the gradients.

    There is no foreach form of most preconditioners; on the flat copy each of their operations is one launch.
    """

    def __init__(self, batch: Batch, index: int, pieces: list[_Piece], grad_scale: Tensor | None) -> None:
        super().__init__(batch, index, pieces[0].process_groups)
        self.parameters = [piece.parameter for piece in pieces]
        self.buffers = [piece.buffer for piece in pieces if piece.buffer is not None]
        self.dtype = _dtype(pieces[0])
        self.flat, views = _gather([piece.gradient for piece in pieces], self.parameters, self.dtype)
        if grad_scale is not None:
            self.flat.div_(grad_scale.to(self.flat.device))
        if batch.maximize:
            self.flat.neg_()
        if self.coupled_decay:
            torch._foreach_add_(views, self.parameters, alpha=self.coupled_decay)
        self.views = views
        self.per_tensor = isinstance(batch.reference, Isotropic) and batch.scope == "tensor"

    def gradient(self) -> Tensor:
        return self.flat

    def largest(self) -> Tensor:
        if not self.per_tensor:
            return super().largest()
        zero = self.flat.new_zeros(1)  # the norm of order infinity of nothing is an error
        return torch.stack(torch._foreach_norm([view if view.numel() else zero for view in self.views], torch.inf))

    def norm(self, m: Tensor) -> Tensor:
        if not self.per_tensor:
            return super().norm(m)
        scaled = self.flat / self._spread(m)
        return torch.stack(torch._foreach_norm(_split(scaled, self.parameters)))

    def direction(self, coefficient: Tensor | None) -> Tensor:
        if coefficient is None:
            return super().direction(coefficient)
        return self.flat.mul_(self._spread(coefficient) if self.per_tensor else coefficient.reshape(()))

    def follow(self, u: Tensor, keep: Tensor | None) -> None:
        if keep is not None:
            u = torch.where(keep.to(u.device), u, 0.0)
        updates = self.views if u is self.flat else _split(u, self.parameters)
        del self.flat, self.views
        lr = self.rate(u, keep)
        if self.buffers:
            weight = self.weight(u, keep)
            means = self._wide(self.buffers)
            if isinstance(weight, Tensor):
                torch._foreach_mul_(means, 1.0 - weight)
                torch._foreach_add_(means, torch._foreach_mul(updates, weight))
            else:
                torch._foreach_lerp_(means, updates, weight)
            if means is not self.buffers:
                torch._foreach_copy_(self.buffers, means)
            updates = means
        points = self._wide(self.parameters)
        if self.decay:
            torch._foreach_mul_(points, 1.0 - lr * self.decay)
        if isinstance(lr, Tensor):
            torch._foreach_sub_(points, torch._foreach_mul(updates, lr))
        else:
            torch._foreach_add_(points, updates, alpha=-lr)
        if points is not self.parameters:
            torch._foreach_copy_(self.parameters, points)

    def _wide(self, tensors: list[Tensor]) -> list[Tensor]:
        if tensors[0].dtype == self.dtype:
            return tensors
        return _gather(tensors, self.parameters, self.dtype)[1]

    def _spread(self, values: Tensor) -> Tensor:
        """Repeat each of ``values`` for all the entries of its tensor."""
        return torch.cat([v.expand(p.numel()) for v, p in zip(values.unbind(), self.parameters, strict=True)])


class Fused(Block):
    """Parameters of one dtype on one device, by one operator of `npgm.torch.fused` for a step and one for norms."""

    def __init__(
        self,
        batch: Batch,
        index: int,
        tensors: tuple[list[Tensor], list[Tensor], list[Tensor]],
        native: Tensors | None,
        grad_scale: Tensor | None,
    ) -> None:
        super().__init__(batch, index, ())
        self.parameters, self.gradients, self.buffers = tensors
        self.native = native
        self.device = self.parameters[0].device
        self.grad_scale = None if grad_scale is None else grad_scale.to(self.device)
        self.per_tensor = isinstance(batch.reference, Isotropic) and batch.scope == "tensor"

    def largest(self) -> Tensor:
        call = torch.ops.npgm.norms if self.native is None else partial(fused.norms, tensors=self.native)
        norms: Tensor = call(
            self.parameters,
            self.gradients,
            self.grad_scale,
            maximize=self.batch.maximize,
            decay=self.coupled_decay,
            per_tensor=self.per_tensor,
        )
        self.maxima, self.ratios = norms[0], norms[1]
        return self.maxima

    def norm(self, m: Tensor) -> Tensor:
        scaled = (self.maxima > 0) & torch.isfinite(self.maxima)
        norm: Tensor = self.ratios * (torch.where(scaled, self.maxima, 1.0) / m)
        return norm

    def host_coefficient(self) -> Tensor:
        """The result of `_coefficients` where this block is all of a vector.

        By NumPy: operations on a few numbers take a tenth of the time that they take by torch.
        """
        phi, maxima, q = self.batch.reference, self.maxima.numpy(), self.ratios.numpy()
        assert isinstance(phi, Isotropic)
        with np.errstate(all="ignore"):
            m = np.where((maxima > 0) & np.isfinite(maxima), maxima, 1.0)
            return norms.finite(torch.from_numpy(phi.factor(array_api_compat.numpy, m, q) / m))

    def move(self, coefficient: Tensor | None, keep: Tensor | None) -> None:
        kernel, kernel_parameters = fused.kernel(self.batch.reference)
        direct = self.native is not None
        call = partial(fused.step_, tensors=self.native) if direct else torch.ops.npgm.step_
        call(
            self.parameters,
            self.gradients,
            self.buffers,
            coefficient,
            self.batch.lr if direct else self.rate(),
            self.grad_scale,
            None if keep is None else keep.to(self.device),
            kernel=kernel,
            kernel_parameters=kernel_parameters,
            scale=self.batch.reference.scale,
            weight=1.0 - self.batch.momentum,
            coupled_decay=self.coupled_decay,
            decoupled_decay=self.decay,
            maximize=self.batch.maximize,
        )

    def rate(self) -> Tensor:
        """The learning rate as a number of float64 on the device, made of one on the CPU without waiting for it."""
        lr = self.batch.lr
        if isinstance(lr, Tensor):
            lr = lr.reshape(())
            lr = lr if lr.is_cpu else lr.to(self.device)
        # a product, since a float by itself would be compiled in as a constant
        return lr * torch.ones((), dtype=torch.float64, device=self.device)


def _blocks(batch: Batch, index: int, grad_scale: Tensor | None) -> list[Block]:
    foreach = batch.foreach
    buffers: Sequence[Tensor | None] = batch.buffers or [None] * len(batch.parameters)
    pieces = [_Piece.of(*each) for each in zip(batch.parameters, batch.gradients, buffers, strict=True)]
    if foreach is None:
        _, foreach = _default_to_fused_or_foreach([piece.parameter for piece in pieces], batch.differentiable)
    alone: list[_Piece] = []
    stacked: defaultdict[Any, list[_Piece]] = defaultdict(list)
    at_once: defaultdict[Any, tuple[list[Tensor], list[Tensor], list[Tensor]]] = defaultdict(lambda: ([], [], []))
    for piece in pieces:
        parameter, gradient, buffer = piece.parameter, piece.gradient, piece.buffer
        key = (parameter.device, parameter.dtype, None if buffer is None else buffer.dtype)
        if (
            batch.tries_fused
            and not piece.process_groups
            and fused.accepts(batch.reference, parameter.device.type)
            and fused.accepts_tensors(parameter, gradient, buffer)
        ):
            for members, tensor in zip(at_once[key], (parameter, gradient, buffer), strict=True):
                if tensor is not None:
                    members.append(tensor)
        elif foreach and not gradient.is_sparse:
            stacked[key, piece.process_groups].append(piece)
        else:
            alone.append(piece)
    return [
        *(SingleTensor(batch, index, piece, grad_scale) for piece in alone),
        *(MultiTensor(batch, index, pieces, grad_scale) for pieces in stacked.values()),
        *(
            Fused(batch, index, tensors, fused.gather(*tensors) if fused.is_direct() else None, grad_scale)
            for tensors in at_once.values()
        ),
    ]


def _coefficients(maxima: dict[Block, Tensor]) -> dict[Block, Tensor]:
    """Return, for each block with an isotropic φ, the numbers by which ∇φ* multiplies its gradients."""
    units: defaultdict[Any, list[Block]] = defaultdict(list)
    coefficients: dict[Block, Tensor] = {}
    for block in maxima:
        if isinstance(block.batch.reference, Isotropic):
            key = {"global": None, "group": block.index, "tensor": block}[block.batch.scope]
            units[key].append(block)
    members = []
    for unit in units.values():
        if len(unit) == 1 and isinstance(unit[0], Fused) and unit[0].native is not None:
            coefficients[unit[0]] = unit[0].host_coefficient()
        else:
            members.append(unit)
    results = norms.scaled_norms(members, [[maxima[block] for block in unit] for unit in members])
    for unit, (m, q) in zip(members, results, strict=True):
        by_group: dict[int, norms.Narrowed] = {}
        for block in unit:
            if block.index not in by_group:
                phi = block.batch.reference
                assert isinstance(phi, Isotropic)
                by_group[block.index] = norms.Narrowed(phi.factor(array_api_compat.torch, m, q) / m, norms.finite)
            coefficients[block] = by_group[block.index].like(maxima[block])
    return coefficients


def _keep(blocks: Sequence[Block], maxima: dict[Block, Tensor], found_inf: Tensor | None) -> Tensor | None:
    """Return whether to move, as a tensor without dimensions, or None if that is not asked."""
    flags = [] if found_inf is None else [found_inf.reshape(1) == 0]
    flags += [torch.isfinite(maxima[b]) for b in blocks if b.batch.nonfinite == "skip"]
    return torch.cat([flag.to(flags[0].device) for flag in flags]).all() if flags else None


def _dtype(piece: _Piece) -> torch.dtype:
    """Return the dtype in which to compute."""
    dtype = working_dtype(piece.parameter.dtype)
    return dtype if piece.buffer is None else torch.promote_types(dtype, piece.buffer.dtype)


def _largest(y: Tensor) -> Tensor:
    if y.numel() == 0:
        return y.new_zeros(())
    low, high = torch.aminmax(y)  # many times as fast on the CPU as the norm of order infinity
    return torch.maximum(high, -low)


def _gather(tensors: list[Tensor], like: list[Tensor], dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
    """Copy tensors into one of one dimension; return it and its views, laid out as ``like``."""
    flat = torch.empty(sum(t.numel() for t in like), dtype=dtype, device=like[0].device)
    views = _split(flat, like)
    torch._foreach_copy_(views, tensors)
    return flat, views


def _split(flat: Tensor, like: list[Tensor]) -> list[Tensor]:
    """Return views of ``flat`` of the shapes of ``like``, and of their strides where those fill the memory."""
    parts = torch.split(flat, [t.numel() for t in like])
    return [
        part.view(t.shape) if t.is_contiguous() or not fused.is_dense(t) else part.as_strided(t.shape, t.stride())
        for part, t in zip(parts, like, strict=True)
    ]


def _as_real(gradient: Tensor) -> Tensor:
    """View complex numbers as pairs of reals, in a sparse tensor too."""
    if not gradient.is_sparse:
        return torch.view_as_real(gradient.resolve_conj())
    gradient = gradient.coalesce()
    values = torch.view_as_real(gradient.values())
    return torch.sparse_coo_tensor(
        gradient.indices(), values, (*gradient.shape, 2), is_coalesced=True, check_invariants=False
    )

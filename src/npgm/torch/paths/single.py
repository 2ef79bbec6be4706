"""One tensor at a time, by operations of torch: any φ, sparse gradients, autograd through the step.

What φ is given is computed anew each time that it is needed, so that no copy of all gradients is held.
"""

from __future__ import annotations

import torch
from torch import Tensor

from npgm._common import optimizers
from npgm.references import Spectral
from npgm.torch.batch import Batch, Lengths
from npgm.torch.matrix_form import as_matrices, of_matrices
from npgm.torch.norms import Norm, divisor, largest_of
from npgm.torch.rule import Rule


def measure(batch: Batch, rule: Rule) -> Norm:
    """See `npgm.torch.batch.Path`."""
    y = _gradient(batch, rule)
    if rule.before:
        y = batch.momentum[0].to(y.dtype).lerp(y, 1.0 - batch.options.momentum)
    largest = largest_of(y.detach())
    ratio: Tensor = torch.linalg.vector_norm(y / divisor(largest).reshape(()))
    return Norm(largest, ratio.reshape(1))


def apply_step(batch: Batch, factor: Tensor | None, applies: Tensor | None) -> Lengths:
    """See `npgm.torch.batch.Path`."""
    (parameter,), (gradient,), rule = batch.parameters, batch.gradients, batch.options.rule
    u = _gradient(batch, rule)
    lengths: Lengths = None
    if not rule.before:
        u, lengths = _direction(batch, u, factor)
    u = masked(u, applies)
    for buffer in batch.momentum:
        mean = buffer.to(u.dtype).lerp_(u, batch.weight(u, applies))
        if mean is not buffer:
            buffer.copy_(mean)
        if batch.options.nesterov:
            u = u.lerp(mean, batch.options.momentum)
        else:  # autograd keeps it, and the next step changes it
            u = mean.clone() if batch.options.differentiable else mean
    if rule.before:
        u, lengths = _direction(batch, u, factor)
        u = masked(u, applies)
    if gradient.is_sparse:
        u = torch.sparse_coo_tensor(gradient.indices(), u, parameter.shape, is_coalesced=True, check_invariants=False)
    lr = batch.rate(u, applies)
    x = parameter.to(u.dtype)
    if rule.decoupled_decay:
        left = 1.0 - lr * rule.decoupled_decay
        x.copy_(x.clone() * left) if batch.options.differentiable else x.mul_(left)  # autograd keeps what it multiplies
    if isinstance(lr, Tensor):
        x.sub_(u * lr)
    else:
        x.add_(u, alpha=-lr)
    if x is not parameter:
        parameter.copy_(x)
    return lengths


def _gradient(batch: Batch, rule: Rule) -> Tensor:
    """The gradient of the loss to minimise, decay included, in the working dtype."""
    (parameter,), (gradient,) = batch.parameters, batch.gradients
    y = (gradient.values() if gradient.is_sparse else gradient).to(batch.working_dtype)
    if batch.grad_scale is not None:
        y = y / batch.grad_scale.to(y).reshape(())
    if rule.maximize:
        y = -y
    if rule.coupled_decay:
        y = y.add(parameter, alpha=rule.coupled_decay)
    return y


def _direction(batch: Batch, y: Tensor, factor: Tensor | None) -> tuple[Tensor, Lengths]:
    """∇φ*(y), which for an isotropic φ is a multiple of y, with what is tracked."""
    if batch.options.rule.isotropic:
        return y * factor.reshape(()), None  # type: ignore[union-attr]
    quotient = y if factor is None else cut_off(y / factor.reshape(()), y.isinf())
    phi = batch.options.phi
    view = as_matrices(quotient, batch.options) if isinstance(phi, Spectral) else quotient
    u: Tensor = phi.precondition(view)
    lengths = None
    if batch.options.tracks:
        lengths = torch.linalg.vector_norm(y.detach()).reshape(1), torch.linalg.vector_norm(u.detach()).reshape(1)
    if batch.options.adjust is not None:
        u = u * optimizers.adjustment(batch.options.adjust, *u.shape[-2:])
    return (of_matrices(u, y, batch.options) if isinstance(phi, Spectral) else u), lengths


def cut_off(quotient: Tensor, infinite: Tensor) -> Tensor:
    """Return quotients cut off at the largest finite number, except where they are of infinite dividends."""
    largest = torch.finfo(quotient.dtype).max
    return torch.where(infinite, quotient, quotient.clamp(-largest, largest))


def masked(u: Tensor, applies: Tensor | None) -> Tensor:
    """Return u, 0 where ``applies`` is False: not even NaN, which a product with 0 would leave."""
    return u if applies is None else torch.where(applies.to(u.device), u, 0.0)

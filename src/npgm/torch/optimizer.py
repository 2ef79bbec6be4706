"""The nonlinearly preconditioned gradient method as a `torch.optim.Optimizer`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, overload

import array_api_compat.torch
import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from npgm import _validate
from npgm.kernels import Cosh, Kernel, Log, registry
from npgm.references import Isotropic, Reference, Separable, reference
from npgm.torch.norms import scaled_norm, working_dtype


class NPGM(Optimizer):
    r"""Preconditioned gradients with momentum: m ← β m + (1-β) ∇φ*(∇f), x ← x - γ m, from m = 0.

    Algorithm 1 of the paper with stochastic gradients; at ``momentum=0`` its stochastic method. The preconditioner
    takes the place of gradient clipping, and momentum averages the *preconditioned* gradients.

    An isotropic φ sees the norm of all parameters whose group has an isotropic φ, over all groups, as one vector; a
    separable φ acts on each entry. Where the preconditioner is linear (φ = ½‖·‖²) this is
    ``torch.optim.SGD(momentum=β, dampening=β)``, except that SGD's first step is not damped.

    ∇φ* does not commute with scaling: a loss that is summed and not averaged over the batch, or gradients that are
    accumulated and not averaged, change the direction of the step and not only its length.

    Args:
        params: parameters or parameter groups. A group may set each of the options below.
        lr: the stepsize γ >= 0.
        momentum: β in [0, 1), with the factor 1-β of Algorithm 1: a step has the length of one without momentum.
        reference: φ, or its name for `npgm.reference`. It is stored in the group by ``reference`` (the name) and
            ``scale``, so that a checkpoint loads with ``weights_only=True``.
        weight_decay: c >= 0 of the term ½c‖x‖² that is added to the loss, hence to the gradient before the
            preconditioner.
        maximize: whether to maximise.

    Raises:
        TypeError, ValueError: if an option is not accepted, in any group; or in a step, if a gradient is sparse or
            complex.

    Example:
        >>> model = torch.nn.Linear(10, 1)
        >>> optimizer = NPGM(model.parameters(), lr=0.5, momentum=0.9, reference=Isotropic(Cosh(), scale=2.0))
        >>> model(torch.randn(8, 10)).square().mean().backward()
        >>> optimizer.step()

    A gradient that holds NaN or infinity makes the step NaN, as in torch.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        momentum: float = 0.0,
        reference: Reference | str = "isotropic-cosh",
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "scale": 1.0,
            **_stored(reference),
        }
        _check(defaults)
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters with its own options; see `torch.optim.Optimizer.add_param_group`."""
        if isinstance(param_group, dict):  # torch refuses anything else
            param_group |= _stored(param_group.get("reference", self.defaults["reference"]))
            _check(self.defaults | param_group)
        super().add_param_group(param_group)

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Make one step.

        Args:
            closure: computes the loss and its gradients anew and returns the loss, which is then returned.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        groups = [(group, _built(group), self._gradients(group)) for group in self.param_groups]
        isotropic = [g for _, phi, gradients in groups if isinstance(phi, Isotropic) for g in gradients.values()]
        m, q = scaled_norm(isotropic)
        for group, phi, gradients in groups:
            factor = phi.factor(array_api_compat.torch, m, q) if isinstance(phi, Isotropic) else None
            for parameter, gradient in gradients.items():
                if factor is None:
                    u = phi.precondition(gradient)
                else:
                    working = gradient.to(working_dtype(gradient.dtype))
                    u = working / m.to(working) * factor.to(working)
                self._move(parameter, u.to(parameter.dtype), group["lr"], group["momentum"])
        return loss

    def _gradients(self, group: dict[str, Any]) -> dict[Tensor, Tensor]:
        """Return the gradient of the regularised loss to minimise, for each parameter that has one."""
        gradients = {}
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is None:
                continue
            if gradient.is_sparse or gradient.is_complex():
                kind = "sparse" if gradient.is_sparse else "complex"
                raise ValueError(f"{type(self).__name__} does not support {kind} gradients")
            if group["maximize"]:
                gradient = -gradient
            if group["weight_decay"]:
                gradient = gradient.add(parameter, alpha=group["weight_decay"])
            gradients[parameter] = gradient
        return gradients

    def _move(self, parameter: Tensor, u: Tensor, lr: float, momentum: float) -> None:
        if momentum:
            state = self.state[parameter]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            u = state["momentum_buffer"].lerp_(u, 1.0 - momentum)
        parameter.add_(u, alpha=-lr)


class _Named(NPGM):
    """NPGM with the reference function chosen up to its scale."""

    _lift: ClassVar[type[Reference]]
    _kernel: ClassVar[type[Kernel]]

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        momentum: float = 0.0,
        scale: float = 1.0,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, momentum, self._lift(self._kernel(), scale), weight_decay, maximize=maximize)


class IHGD(_Named):
    """Isotropic hyperbolic gradient descent: `NPGM` that rescales the gradient to the norm arsinh(‖∇f‖/λ)."""

    _lift, _kernel = Isotropic, Cosh


class SHGD(_Named):
    """Separable hyperbolic gradient descent: `NPGM` that takes each entry of the gradient to arsinh(∇f_i/λ)."""

    _lift, _kernel = Separable, Cosh


class NGD(_Named):
    """Normalised gradient descent: `NPGM` with the direction ∇f/(λ + ‖∇f‖)."""

    _lift, _kernel = Isotropic, Log


class SNGD(_Named):
    """Separable normalised gradient descent: `NPGM` with the direction ∇f_i/(λ + |∇f_i|) in each entry."""

    _lift, _kernel = Separable, Log


def _stored(phi: Reference | str) -> dict[str, Any]:
    """Return the entries of a parameter group that stand for φ: plain values, safe in a checkpoint."""
    if isinstance(phi, str):
        return {"reference": phi}
    if not isinstance(phi, Reference):
        raise TypeError(f"reference must be a reference function or the name of one, not {phi!r}")
    if registry.get(phi.kernel.key) is not type(phi.kernel):
        raise ValueError(f"the kernel of {phi!r} is not registered; decorate its class with npgm.kernels.register")
    return {"reference": phi.name, "scale": phi.scale}


def _built(group: dict[str, Any]) -> Reference:
    return reference(group["reference"], scale=group["scale"])


def _check(group: dict[str, Any]) -> None:
    _validate.nonnegative("lr", group["lr"])
    _validate.fraction("momentum", group["momentum"])
    _validate.nonnegative("weight_decay", group["weight_decay"])
    if not isinstance(group["maximize"], bool):
        raise TypeError(f"maximize must be a bool, not {group['maximize']!r}")
    _built(group)

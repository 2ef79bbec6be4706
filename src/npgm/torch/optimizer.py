"""The nonlinearly preconditioned gradient method as a `torch.optim.Optimizer`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar, TypedDict, Unpack, overload

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT, _use_grad_for_differentiable

from npgm import _validate
from npgm.kernels import Cosh, Kernel, Log, registry
from npgm.references import Isotropic, Reference, Separable, Spectral, lifts, reference
from npgm.torch import functional, norms
from npgm.torch import fused as fused_steps

SCOPES = ("global", "group", "tensor")
NONFINITE = ("propagate", "skip", "raise")


class NPGM(Optimizer):
    r"""Preconditioned gradients with momentum: m ← β m + (1-β) ∇φ*(∇f), x ← x - γ m, from m = 0.

    Algorithm 1 of the paper with stochastic gradients; at ``momentum=0`` its stochastic method. The preconditioner
    takes the place of gradient clipping, and momentum averages the *preconditioned* gradients. Where the
    preconditioner is linear (φ = ½‖·‖²) this is ``torch.optim.SGD(momentum=β, dampening=β)``, except that SGD's first
    step is not damped.

    ∇φ* does not commute with scaling: a loss that is summed and not averaged over the batch, or gradients that are
    accumulated and not averaged, change the direction of the step and not only its length.

    Parameters of less than float32 are computed with in float32, complex ones as pairs of real numbers. A sparse
    gradient makes a sparse step if there is neither momentum nor weight decay, and a dense one otherwise. DTensors
    (FSDP2, tensor parallelism) are stepped shard by shard, with the norm of the whole; a `torch.amp.GradScaler` hands
    over its scale and its verdict without a synchronisation.

    Args:
        params: parameters, named parameters or parameter groups. A group may set each of the options below and
            ``scale`` and ``kernel_parameters``, the other two entries by which φ is stored.
        lr: the stepsize γ >= 0. A tensor of one element is used without being read on the host and can change
            without recompilation under `torch.compile`.
        momentum: β in [0, 1), with the factor 1-β of Algorithm 1: a step has the length of one without momentum.
        reference: φ, or its name for `npgm.reference`. The group holds it as plain values, so that a checkpoint loads
            with ``weights_only=True``.
        weight_decay: c >= 0 of the term ½c‖x‖² that is added to the loss, hence to the gradient before the
            preconditioner.
        decoupled_weight_decay: whether the decay is taken out of the preconditioner, as in AdamW: x ← (1 - γc) x
            before the step.
        scope: the vector whose norm an isotropic φ sees: the gradients of all parameters whose group has an isotropic
            φ and this scope (``"global"``, as in the paper), those of the group, or each tensor by itself. A separable
            φ acts on each entry.
        nonfinite: what a gradient that holds NaN or infinity does. ``"propagate"`` takes it through φ, as torch does:
            NaN reaches the parameters, all of those that share the norm of an isotropic φ, and infinity becomes what
            φ makes of it. ``"skip"`` leaves all parameters and the momentum as they are in this step, without a
            synchronisation. ``"raise"`` raises before anything has changed, which waits for the device.
        momentum_dtype: the dtype of the momentum, that of the parameter if None: ``torch.float32`` keeps small steps
            of bfloat16 parameters from being rounded away, and survives `load_state_dict`.
        maximize: whether to maximise.
        foreach: whether to use `torch._foreach_*` and a flat copy of the gradients; chosen as in `torch.optim` if
            None.
        capturable: whether the step may be captured in a CUDA graph. An ``lr`` that is to change between replays is
            a tensor on the device.
        differentiable: whether autograd goes through the step.
        fused: whether to take the step of all parameters in one pass: of the native module on the CPU, of Triton on
            CUDA devices. If None, it is chosen where it can be: it needs an isotropic φ or a kernel of npgm's own.
            Parameters whose gradient or momentum is laid out otherwise in memory are moved one by one.

    Raises:
        TypeError, ValueError: if an option is not accepted, in any group.
        RuntimeError: if ``fused=True`` needs something that is not installed; and in a step, if a gradient is not
            supported, or not finite under ``nonfinite="raise"``. Nothing has changed then.

    Example:
        >>> model = torch.nn.Linear(10, 1)
        >>> optimizer = NPGM(model.parameters(), lr=0.5, momentum=0.9, reference=Isotropic(Cosh(), scale=2.0))
        >>> model(torch.randn(8, 10)).square().mean().backward()
        >>> optimizer.step()
    """

    # earlier releases of torch have the second name
    _check_capture = getattr(
        Optimizer, "_accelerator_graph_capture_health_check", Optimizer._cuda_graph_capture_health_check
    )
    _step_supports_amp_scaling = True  # on the class, since pickle and deepcopy drop attributes of an optimizer

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        momentum: float = 0.0,
        reference: Reference | str = "isotropic-cosh",
        weight_decay: float = 0.0,
        *,
        decoupled_weight_decay: bool = False,
        scope: str = "global",
        nonfinite: str = "propagate",
        momentum_dtype: torch.dtype | None = None,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "scale": 1.0,
            "kernel_parameters": {},
            **_stored(reference),
            "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "scope": scope,
            "nonfinite": nonfinite,
            "momentum_dtype": momentum_dtype,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, _checked(defaults))

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("kernel_parameters", {})
            group.setdefault("decoupled_weight_decay", False)
            group.setdefault("scope", "global")
            group.setdefault("nonfinite", "propagate")
            group.setdefault("momentum_dtype", None)
            group.setdefault("foreach", None)
            group.setdefault("capturable", False)
            group.setdefault("differentiable", False)
            group.setdefault("fused", None)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters with its own options; see `torch.optim.Optimizer.add_param_group`."""
        if isinstance(param_group, dict):  # torch refuses anything else
            inherited = self.defaults
            if (phi := param_group.get("reference")) is not None:
                if isinstance(phi, Reference) and (given := {"scale", "kernel_parameters"} & param_group.keys()):
                    raise ValueError(f"{min(given)} is given by the reference {phi!r} already")
                inherited = inherited | {"kernel_parameters": {}}
                param_group = param_group | _stored(phi)
            param_group = _checked(inherited | param_group)
            if param_group["differentiable"] != self.defaults["differentiable"]:
                raise ValueError("differentiable is the same for all groups; set it in the constructor")
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        if group["fused"] is not False:
            fused_steps.load({parameter.device for parameter in group["params"]})
        if group["fused"]:
            try:
                for parameter in group["params"]:
                    fused_steps.require(_reference(group), parameter)
            except (RuntimeError, ValueError):
                self.param_groups.pop()
                raise

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @_use_grad_for_differentiable
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Make one step.

        Args:
            closure: computes the loss and its gradients anew and returns the loss, which is then returned.
        """
        self._check_capture()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        batches = []
        for group in self.param_groups:
            params: list[Tensor] = []
            grads: list[Tensor] = []
            buffers: list[Tensor] = []
            self._init_group(group, params, grads, buffers)
            batches.append(
                functional.Batch(
                    params,
                    grads,
                    buffers,
                    reference=_reference(group),
                    lr=group["lr"],
                    momentum=group["momentum"],
                    weight_decay=group["weight_decay"],
                    decoupled_weight_decay=group["decoupled_weight_decay"],
                    maximize=group["maximize"],
                    scope=group["scope"],
                    nonfinite=group["nonfinite"],
                    foreach=group["foreach"],
                    differentiable=group["differentiable"],
                    fused=group["fused"],
                )
            )
        natives = [functional.together(batch) for batch in batches]
        if any(n is None or b.nonfinite == "raise" for n, b in zip(natives, batches, strict=True)):
            self._refuse()
        functional.step(batches, natives, getattr(self, "grad_scale", None), getattr(self, "found_inf", None))
        return loss

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state, with the momentum in the dtype of ``momentum_dtype``; see `torch.optim.Optimizer`.

        Raises:
            TypeError, ValueError: if an option in the checkpoint is not accepted, such as a kernel that is not
                registered. Nothing has changed then.
        """
        saved: dict[str, Any] = {}

        def inspect(optimizer: Optimizer, state_dict: dict[str, Any]) -> None:
            for group in state_dict["param_groups"]:
                if "reference" not in group:
                    raise ValueError("the state is of another optimizer: its parameter groups have no 'reference'")
                _checked_reference({"kernel_parameters": {}, **group})
            saved.update(state_dict)

        def restore(optimizer: Optimizer) -> None:
            # torch has cast all state to the dtype of the parameters
            ids = itertools.chain.from_iterable(group["params"] for group in saved["param_groups"])
            for group in self.param_groups:
                for parameter in group["params"]:
                    momentum = saved["state"].get(next(ids), {}).get("momentum_buffer")
                    if momentum is not None:
                        dtype = _momentum_dtype(parameter, group["momentum_dtype"])
                        self.state[parameter]["momentum_buffer"] = momentum.to(parameter.device, dtype)

        before = self.register_load_state_dict_pre_hook(inspect)
        after = self.register_load_state_dict_post_hook(restore, prepend=True)
        try:
            super().load_state_dict(state_dict)
        finally:
            before.remove()
            after.remove()

    def _init_group(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], buffers: list[Tensor]
    ) -> bool:
        # torch.compile runs a method of this name outside of the graph
        for parameter in group["params"]:
            if (gradient := parameter.grad) is not None:
                params.append(parameter)
                grads.append(gradient)
        if group["momentum"] != 0:
            states, none = self.state, {}  # type: ignore[var-annotated]
            buffers += [states.get(parameter, none).get("momentum_buffer") for parameter in params]
            missing = [i for i, buffer in enumerate(buffers) if buffer is None]
            if missing:
                self._refuse()
            for i in missing:
                dtype = _momentum_dtype(params[i], group["momentum_dtype"])
                buffers[i] = torch.zeros_like(params[i], dtype=dtype, memory_format=torch.preserve_format)
                states[params[i]]["momentum_buffer"] = buffers[i]
        return False

    def _refuse(self) -> None:
        """Raise for gradients that are not supported, before anything has changed."""
        found_inf = getattr(self, "found_inf", None)
        named: list[tuple[str, Tensor, Tensor]] = []
        for i, group in enumerate(self.param_groups):
            isotropic = group["reference"].startswith(Isotropic.lift)
            fused, differentiable, raises = group["fused"], group["differentiable"], group["nonfinite"] == "raise"
            for j, parameter in enumerate(group["params"]):
                gradient = parameter.grad
                if gradient is None:
                    continue
                layout = gradient.layout
                if parameter.layout != torch.strided or layout not in (torch.strided, torch.sparse_coo):
                    raise RuntimeError(
                        f"{_name(group, i, j)} has the layout {parameter.layout} and its gradient {layout}; supported "
                        "are torch.strided, and torch.sparse_coo for gradients"
                    )
                if fused and layout != torch.strided:
                    raise RuntimeError(
                        f"{_name(group, i, j)} has a sparse gradient, which `fused=True` does not support"
                    )
                if differentiable and norms.is_dtensor(parameter):
                    raise RuntimeError(f"{_name(group, i, j)} is a DTensor, which differentiable=True does not support")
                if isotropic and norms.is_flat_shard(parameter):
                    raise RuntimeError(
                        f"{_name(group, i, j)} is a shard of FSDP1, whose norm cannot be known; use "
                        "torch.distributed.fsdp.fully_shard, or a separable reference function"
                    )
                if raises:
                    named.append((_name(group, i, j), parameter, gradient))
        if named and (found_inf is None or not found_inf.any()):  # what a GradScaler has found, it skips
            names, parameters, gradients = zip(*named, strict=True)
            largest = functional.largest(parameters, gradients)
            finite = torch.cat([value.to(largest[0].device) for value in largest]).isfinite().tolist()
            if not all(finite):
                raise RuntimeError(
                    f"the gradient of {names[finite.index(False)]} holds NaN or infinity, and nonfinite='raise'"
                )


class _Options(TypedDict, total=False):
    decoupled_weight_decay: bool
    scope: str
    nonfinite: str
    momentum_dtype: torch.dtype | None
    maximize: bool
    foreach: bool | None
    capturable: bool
    differentiable: bool
    fused: bool | None


class _Named(NPGM):
    """NPGM with the reference function chosen up to its scale."""

    _lift: ClassVar[type[Reference]]
    _kernel: ClassVar[type[Kernel]]

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        momentum: float = 0.0,
        scale: float = 1.0,
        weight_decay: float = 0.0,
        **options: Unpack[_Options],
    ) -> None:
        super().__init__(params, lr, momentum, self._lift(self._kernel(), scale), weight_decay, **options)


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
    parameters = {field.name: getattr(phi.kernel, field.name) for field in fields(phi.kernel)}  # type: ignore[arg-type]
    return {"reference": phi.name, "scale": phi.scale, "kernel_parameters": parameters}


def _reference(group: dict[str, Any]) -> Reference:
    """Build φ from a group that `_checked_reference` has accepted; torch.compile traces this, and not that."""
    lift, _, key = group["reference"].partition("-")
    return lifts[lift](registry[key](**group["kernel_parameters"]), group["scale"])


def _checked_reference(group: dict[str, Any]) -> Reference:
    if not isinstance(group["kernel_parameters"], dict):
        raise TypeError(f"kernel_parameters must be a dict, not {group['kernel_parameters']!r}")
    phi = reference(group["reference"], scale=group["scale"], **group["kernel_parameters"])
    if isinstance(phi, Spectral):
        raise ValueError(f"NPGM takes isotropic and separable reference functions, not {group['reference']!r}")
    return phi


def _name(group: dict[str, Any], i: int, j: int) -> str:
    return group["param_names"][j] if "param_names" in group else f"parameter {j} of group {i}"


def _momentum_dtype(parameter: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is None:
        return parameter.dtype
    return dtype.to_complex() if parameter.is_complex() else dtype


def _checked(group: dict[str, Any]) -> dict[str, Any]:
    """Return the group with its numbers as plain floats, or raise."""
    lr = group["lr"]
    if isinstance(lr, Tensor):
        if lr.numel() != 1:
            raise ValueError(f"Tensor lr must be 1-element, not of shape {tuple(lr.shape)}")
        _validate.nonnegative("lr", lr.item())
    else:
        lr = _validate.nonnegative("lr", lr)
    _validate.choice("scope", group["scope"], SCOPES)
    _validate.choice("nonfinite", group["nonfinite"], NONFINITE)
    for name in ("decoupled_weight_decay", "maximize", "capturable", "differentiable"):
        if not isinstance(group[name], bool):
            raise TypeError(f"{name} must be a bool, not {group[name]!r}")
    for name in ("foreach", "fused"):
        if not (group[name] is None or isinstance(group[name], bool)):
            raise TypeError(f"{name} must be a bool or None, not {group[name]!r}")
    dtype = group["momentum_dtype"]
    if not (dtype is None or (isinstance(dtype, torch.dtype) and dtype.is_floating_point)):
        raise TypeError(f"momentum_dtype must be a real floating-point torch.dtype or None, not {dtype!r}")
    if group["foreach"] and group["differentiable"]:
        raise ValueError("`foreach` and `differentiable` cannot be `True` together.")
    if group["fused"] and group["foreach"]:
        raise ValueError("`fused` and `foreach` cannot be `True` together.")
    if group["fused"] and group["differentiable"]:
        raise ValueError("`fused` does not support `differentiable`.")
    if group["capturable"] and group["nonfinite"] == "raise":
        raise ValueError("`capturable` does not go with nonfinite='raise', which waits for the device.")
    phi = _checked_reference(group)
    return group | {
        "lr": lr,
        "momentum": _validate.fraction("momentum", group["momentum"]),
        "weight_decay": _validate.nonnegative("weight_decay", group["weight_decay"]),
        **_stored(phi),
    }

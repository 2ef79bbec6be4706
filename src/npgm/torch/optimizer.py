"""The nonlinearly preconditioned gradient method as a `torch.optim.Optimizer`."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Unpack, overload

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT, _use_grad_for_differentiable

from npgm._common import validate
from npgm.references import Reference
from npgm.torch import checks, fused, groups, norms, options, running, saturation, sharding
from npgm.torch.gather import Gathered, gather
from npgm.torch.options import AllChoices, Options
from npgm.torch.paths import native
from npgm.torch.saturation import Saturation
from npgm.torch.step import Seen, step

_cached = itemgetter(*(name for name in options.NAMES if name != "lr"))
"""Of a group, the options by which it is known whether others are to be read."""


class NPGM(Optimizer):
    r"""Preconditioned gradients with momentum: m ← β m + (1-β) ∇φ*(∇f), x ← x - γ m, from m = 0.

    This is Algorithm 1 of the paper with stochastic gradients; with ``momentum=0``, it is the paper's stochastic
    method. The preconditioner replaces gradient clipping, and momentum averages the *preconditioned* gradients. With a
    linear preconditioner (φ = ½‖·‖²) this is ``torch.optim.SGD(momentum=β, dampening=β)``, except that SGD does not
    damp its first step.

    ∇φ* does not commute with scaling: summing the loss over the batch instead of averaging it, or accumulating
    gradients without averaging them, changes the direction of the step, not only its length.

    Parameters of lower precision than float32 are computed in float32, complex ones as pairs of real numbers. A sparse
    gradient gives a sparse step if there is neither momentum nor weight decay, else a dense step. DTensors (FSDP2,
    tensor parallelism) are stepped shard by shard, with the norm of the whole tensors. A `torch.amp.GradScaler` passes
    its scale and its verdict without waiting for the device. A tensor that shares memory with its own gradient is
    stepped by operations of torch.

    Args:
        params: parameters, named parameters or parameter groups. A group may set each of the options below.
        {options}

    Raises:
        TypeError, ValueError: if an option is not accepted, in any group.
        RuntimeError: if ``fused=True`` needs something that is not installed; and in a step, if a gradient is not
            supported, or not finite under ``nonfinite="raise"``. Nothing has changed then.

    Example:
        >>> model = torch.nn.Linear(10, 1)
        >>> optimizer = NPGM(model.parameters(), lr=0.5, momentum=0.9, reference="isotropic-log", scale=2.0)
        >>> model(torch.randn(8, 10)).square().mean().backward()
        >>> optimizer.step()
    """

    process_group: torch.distributed.ProcessGroup | None = None
    """The processes that hold the other parameters whose norm an isotropic φ of global scope takes, and that step
    together. None: this process holds all. Set it after construction if parameters are spread without DTensor, as over
    the stages of a pipeline. `torch.distributed.optim.ZeroRedundancyOptimizer` is recognised."""
    _seen = Seen()
    _step_supports_amp_scaling = True  # on the class, since pickle and deepcopy drop attributes of an optimizer

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        momentum: float = 0.0,
        reference: Reference | str = "isotropic-cosh",
        weight_decay: float = 0.0,
        **choices: Unpack[AllChoices],
    ) -> None:
        others: dict[str, Any] = {**choices}
        if unknown := others.keys() - {*options.NAMES, "relative"}:  # of which `checked` says what became of it
            raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument {min(unknown)!r}")
        if isinstance(reference, Reference):
            _refuse_twice(reference, others)
        given = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(params, groups.checked(options.defaults() | groups.stored(reference) | others | given))
        if (process_group := sharding.process_group_of_caller(self)) is not None:
            self.process_group = process_group

    def __getstate__(self) -> dict[str, Any]:
        if self.process_group is not None:  # the copy would take the norm of this process's parameters alone
            raise RuntimeError("an optimizer with a process_group cannot be copied or pickled; use its state_dict")
        state: dict[str, Any] = super().__getstate__()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.update(groups.upgraded(group))
            group.pop("relative", None)
            if group["fused"]:
                fused.load({parameter.device for parameter in group["params"]})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters with its own options; see `torch.optim.Optimizer.add_param_group`."""
        if isinstance(param_group, dict):  # torch refuses anything else
            inherited = self.defaults
            if (phi := param_group.get("reference")) is not None:
                if isinstance(phi, Reference):
                    _refuse_twice(phi, param_group)
                param_group = {**groups.stored(phi), **{k: v for k, v in param_group.items() if k != "reference"}}
                inherited = inherited | {"kernel_parameters": {}}
            own = inherited | param_group
            idle = groups.without_effect(own)  # is not inherited
            inherited = inherited | {name: value for name, value in options.defaults().items() if name in idle}
            param_group = groups.checked(inherited | param_group)
            if isinstance(lr := param_group["lr"], Tensor):
                validate.nonnegative("lr", lr.item())
            if param_group["differentiable"] != self.defaults["differentiable"]:
                raise ValueError("differentiable is the same for all groups; set it in the constructor")
        super().add_param_group(param_group)
        try:
            checks.require_steps(self.param_groups)
        except (RuntimeError, ValueError):
            self.param_groups.pop()
            raise

    def state_dict(self) -> dict[str, Any]:
        """Return the state; see `torch.optim.Optimizer`. Its ``prox`` is None, since a function is not saved."""
        result: dict[str, Any] = super().state_dict()
        for group in result["param_groups"]:
            group["prox"] = None
        return result

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @_use_grad_for_differentiable
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Make one step.

        Args:
            closure: computes the loss and its gradients again and returns the loss, which `step` then returns.
        """
        self._accelerator_graph_capture_health_check()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        grad_scale, found_inf = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        parts, checked = [], True
        for index, (group, read) in enumerate(zip(self.param_groups, self._options(), strict=True)):
            if read is None:
                checked = False
                continue
            tensors = Gathered([], [], [], [[] for _ in running.KEYS])
            self._init_group(group, *tensors[:3], *tensors.known)
            taken = native.taken(read, *tensors[:3])
            checked = checked and taken is not None and read.nonfinite != "raise"
            parts.append((index, read, tensors, taken))
        if not checked:
            checks.refuse(self, found_inf)
        batches = []
        for index, read, tensors, taken in parts:
            batches += gather(index, read, tensors, grad_scale, taken)
        seen = step(batches, found_inf, *self._norm_group())
        if not torch.compiler.is_compiling():
            self._seen = seen
        return loss

    @property
    def last_grad_norm(self) -> Tensor | None:
        """What `torch.nn.utils.clip_grad_norm_` would have returned before the last step, without another pass.

        It is the norm of the input of all isotropic φ: the gradients of the loss to minimise, without the loss scale
        and with coupled decay, or the momentum if that comes before the preconditioner. It is a tensor without
        dimensions, in float64 if the device supports it. Reading the attribute does not wait for the device. It is None
        before the first step, after a step under `torch.compile`, and if no φ is isotropic, since no norm is then
        taken.
        """
        seen = self._seen.norms
        if isinstance(seen, float):
            return torch.tensor(seen, dtype=torch.float64, device="cpu")
        return norms.total(seen) if seen else None

    @property
    def saturation(self) -> list[Saturation | None]:
        """How far ∇φ* was from linear in the last step, of each parameter group.

        A step takes the norms of a group with ``track=True``; reading this attribute computes the numbers from them
        without waiting for the device. A fused step on the CPU takes no longer for it, or up to a fifth longer if φ is
        separable and the parameters fit into the caches (`npgm bench saturation`); other steps take longer, so
        `npgm.torch.Monitor` tracks only the steps that it logs. A norm of float32 may be infinite beyond 1e19. With
        `process_group` the norms are of this process's parameters. None for a group without ``track=True`` or without a
        gradient in the last step, before the first step, and after a step under `torch.compile`.

        Example:
            >>> p = torch.nn.Parameter(torch.zeros(2))
            >>> p.grad = torch.tensor([3.0, 4.0])
            >>> optimizer = NPGM([p], lr=0.1, reference="isotropic-log", scale=5.0, track=True)
            >>> optimizer.step()
            >>> [saturation] = optimizer.saturation
            >>> round(saturation.value.item(), 6)
            0.5
        """
        return saturation.of_groups(self._seen.tracked, len(self.param_groups))

    def _norm_group(self) -> tuple[torch.distributed.ProcessGroup | None, set[str], set[str]]:
        """The processes that take part in a norm or in the decision whether to move, and the lifts of those norms.

        These are of what φ is given, and of the gradients that are limited.
        """
        if self.process_group is None:
            return None, set(), set()
        joint = [group for group in self.param_groups if groups.scope_of(group) == "global"]
        lifts = [group["reference"].partition("-")[0] for group in joint]
        shared = {lift for group, lift in zip(joint, lifts, strict=True) if groups.has_norm(group)}
        limited = {lift for group, lift in zip(joint, lifts, strict=True) if group["limit"] is not None}
        asked = shared or limited or any(group["nonfinite"] == "skip" for group in self.param_groups)
        return self.process_group if asked else None, shared, limited

    @torch._disable_dynamo  # type: ignore[attr-defined]  # as torch.optim has it: that of torch.compiler imports the compiler at once
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state, with the momentum in the dtype of ``momentum_dtype``; see `torch.optim.Optimizer`.

        With ``scale="auto"`` or a ``limit``, each parameter's state contains the running size of its vector.

        Raises:
            TypeError, ValueError: if an option in the checkpoint is not accepted, such as a kernel that is not
                registered. Nothing has changed then.
        """
        saved: dict[str, Any] = {}

        def inspect(optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
            loaded = []
            for i, (group, own) in enumerate(itertools.zip_longest(state_dict["param_groups"], self.param_groups)):
                if group is None:
                    break  # which torch refuses
                if own is not None and not own["params"] and "reference" not in group:
                    group = own | group  # distributed checkpoints save the options of a group with its parameters
                if "reference" not in group:
                    raise ValueError("the state is of another optimizer: its parameter groups have no 'reference'")
                group = groups.upgraded(group)
                group["prox"] = None if own is None else own["prox"]
                phi = groups.described({"kernel_parameters": {}, **group})
                if own is not None and own["params"] and phi != (mine := groups.described(own)):
                    warnings.warn(
                        f"group {i} continues with the reference function of the state, {phi}, instead of {mine}",
                        stacklevel=4,
                    )
                loaded.append(group)
            saved.update(state_dict, param_groups=loaded)
            return saved

        def restore(optimizer: Optimizer) -> None:
            # torch has cast all state to the dtype of the parameters
            ids = itertools.chain.from_iterable(group["params"] for group in saved["param_groups"])
            for group in self.param_groups:
                for parameter in group["params"]:
                    state = saved["state"].get(next(ids), {})
                    if (momentum := state.get("momentum_buffer")) is not None:
                        dtype = _momentum_dtype(parameter, group["momentum_dtype"])
                        self.state[parameter]["momentum_buffer"] = momentum.to(parameter.device, dtype)
                    for mean in running.ALL:
                        for key, value in mean.new_state(parameter).items():
                            if key in state:
                                self.state[parameter][key] = value.copy_(state[key])
            for mean in running.ALL:
                mean.join(self.state, self.param_groups)

        before = self.register_load_state_dict_pre_hook(inspect)
        after = self.register_load_state_dict_post_hook(restore, prepend=True)
        try:
            super().load_state_dict(state_dict)
        finally:
            before.remove()
            after.remove()

    def _init_group(
        self,
        group: dict[str, Any],
        params: list[Tensor],
        grads: list[Tensor],
        buffers: list[Tensor],
        *known: list[Tensor],
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
                checks.refuse(self, getattr(self, "found_inf", None))
            for i in missing:
                dtype = _momentum_dtype(params[i], group["momentum_dtype"])
                buffers[i] = torch.zeros_like(params[i], dtype=dtype, memory_format=torch.preserve_format)
                states[params[i]]["momentum_buffer"] = buffers[i]
        if group["scale"] != "auto" and group["limit"] is None:
            return False
        for mean, lists in zip(running.ALL, zip(known[::2], known[1::2], strict=True), strict=True):
            if mean.number(group) is None:
                continue
            missing = [i for i, parameter in enumerate(params) if mean.rms not in self.state.get(parameter, ())]
            if missing:
                checks.refuse(self, getattr(self, "found_inf", None))
            for i in missing:
                shared = mean.shared_state(self.state, self.param_groups, group)
                self.state[params[i]].update(shared or mean.new_state(params[i]))
            for key, values in zip(mean.keys, lists, strict=True):
                values += [self.state[parameter][key] for parameter in params]
        return False

    def _options(self) -> list[Options | None]:
        """Read the groups that have gradients, anew only where they say something else than in the step before."""
        if torch.compiler.is_compiling():
            return [Options.of(group) for group in self.param_groups]
        known: list[tuple[Any, Any]] = self.__dict__.setdefault("_read", [])
        del known[len(self.param_groups) :]
        for i, group in enumerate(self.param_groups):
            entries = _cached(group)
            if i == len(known) or known[i][0] != entries:
                if all(parameter.grad is None for parameter in group["params"]):
                    known[i : i + 1] = [(None, None)]  # whatever it says has no effect
                    continue
                # a copy of what can be changed in place
                entries = tuple(dict(entry) if isinstance(entry, dict) else entry for entry in entries)
                checked = Options.of(groups.checked(group))
                checks.refuse_kinds(self)
                known[i : i + 1] = [(entries, checked)]
            elif (lr := group["lr"]) is not known[i][1].lr:
                known[i] = (known[i][0], known[i][1].with_lr(lr))
        return [read for _, read in known]


def _refuse_twice(phi: Reference, given: dict[str, Any]) -> None:
    twice = {"scale", "kernel_parameters"} & given.keys()
    if twice - {"scale"} or (twice and given["scale"] != "auto"):
        raise ValueError(f"{min(twice)} is already given by the reference {phi!r}")


def _momentum_dtype(parameter: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is None:
        return parameter.dtype
    return dtype.to_complex() if parameter.is_complex() else dtype

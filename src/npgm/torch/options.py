"""The options of a parameter group: one table, from which defaults, checks, documentation and steps are made.

A new option is one field of `Options`, and one of `Choices` for type checkers.
"""

from __future__ import annotations

import copy
import inspect
import textwrap
from collections.abc import Callable, Collection
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from typing import Any, Literal, TypedDict

import torch
from torch import Tensor

from npgm import _native
from npgm._common import optimizers, validate
from npgm.kernels import registry
from npgm.proximal import Proximable
from npgm.references import Isotropic, Reference, Separable, lifts
from npgm.references.training import default_scope, like_sgd
from npgm.torch.rule import Rule


def _lr(name: str, value: Any) -> float | Tensor:
    if not isinstance(value, Tensor):
        return validate.nonnegative(name, value)
    if value.numel() != 1:
        raise ValueError(f"Tensor {name} must be 1-element, not of shape {tuple(value.shape)}")
    return value  # which a step does not wait for to read


def _flag(name: str, value: Any, kind: str = "a bool") -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be {kind}, not {value!r}")
    return value


def _floating_dtype(name: str, value: Any) -> torch.dtype:
    if not (isinstance(value, torch.dtype) and value.is_floating_point):
        raise TypeError(f"{name} must be a real floating-point torch.dtype or None, not {value!r}")
    return value


def _prox(name: str, value: Any) -> Proximable:
    if not isinstance(value, Proximable):
        raise TypeError(f"{name} must be a function of npgm.proximal such as npgm.proximal.L1(1e-4), not {value!r}")
    return value


def _one_of(*choices: str) -> Callable[[str, Any], str]:
    return lambda name, value: validate.choice(name, value, choices)


def _or_none(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda name, value: None if value is None else check(name, value)


def _stored(name: str, value: Any) -> Any:
    return value  # checked together, by `reference`


def _option(check: Callable[[str, Any], Any], doc: str, **default: Any) -> Any:
    return field(metadata={"check": check, "doc": inspect.cleandoc(doc)}, **default)


@dataclass(frozen=True, eq=False)
class Options:
    """What a parameter group says, read once and used until it says something else."""

    lr: float | Tensor = _option(
        _lr,
        """the stepsize γ >= 0. A tensor of one element is not read on the host, and its value can change without
        recompilation under `torch.compile`.""",
    )
    lr_like: str = _option(
        _one_of(*optimizers.LR_LIKE),
        """what ``lr`` means. ``"paper"``: γ of Algorithm 1, the step is γ m. ``"sgd"``: γ of `torch.optim.SGD`, the
        step is γ λ m / (h*''(0) (1-β)), which for small gradients is the step of SGD with that ``lr`` and ``momentum``.
        A script with clipping and SGD then keeps its numbers, with the threshold as ``scale``.""",
        default="paper",
    )
    lr_multiple: float = _option(
        validate.nonnegative,
        """a factor for ``lr`` in this group, also in decoupled decay. Schedulers do not change it, so ``lr`` can be the
        same in all groups.""",
        default=1.0,
    )
    momentum: float = _option(
        validate.fraction,
        """β in [0, 1), the weight of the past. Momentum is an average, so its steps are as long as steps without
        it.""",
        default=0.0,
    )
    reference: str = _option(
        _stored,
        """φ, or its name for `npgm.reference`. The group stores it as plain values, so that a checkpoint loads with
        ``weights_only=True``.""",
        default="isotropic-cosh",
    )
    scale: float | str = _option(
        _stored,
        """λ of φ: gradients much larger than λ are damped. ``"auto"`` sets it from the gradients (docs/auto-scale.md):
        λ is κ times the running root mean square of the norm of each vector (isotropic), or of the entries or singular
        values of each tensor (separable, spectral), with the present gradient included. Multiplying the loss then
        changes no step. Leave it out if ``reference`` is not a name and has its own λ.""",
        default=1.0,
    )
    relative_scale: float = _option(validate.positive, """κ > 0 of ``scale="auto"``.""", default=1.0)
    scale_decay: float = _option(
        validate.fraction,
        """ρ in [0, 1) of ``scale="auto"``, the decay of its running mean; 0 uses the present gradient only.""",
        default=0.99,
    )
    kernel_parameters: dict[str, float] = _option(
        _stored, """parameters of the kernel that ``reference`` names, such as ``{"p": 3}``.""", default_factory=dict
    )
    weight_decay: float = _option(
        validate.nonnegative,
        """c >= 0. The term ½c‖x‖² is added to the loss, so the preconditioner sees the gradient plus c x.""",
        default=0.0,
    )
    decoupled_weight_decay: bool = _option(
        _flag,
        """whether the decay bypasses the preconditioner, as in AdamW: x ← (1 - γc) x before the step.""",
        default=False,
    )
    momentum_order: str = _option(
        _one_of(*optimizers.MOMENTUM_ORDERS),
        """``"after"``: momentum averages preconditioned gradients, m ← β m + (1-β) ∇φ*(∇f), as in Algorithm 1.
        ``"before"``: momentum averages gradients, and the average is preconditioned: m ← β m + (1-β) ∇f,
        x ← x - γ ∇φ*(m), as in normalised momentum (Cutkosky & Mehta 2020; Hübler et al. 2024). An isotropic φ then
        takes the norm of m.""",
        default="after",
    )
    scope: str | None = _option(
        _or_none(_one_of("global", "group", "tensor")),
        """the vector whose norm an isotropic φ takes and ``limit`` cuts, and which has its own λ if ``scale="auto"``.
        ``"global"``, as in the paper: the gradients of all parameters whose group has a φ of this lift and this scope;
        ``"group"``: those of the group; ``"tensor"``: each tensor. None is ``"global"`` for an isotropic φ and
        ``"tensor"`` for any other, for which it matters only if ``scale="auto"`` or there is a ``limit``.""",
        default=None,
    )
    limit: float | None = _option(
        _or_none(optimizers.checked_limit),
        """c > 1: a gradient longer than c times the running root mean square of its vector's lengths is cut to that
        length, before all else (docs/spikes.md). The vectors are those of ``scope``.""",
        default=None,
    )
    nonfinite: str = _option(
        _one_of("propagate", "skip", "raise"),
        """what happens if a gradient contains NaN or infinity. ``"propagate"``: φ is applied to it, as torch would do,
        and NaN reaches the parameters; with an isotropic φ it reaches all that share the norm. ``"skip"``: this step
        changes no parameter and no momentum, and does not wait for the device. ``"raise"``: an error before anything
        changes; this waits for the device.""",
        default="propagate",
    )
    momentum_dtype: torch.dtype | None = _option(
        _or_none(_floating_dtype),
        """the dtype of the momentum; None for the parameter's. ``torch.float32`` keeps small terms of the average,
        which bfloat16 would round away. `load_state_dict` does not change it.""",
        default=None,
    )
    maximize: bool = _option(_flag, """whether to maximise.""", default=False)
    foreach: bool | None = _option(
        _or_none(partial(_flag, kind="a bool or None")),
        """whether to use `torch._foreach_*`; chosen as in `torch.optim` if None.""",
        default=None,
    )
    matrix_form: str = _option(
        _one_of("flatten", "transpose", "stack"),
        """how a parameter of two or more axes becomes a matrix. ``"flatten"``: its first axis by all others, for a
        convolution (out, in · height · width). ``"transpose"``: its last axis by all others. ``"stack"``: matrices in
        the last two axes.""",
        default="flatten",
    )
    blocks: int = _option(
        partial(validate.count, least=1),
        """how many matrices of one size a parameter stacks, one above the other, as the weights of an LSTM stack its
        gates. Each has its own singular values; all share the λ of the parameter.""",
        default=1,
    )
    adjust: str | None = _option(
        _or_none(_one_of(*optimizers.ADJUSTMENTS)),
        """a factor for the direction of a spectral φ. ``"aspect"``: √max(1, rows/columns). ``"rms"``: 0.2
        √max(rows, columns), for entries of the size of AdamW's. With a factor a, the direction is that of the reference
        function a φ(·/a), so the theory holds.""",
        default=None,
    )
    nesterov: bool = _option(
        _flag,
        """for a spectral φ, whether the step looks ahead along the momentum, as `torch.optim.Muon` does: it is β times
        the average plus 1-β times the newest term.""",
        default=False,
    )
    product_dtype: torch.dtype | None = _option(
        _or_none(_floating_dtype),
        """the dtype of the matrix products of a spectral φ on accelerators, such as ``torch.bfloat16``; None for the
        parameter's, at least float32.""",
        default=None,
    )
    track: bool = _option(
        _flag,
        """whether `NPGM.saturation` reports this group. On CUDA, operations of torch then step a separable φ.""",
        default=False,
    )
    prox: Proximable | None = _option(
        _or_none(_prox),
        """g, a function of `npgm.proximal`, which is added to the loss for each parameter. It makes weights sparse or
        keeps them in a set. After a step to y, the parameters move to argmin g + γ φ((· - y)/γ); the parameters of one
        isotropic φ are one point. The state dictionary does not contain it.""",
        default=None,
    )
    capturable: bool = _option(
        _flag,
        """whether a CUDA graph may capture the step. To change ``lr`` between replays, pass a tensor on the device.""",
        default=False,
    )
    differentiable: bool = _option(_flag, """whether autograd goes through the step.""", default=False)
    fused: bool | None = _option(
        _or_none(partial(_flag, kind="a bool or None")),
        """whether to step all parameters in one pass over memory, by the native module on the CPU and by Triton on
        CUDA. None: on the CPU if possible, which needs an isotropic φ or a kernel of npgm. Parameters whose gradient or
        momentum has another memory layout are stepped one by one.""",
        default=None,
    )

    phi: Reference = field(init=False)
    rule: Rule = field(init=False)
    gradient_rule: Rule = field(init=False)
    """With which the gradients by themselves are measured."""
    tries_fused: bool = field(init=False)
    """Whether to take the step in one pass over memory, for the tensors for which that is possible."""
    native: bool = field(init=False)
    """Whether that pass can be one of the native module."""
    multiple: float = field(init=False)
    """What the direction is multiplied by beside ``lr``."""
    automatic: bool = field(init=False)
    """Whether λ follows the gradients."""

    def __post_init__(self) -> None:
        lift, _, key = self.reference.partition("-")
        automatic = self.scale == "auto"
        phi = lifts[lift](registry[key](**self.kernel_parameters), 1.0 if automatic else self.scale)  # type: ignore[arg-type]
        scope = self.scope or default_scope(lift)
        sgd = like_sgd(phi, phi.scale, self.momentum, follows=automatic) if self.lr_like == "sgd" else 1.0
        kernel, parameters = _native.kernel_arguments(phi.kernel)
        rule = Rule(
            kernel,
            parameters,
            isotropic=isinstance(phi, Isotropic),
            per_tensor=(isinstance(phi, Isotropic) or automatic) and scope == "tensor",
            before=self.momentum_order == "before" and self.momentum != 0.0,
            scale=phi.scale,
            momentum=self.momentum,
            coupled_decay=0.0 if self.decoupled_weight_decay else self.weight_decay,
            decoupled_decay=self.weight_decay / sgd if self.decoupled_weight_decay else 0.0,  # times `rate`
            maximize=self.maximize,
        )
        fused = self.foreach is None and not self.differentiable if self.fused is None else self.fused
        known = rule.isotropic or (isinstance(phi, Separable) and kernel in _native.kernels())
        validate.assign(
            self,
            phi=phi,
            rule=rule,
            gradient_rule=rule._replace(per_tensor=scope == "tensor", before=False, coupled_decay=0.0),
            tries_fused=fused,
            native=fused and known and _native.available(),
            multiple=self.lr_multiple * sgd,
            automatic=automatic,
            scope=scope,
        )

    @staticmethod
    def of(group: dict[str, Any]) -> Options:
        """Read a parameter group that `checked` has returned; torch.compile traces this, and not that."""
        return Options(**{name: group[name] for name in NAMES})

    @property
    def tracks(self) -> bool:
        """Whether a path is asked what it made of what; of an isotropic φ the norms say that."""
        return self.track and not self.rule.isotropic and not torch.compiler.is_compiling()

    @property
    def rate(self) -> float | Tensor:
        """What the direction is multiplied by."""
        return self.lr if self.multiple == 1.0 else self.lr * self.multiple

    def with_lr(self, lr: float | Tensor) -> Options:
        """Return the same with another stepsize, or raise if it is not accepted."""
        result = copy.copy(self)
        validate.assign(result, lr=_lr("lr", lr))
        return result


class Choices(TypedDict, total=False):
    """The keyword arguments of every optimizer, as type checkers and editors see them."""

    lr_like: Literal["paper", "sgd"]
    lr_multiple: float
    relative_scale: float
    scale_decay: float
    decoupled_weight_decay: bool
    momentum_order: Literal["after", "before"]
    scope: Literal["global", "group", "tensor"] | None
    limit: float | None
    nonfinite: Literal["propagate", "skip", "raise"]
    momentum_dtype: torch.dtype | None
    maximize: bool
    foreach: bool | None
    track: bool
    capturable: bool
    differentiable: bool
    fused: bool | None
    prox: Proximable | None


class SpectralChoices(Choices, total=False):
    """Those of an optimizer whose φ is spectral."""

    matrix_form: Literal["flatten", "transpose", "stack"]
    blocks: int
    adjust: Literal["aspect", "rms"] | None
    nesterov: bool
    product_dtype: torch.dtype | None


class AllChoices(SpectralChoices, total=False):
    """Those of an optimizer with any φ, whose λ and kernel's parameters may come with its name."""

    scale: float | Literal["auto"]
    kernel_parameters: dict[str, float]


SPECTRAL = tuple(name for name in SpectralChoices.__annotations__ if name not in Choices.__annotations__)
TABLE = [option for option in fields(Options) if option.init]
NAMES = tuple(option.name for option in TABLE)


def defaults() -> dict[str, Any]:
    """Return the options that have a default, with it."""
    return {
        option.name: option.default if option.default_factory is MISSING else option.default_factory()
        for option in TABLE
        if option.default is not MISSING or option.default_factory is not MISSING
    }


def documentation(indent: str, names: Collection[str]) -> str:
    """Return the lines of some options for the documentation of a class."""
    entries = (f"{option.name}: {option.metadata['doc']}" for option in TABLE if option.name in names)
    return textwrap.indent("\n".join(entry.replace("\n", "\n    ") for entry in entries), indent).lstrip()

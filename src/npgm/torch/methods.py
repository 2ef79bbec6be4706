"""The method with one reference function each: the classes that stand in training scripts."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any, Literal, Unpack, get_type_hints

from torch import Tensor
from torch.optim.optimizer import ParamsT

from npgm.torch import options
from npgm.torch.optimizer import NPGM
from npgm.torch.options import AllChoices, Choices, SpectralChoices

_TRAINING = {"relative_scale": 0.03, "momentum_order": "before", "adjust": "rms", "nesterov": True}
"""The options of `SpectralGD` that are not those of `NPGM`."""


class _Named:
    """What the methods share whose names say φ, which leaves its place among the arguments to λ."""

    _reference: str

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        momentum: float = 0.0,
        scale: float | Literal["auto"] = 1.0,
        weight_decay: float = 0.0,
        **choices: Unpack[Choices],
    ) -> None:
        given: Any = {"scale": scale, **choices}
        super().__init__(params, lr, momentum, self._reference, weight_decay, **given)  # type: ignore[call-arg]


class IHGD(_Named, NPGM):
    """Isotropic hyperbolic gradient descent: `NPGM` that rescales the gradient to the norm arsinh(‖∇f‖/λ).

    Args:
        params: parameters, named parameters or parameter groups. A group may set each of the options below.
        {options}
    """

    _reference = "isotropic-cosh"


class SHGD(_Named, NPGM):
    """Separable hyperbolic gradient descent: `NPGM` that takes each entry of the gradient to arsinh(∇f_i/λ).

    Args:
        params: parameters, named parameters or parameter groups. A group may set each of the options below.
        {options}
    """

    _reference = "separable-cosh"


class NGD(_Named, NPGM):
    """Normalised gradient descent: `NPGM` with the direction ∇f/(λ + ‖∇f‖).

    With ``lr_like="sgd"`` it replaces `torch.nn.utils.clip_grad_norm_` and SGD; λ is the threshold.

    Args:
        params: parameters, named parameters or parameter groups. A group may set each of the options below.
        {options}
    """

    _reference = "isotropic-log"


class SNGD(_Named, NPGM):
    """Separable normalised gradient descent: `NPGM` with the direction ∇f_i/(λ + |∇f_i|) in each entry.

    Args:
        params: parameters, named parameters or parameter groups. A group may set each of the options below.
        {options}
    """

    _reference = "separable-log"


class SpectralGD(NPGM):
    """`NPGM` with the direction U diag(σ_i/√(λ² + σ_i²)) Vᵀ of the singular values and vectors of each gradient.

    The defaults are for training networks, with steps like Muon's for an ``lr`` of AdamW's size. Momentum is 0.95,
    before the preconditioner and in Nesterov's form (off without momentum). λ is κ = 0.03 times the running root mean
    square of the singular values, and ``adjust="rms"``. Steps get shorter where the gradient gets smaller than λ.
    `npgm.torch.matrices` sorts the parameters of a model for it. ``NPGM(..., reference="spectral-sqrt")`` is the method
    of the paper.

    Args:
        params: parameters, named parameters or parameter groups. A group may set each of the options below.
        {options}

    Example:
        >>> import torch
        >>> import npgm.torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> optimizer = SpectralGD(npgm.torch.matrices(model), lr=0.02)
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        momentum: float = 0.95,
        scale: float | Literal["auto"] = "auto",
        weight_decay: float = 0.0,
        **choices: Unpack[SpectralChoices],
    ) -> None:
        usual: dict[str, Any] = dict(_TRAINING)
        if momentum == 0:
            del usual["nesterov"]
        if scale != "auto":
            del usual["relative_scale"]
        given: dict[str, Any] = {**usual, **choices}
        super().__init__(params, lr, momentum, "spectral-sqrt", weight_decay, scale=scale, **given)


def _describe(cls: type[NPGM], choices: type, **own_defaults: Any) -> None:
    """Name the options in the signature, with their defaults, in the place of ``**choices``, and in the docstring."""
    shared: Any = cls.__init__  # of which each class has a copy, whose errors bear its name
    init: Any = FunctionType(shared.__code__, shared.__globals__, "__init__", shared.__defaults__, shared.__closure__)
    init.__qualname__, init.__annotations__ = f"{cls.__name__}.__init__", shared.__annotations__
    signature = inspect.signature(init)
    own = [parameter for name, parameter in signature.parameters.items() if name != "choices"]
    default, hints = options.defaults() | own_defaults, get_type_hints(choices)
    named = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default[name], annotation=hints[name])
        for name in default
        if name in hints
    ]
    init.__signature__ = signature.replace(parameters=[*own, *named])
    cls.__init__ = init  # type: ignore[method-assign]
    entries = options.documentation(8 * " ", [parameter.name for parameter in (*own, *named)])
    cls.__doc__ = (cls.__doc__ or "").replace("{options}", entries)


_describe(NPGM, AllChoices)
_describe(SpectralGD, SpectralChoices, **_TRAINING)
for _class in (IHGD, SHGD, NGD, SNGD):
    _describe(_class, Choices)

"""Which parameters of a model are matrices."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

_LINEAR = (nn.Linear, nn.modules.conv._ConvNd)
_BILINEAR = (nn.Bilinear, nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase)


def matrices(
    model: nn.Module,
    *,
    head: Iterable[nn.Module] | None = None,
    stacks: Iterable[Tensor] = (),
    **others: Any,
) -> list[dict[str, Any]]:
    """Return parameter groups for a spectral φ: the weights of linear maps, and all that is not a matrix.

    A parameter is known by the kind of its module and by what it is shared with, never by its name: the weights of
    linear layers, convolutions, attention and recurrent layers are matrices, unless an embedding has the same one (tied
    weights) or the layer is a head. Embeddings, heads, biases, the parameters of normalisation and all others are not.
    What does not require a gradient is left out. Of a parametrised weight (`torch.nn.utils.parametrizations`, or the
    older weight and spectral norm) the matrices are what it is made of and has its shape. The weight of the ``Conv1D``
    of Hugging Face's GPT-2 is a matrix as well, transposed: ``adjust="aspect"`` takes its outputs for its inputs.

    A warning names the parameters of more than one axis if none of them is of a layer that is known.

    Args:
        model: the model.
        head: the layers whose weights are no hidden ones, ``()`` for none; by default the last linear layer of the
            model, in the order in which layers were registered.
        stacks: parameters whose last two axes are matrices and whose others count them, such as the weights of experts.
        **others: the options of the group of what is not a matrix, such as ``reference="separable-cosh"`` and ``lr``.

    Returns:
        Groups of named parameters, empty ones left out: matrices; stacks, with ``matrix_form="stack"``; and the others,
        to be given to another optimizer if these do not suit.

    Raises:
        ValueError: if ``head`` or ``stacks`` holds something that is not in the model, or no stack of matrices.

    Example:
        >>> import npgm.torch, torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> groups = npgm.torch.matrices(model, reference="separable-cosh", lr=0.01)
        >>> [[name for name, _ in group["params"]] for group in groups]
        [['0.weight'], ['0.bias', '2.weight', '2.bias']]
        >>> optimizer = npgm.torch.SpectralGD(groups, lr=0.05, momentum=0.9, scale=1e-3, momentum_order="before")
    """
    modules = list(model.modules())
    linear = [module for module in modules if isinstance(module, nn.Linear)]
    heads = linear[-1:] if head is None else list(head)
    named = dict(model.named_parameters())  # each once, however often it is used
    own = {id(parameter) for parameter in named.values()}
    stacked = {id(parameter) for parameter in stacks}
    if not {id(module) for module in heads} <= {id(module) for module in modules}:
        raise ValueError("head must hold modules of the model")
    if not stacked <= own or any(parameter.ndim < 3 for parameter in named.values() if id(parameter) in stacked):
        raise ValueError("stacks must hold parameters of the model with three axes or more")
    excluded = {
        id(parameter)
        for module in modules
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) or any(module is one for one in heads)
        for parameters in _parts(module).values()
        for parameter in parameters
    }
    hidden = {id(parameter) for module in modules for parameter in _weights(module)} - excluded - stacked
    missed = [name for name, p in named.items() if p.ndim > 1 and id(p) not in excluded | hidden | stacked]
    if missed and not hidden:
        warnings.warn(f"no matrix was found; {', '.join(missed)} are of layers of an unknown kind", stacklevel=2)
    chosen = {"matrices": hidden, "stacks": stacked, "others": own - hidden - stacked}
    groups = {
        kind: [(name, p) for name, p in named.items() if p.requires_grad and id(p) in members]
        for kind, members in chosen.items()
    }
    options = {"matrices": {}, "stacks": {"matrix_form": "stack"}, "others": others}
    return [{"params": params, **options[kind]} for kind, params in groups.items() if params]


def _parts(module: nn.Module) -> dict[str, list[Tensor]]:
    """Return the parameters of a layer by their names, and of what a parametrisation makes, what it is made of."""
    parts: dict[str, list[Tensor]] = {name: [p] for name, p in module.named_parameters(recurse=False)}
    if is_parametrized(module):
        parametrised = module.parametrizations.items()  # type: ignore[operator, union-attr]
        parts |= {name: list(made.parameters(recurse=False)) for name, made in parametrised}
    return parts


def _weights(module: nn.Module) -> list[Tensor]:
    """Return the weights by which a layer maps linearly, or the parameters of their shapes of which they are made."""
    linear = isinstance(module, _LINEAR) or _is_conv1d(module)
    if not (linear or isinstance(module, _BILINEAR)):
        return []
    axes = 3 if isinstance(module, nn.Bilinear) else 2
    weights = []
    for name, parts in _parts(module).items():
        shape = getattr(module, name).shape
        if shape == module.weight.shape if linear else len(shape) == axes:
            weights += [parameter for parameter in parts if parameter.shape == shape]
    return weights


def _is_conv1d(module: nn.Module) -> bool:
    """Whether a layer is the linear one of the GPT-2 of `transformers`, whose weight is transposed."""
    kinds = type(module).__mro__
    return any(kind.__name__ == "Conv1D" and kind.__module__.startswith("transformers.") for kind in kinds)

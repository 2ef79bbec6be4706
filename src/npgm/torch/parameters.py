"""Which parameters of a model are matrices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

_LINEAR = (nn.Linear, nn.modules.conv._ConvNd)


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
    What does not require a gradient is left out.

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
        for parameter in module.parameters(recurse=False)
    }
    hidden = {id(parameter) for module in modules for parameter in _weights(module)} - excluded - stacked
    chosen = {"matrices": hidden, "stacks": stacked, "others": own - hidden - stacked}
    groups = {
        kind: [(name, p) for name, p in named.items() if p.requires_grad and id(p) in members]
        for kind, members in chosen.items()
    }
    options = {"matrices": {}, "stacks": {"matrix_form": "stack"}, "others": others}
    return [{"params": params, **options[kind]} for kind, params in groups.items() if params]


def _weights(module: nn.Module) -> list[Tensor]:
    """Return the weights by which a layer maps linearly."""
    own = list(module.parameters(recurse=False))
    if isinstance(module, _LINEAR):
        return [parameter for parameter in own if parameter is module.weight]
    if isinstance(module, nn.MultiheadAttention | nn.RNNBase | nn.RNNCellBase | nn.Bilinear):
        return [parameter for parameter in own if parameter.ndim == 2 or isinstance(module, nn.Bilinear)]
    return []

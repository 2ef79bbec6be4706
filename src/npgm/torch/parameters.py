"""Which parameters of a model are matrices."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from npgm._common import validate
from npgm.torch.matrix_form import rows_and_columns

_LINEAR = (nn.Linear, nn.modules.conv._ConvNd)
_BILINEAR = (nn.Bilinear, nn.MultiheadAttention, nn.RNNBase, nn.RNNCellBase)
_GATES = (
    (nn.MultiheadAttention, ("in_proj_weight",), 3),
    ((nn.LSTM, nn.LSTMCell), ("weight_ih", "weight_hh"), 4),
    ((nn.GRU, nn.GRUCell), ("weight_ih", "weight_hh"), 3),
)
"""Of which weights of which layers torch stacks how many maps."""


_REST = {"reference": "separable-log", "scale": "auto", "relative_scale": 1.0}
"""The options of what is not a matrix, with which entries move by about a half of ``lr``."""


def matrices(
    model: nn.Module,
    *,
    head: Iterable[nn.Module] | None = None,
    stacks: Iterable[Tensor] = (),
    blocks: Mapping[nn.Module | str, int] | None = None,
    **others: Any,
) -> list[dict[str, Any]]:
    """Sort the parameters of a model into groups for a spectral φ: the weights of linear maps, and the rest.

    The weights of linear layers, convolutions, attention and recurrent layers are matrices, unless an embedding shares
    the weight or the layer is a head. Embeddings, heads, biases, the parameters of normalisation and all others are the
    rest. The sorting depends on the kind of module and on what shares the parameter, never on its name. Parameters that
    do not require a gradient are left out. For a parametrised weight (`torch.nn.utils.parametrizations`, or the older
    weight and spectral norm), the parts with the weight's shape are matrices. The weight of the ``Conv1D`` of Hugging
    Face's GPT-2 is a matrix too, transposed.

    A weight that stacks several maps is several matrices: the queries, keys and values of
    `torch.nn.MultiheadAttention`, and the gates of the layers and cells of LSTM and GRU. Name other such layers in
    ``blocks``.

    The rest moves by g/(λ + |g|) in each entry, with λ the running root mean square of the entries of each parameter;
    docs/spectral.md has the measurements.

    If no parameter of more than one axis belongs to a known layer, a warning names these parameters.

    Args:
        model: the model.
        head: the layers whose weights belong to the rest, ``()`` for none; by default the last linear layer that was
            registered. If that one maps to the width of an embedding, as in a block of a transformer, it is the last
            one with an output for each row of an embedding: none, where the embedding's weight is the head as well.
        stacks: parameters that are stacks of matrices in their last two axes, such as the weights of experts.
        blocks: how many maps of equal size a layer stacks, by the layer, its name, or the name of a parameter: 3 for a
            layer that gives queries, keys and values, 2 for the gate and the value of SwiGLU, 1 to keep a weight whole.
        **others: options of the rest, such as another ``reference``, or ``lr_multiple=0.5`` for half the stepsize,
            under every scheduler.

    Returns:
        Groups of named parameters, empty ones left out: matrices, a group for each number of blocks; transposed ones,
        with ``matrix_form="transpose"``; stacks, with ``matrix_form="stack"``; and the rest, which you may give to
        another optimizer.

    Raises:
        TypeError, ValueError: if ``head``, ``stacks`` or ``blocks`` holds something that is not in the model, or no
            matrices.

    Example:
        >>> import npgm.torch, torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> groups = npgm.torch.matrices(model)
        >>> [[name for name, _ in group["params"]] for group in groups]
        [['0.weight'], ['0.bias', '2.weight', '2.bias']]
        >>> optimizer = npgm.torch.SpectralGD(groups, lr=0.02)
    """
    modules = list(model.modules())
    heads = _heads(modules) if head is None else list(head)
    named = dict(model.named_parameters())  # each once, however often it is used
    own = {id(parameter) for parameter in named.values()}
    stacked = {id(parameter) for parameter in stacks}
    if not {id(module) for module in heads} <= {id(module) for module in modules}:
        raise ValueError("head must contain modules of the model")
    if not stacked <= own or any(parameter.ndim < 3 for parameter in named.values() if id(parameter) in stacked):
        raise ValueError("stacks must contain parameters of the model with three axes or more")
    excluded = {
        id(parameter)
        for module in modules
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) or any(module is one for one in heads)
        for parameters in _parts(module).values()
        for parameter in parameters
    }
    kinds = {
        id(parameter): _Kind("transpose" if _is_conv1d(module) else "flatten", _gates(module, name))
        for module in modules
        for name, parameter in _weights(module)
        if id(parameter) not in excluded
    }
    missed = [name for name, p in named.items() if p.ndim > 1 and id(p) not in excluded | kinds.keys() | stacked]
    if missed and not kinds:
        warnings.warn(f"no matrix was found; {', '.join(missed)} belong to layers of an unknown kind", stacklevel=2)
    kinds |= {key: _Kind("stack", 1) for key in stacked}
    for key, number in (blocks or {}).items():
        for name, parameter in _said(model, key, kinds):
            kinds[id(parameter)] = kind = kinds[id(parameter)]._replace(
                blocks=validate.count("blocks", number, least=1)
            )
            if (rows := rows_and_columns(parameter.shape, kind.matrix_form)[0]) % number:
                raise ValueError(f"the {rows} outputs of {name} cannot be {number} blocks of one size")
    groups: dict[_Kind | None, list[tuple[str, Tensor]]] = {kind: [] for kind in (*sorted(set(kinds.values())), None)}
    for name, parameter in named.items():
        if parameter.requires_grad:
            groups[kinds.get(id(parameter))].append((name, parameter))
    rest = _REST | others
    return [{"params": of_kind, **(kind.options() if kind else rest)} for kind, of_kind in groups.items() if of_kind]


def _heads(modules: list[nn.Module]) -> list[nn.Linear]:
    """Return the linear layer that is taken for the head; none if the weight of an embedding is, by a function."""
    linear = [module for module in modules if isinstance(module, nn.Linear)]
    embeddings = [module for module in modules if isinstance(module, nn.Embedding)]
    if linear and linear[-1].out_features in {embedding.embedding_dim for embedding in embeddings}:
        rows = {embedding.num_embeddings for embedding in embeddings}
        linear = [module for module in linear if module.out_features in rows]
    return linear[-1:]


class _Kind(NamedTuple):
    """How a parameter holds matrices, as options of a group."""

    matrix_form: str
    blocks: int

    def options(self) -> dict[str, Any]:
        """Return those that are not as usual."""
        usual = _Kind("flatten", 1)
        return {name: value for name, value in self._asdict().items() if value != getattr(usual, name)}


def _said(model: nn.Module, key: nn.Module | str, kinds: Collection[int]) -> list[tuple[str, Tensor]]:
    """Return the parameters that are matrices of a layer, or of a name, with their names."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    layers = dict(model.named_modules())
    layer = layers.get(key) if isinstance(key, str) else next((one for one in layers.values() if one is key), None)
    if layer is not None:
        parameters = [parameter for _, parameter in _weights(layer)]
    else:
        parameters = [parameter for name, parameter in model.named_parameters() if name == key]
        if not parameters:
            raise ValueError(f"blocks must name layers or parameters of the model, which {key!r} is not")
    if not (said := [(names[id(parameter)], parameter) for parameter in parameters if id(parameter) in kinds]):
        raise ValueError(f"blocks must name layers or parameters that are matrices, which {key!r} is not")
    return said


def _parts(module: nn.Module) -> dict[str, list[Tensor]]:
    """Return the parameters of a layer by their names, and of what a parametrisation makes, what it is made of."""
    parts: dict[str, list[Tensor]] = {name: [p] for name, p in module.named_parameters(recurse=False)}
    if is_parametrized(module):
        parametrised = module.parametrizations.items()  # type: ignore[operator, union-attr]
        parts |= {name: list(made.parameters(recurse=False)) for name, made in parametrised}
    return parts


def _weights(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Return the weights by which a layer maps linearly, or the parameters of their shapes of which they are made.

    Each has the name that the layer has for it.
    """
    linear = isinstance(module, _LINEAR) or _is_conv1d(module)
    if not (linear or isinstance(module, _BILINEAR)):
        return []
    axes = 3 if isinstance(module, nn.Bilinear) else 2
    weights = []
    for name, parts in _parts(module).items():
        shape = getattr(module, name).shape
        if shape == module.weight.shape if linear else len(shape) == axes:
            weights += [(name, parameter) for parameter in parts if parameter.shape == shape]
    return weights


def _gates(module: nn.Module, name: str) -> int:
    """Return how many maps of equal size torch stacks in a weight of a layer."""
    for kinds, prefixes, number in _GATES:
        if isinstance(module, kinds) and name.startswith(prefixes):
            return number
    return 1


def _is_conv1d(module: nn.Module) -> bool:
    """Whether a layer is the linear one of the GPT-2 of `transformers`, whose weight is transposed."""
    kinds = type(module).__mro__
    return any(kind.__name__ == "Conv1D" and kind.__module__.startswith("transformers.") for kind in kinds)

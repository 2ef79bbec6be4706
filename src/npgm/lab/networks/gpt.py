"""A small transformer on characters."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from npgm._common import validate


class Layer(nn.Module):
    """Causal self-attention, then two layers with GELU, each beside a shortcut and after a normalisation."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.before_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations, of shape (B, T, width)."""
        parts = self.queries_keys_values(self.before_attention(x)).unflatten(-1, (3, self.heads, -1))
        queries, keys, values = parts.transpose(-4, -2).unbind(-3)  # each (B, heads, T, width / heads)
        scores = queries @ keys.transpose(-2, -1) / queries.shape[-1] ** 0.5  # written out, for torch.vmap
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        mixed = scores.masked_fill(later, -torch.inf).softmax(-1) @ values
        x = x + self.attended(mixed.transpose(-3, -2).flatten(-2))
        activations: Tensor = x + self.mlp(self.before_mlp(x))
        return activations


class GPT(nn.Module):
    """A transformer's decoder as GPT-2 has it (Radford et al., 2019): normalisation before each part, tied embedding.

    Sequences of characters of shape (B, T) give the logits of each next one, of shape (B, T, classes). Weights are
    initialised as in GPT-2: normal, of standard deviation 0.02, less by √(2 layers) where a shortcut is joined.

    Args:
        classes: the number of characters.
        layers: the number of `Layer`.
        width: the size of the vectors.
        heads: of the attention; they divide the width.
        length: the longest sequence.

    Raises:
        ValueError: if the heads do not divide the width.
    """

    def __init__(self, classes: int = 84, layers: int = 4, width: int = 128, heads: int = 4, length: int = 64) -> None:
        super().__init__()
        sizes = {"classes": classes, "layers": layers, "width": width, "heads": heads, "length": length}
        for name, size in sizes.items():
            validate.count(name, size, least=1)
        if width % heads:
            raise ValueError(f"heads must divide the width {width}, but {heads} does not")
        self.embedding = nn.Embedding(classes, width)
        self.positions = nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.normalisation = nn.LayerNorm(width)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                joins = name.endswith(("attended.weight", "mlp.2.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if joins else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, characters: Tensor) -> Tensor:
        """Return the logits of each next character."""
        places = torch.arange(characters.shape[-1], device=characters.device)
        x = self.layers(self.embedding(characters) + self.positions(places))
        return linear(self.normalisation(x), self.embedding.weight)

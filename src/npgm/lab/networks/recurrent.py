"""Recurrent networks on characters, with their steps written out: `torch.vmap` can evaluate several at once then."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from npgm._common import validate


class RNN(nn.Module):
    """A recurrent network with tanh (Elman, 1990), whose recurrence is orthogonal at first (Saxe et al., 2014).

    Sequences of characters of shape (B, T) give the logits of each next one, of shape (B, T, classes). The state is
    zero at the first. Gradients of such networks explode, for which gradient clipping was proposed (Pascanu, Mikolov
    and Bengio, 2013).

    Args:
        classes: the number of characters.
        embedding: the size of their vectors.
        hidden: the size of the state.
    """

    gates = 1

    def __init__(self, classes: int = 84, embedding: int = 64, hidden: int = 256) -> None:
        super().__init__()
        for name, size in (("classes", classes), ("embedding", embedding), ("hidden", hidden)):
            validate.count(name, size, least=1)
        self.hidden = hidden
        self.embedding = nn.Embedding(classes, embedding)
        self.input = nn.Linear(embedding, self.gates * hidden)
        self.recurrence = nn.Linear(hidden, self.gates * hidden, bias=False)
        self.head = nn.Linear(hidden, classes)
        nn.init.orthogonal_(self.recurrence.weight)

    def forward(self, characters: Tensor) -> Tensor:
        """Return the logits of each next character."""
        inputs = self.input(self.embedding(characters)).unbind(-2)
        state = [torch.zeros_like(inputs[0][..., : self.hidden]) for _ in range(2)]
        states = []
        for gates in inputs:
            state = self.cell(gates + self.recurrence(state[0]), state)
            states.append(state[0])
        logits: Tensor = self.head(torch.stack(states, -2))
        return logits

    def cell(self, gates: Tensor, state: list[Tensor]) -> list[Tensor]:
        """Return the next state, whose first part is given on."""
        return [gates.tanh()]


class LSTM(RNN):
    """A network with long short-term memory (Hochreiter and Schmidhuber, 1997); as `RNN` but for its cell.

    The forget gates have the bias 1 at first (Gers, Schmidhuber and Cummins, 2000).
    """

    gates = 4

    def __init__(self, classes: int = 84, embedding: int = 64, hidden: int = 128) -> None:
        super().__init__(classes, embedding, hidden)
        with torch.no_grad():
            self.input.bias[hidden : 2 * hidden] = 1.0

    def cell(self, gates: Tensor, state: list[Tensor]) -> list[Tensor]:
        """Return the next state, whose second part is the memory."""
        write, forget, content, read = gates.chunk(4, -1)
        memory = forget.sigmoid() * state[1] + write.sigmoid() * content.tanh()
        return [read.sigmoid() * memory.tanh(), memory]

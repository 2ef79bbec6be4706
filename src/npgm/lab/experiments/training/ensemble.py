"""Networks of one form, one for each seed, trained side by side as one batched model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from npgm.lab.experiments.training.parallel import Single


class Ensemble:
    """One network a seed, each with its own parameters, initialised from its seed.

    Several networks are evaluated at once, with their parameters stacked; their form must have no buffers then. Each
    member's parameters are views of the stack, so an optimizer sees one network, and the norm of its gradient alone.

    Args:
        build: makes a network, drawing from torch's global generator.
        seeds: one for each network.
        device: where the networks are.
        compiled: whether to compile the evaluation with `torch.compile`.
        ranks: the processes that train together.

    Raises:
        ValueError: if several networks of a form with buffers are asked for.
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        seeds: Sequence[int],
        device: str | torch.device = "cpu",
        *,
        compiled: bool = False,
        ranks: Single | None = None,
    ) -> None:
        networks = [_drawn(build, seed) for seed in seeds]
        self._ranks = ranks or Single()
        self._form, self._stacked = networks[0], len(networks) > 1
        # with channels last, of which there are so few, torch 2.13 ends the process in the backward pass of odd batches
        self._narrow = any(isinstance(m, nn.Conv2d) and m.out_channels < 16 for m in self._form.modules())
        if self._stacked:
            evaluate: nn.Module = Together(networks)
        else:
            evaluate = self._form
            if not self._narrow:
                evaluate = self._form.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        evaluate = self._ranks.wrap(evaluate, torch.device(device))
        self._evaluate = torch.compile(evaluate) if compiled else evaluate
        self.names = [name for name, _ in self._form.named_parameters()]
        self._parameters = list(self._form.parameters())
        self.members: list[list[Tensor]] = [list(self._parameters)]
        if self._stacked:
            self.members = [[p.detach()[i] for p in self._parameters] for i in range(len(networks))]

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the logits, of shape (seeds, B, classes), or (seeds, B, T, classes) for sequences.

        Args:
            inputs: a batch for each network, of shape (seeds, B, ...).
        """
        if self._narrow:
            inputs = inputs.contiguous()
        logits: Tensor = self._evaluate(inputs) if self._stacked else self._evaluate(inputs[0]).unsqueeze(0)
        return logits

    def backward(self, losses: Tensor) -> None:
        """Set the gradient of each member's parameters to that of its loss.

        Args:
            losses: of shape (seeds,), each a sum over the ranks, of which this is the part of this rank.
        """
        for parameter in self._parameters:
            parameter.grad = None
        (losses.sum() * self._ranks.size).backward()  # type: ignore[no-untyped-call]
        if self._stacked:
            for i, member in enumerate(self.members):
                for view, parameter in zip(member, self._parameters, strict=True):
                    view.grad = parameter.grad[i]  # type: ignore[index]

    def train(self, mode: bool) -> None:
        """Set whether batch normalisation uses the statistics of the batch."""
        self._form.train(mode)

    def state_dict(self) -> dict[str, Any]:
        """Return all parameters and buffers."""
        state: dict[str, Any] = self._ranks.gathered(self._form.state_dict())
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over parameters and buffers."""
        ours = self._form.state_dict()
        self._form.load_state_dict({name: self._ranks.part(value, ours[name]) for name, value in state.items()})


class Together(nn.Module):
    """Networks evaluated at once; the first one is given the parameters of all, stacked.

    Raises:
        ValueError: if they have buffers.
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.form = networks[0]
        if any(True for _ in self.form.buffers()):
            raise ValueError("networks with buffers, such as those with batch normalisation, train one at a time")
        for parameters in zip(*(network.parameters() for network in networks), strict=True):
            parameters[0].data = torch.stack([parameter.detach() for parameter in parameters])

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits of each network's batch."""

        def one(state: dict[str, Tensor], batch: Tensor) -> Tensor:
            logits: Tensor = functional_call(self.form, state, (batch,))
            return logits

        logits: Tensor = torch.vmap(one)(dict(self.form.named_parameters()), inputs)
        return logits


def stackable(build: Callable[[], nn.Module]) -> bool:
    """Return whether several networks of a form can be evaluated at once."""
    with torch.device("meta"):
        return not any(True for _ in build().buffers())


def _drawn(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()

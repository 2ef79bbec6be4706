"""Networks of one form, one for each seed, trained side by side as one batched model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state


class Ensemble:
    """One network a seed, each with its own parameters, initialised from its seed.

    Several networks are evaluated at once, with their parameters stacked; their form must have no buffers then. Each
    member's parameters are views of the stack, so an optimizer sees one network, and the norm of its gradient alone.

    Args:
        build: makes a network, drawing from torch's global generator.
        seeds: one for each network.
        device: where the networks are.
        compiled: whether to compile the evaluation with `torch.compile`.

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
    ) -> None:
        networks = [_drawn(build, seed).to(device) for seed in seeds]
        self._form = networks[0]
        self._stack: dict[str, Tensor] = {}
        if len(networks) == 1:
            self._form.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            self.members: list[list[Tensor]] = [list(self._form.parameters())]
            evaluate: Callable[[Tensor], Tensor] = self._alone
        else:
            if any(True for _ in self._form.buffers()):
                raise ValueError("networks with buffers, such as those with batch normalisation, train one at a time")
            self._stack = {name: p.requires_grad_() for name, p in stack_module_state(networks)[0].items()}
            self.members = [[p.detach()[i] for p in self._stack.values()] for i in range(len(networks))]
            evaluate = self._together
        self._evaluate = torch.compile(evaluate) if compiled else evaluate

    def __call__(self, images: Tensor) -> Tensor:
        """Return the logits, of shape (seeds, B, classes).

        Args:
            images: a batch for each network, of shape (seeds, B, C, H, W).
        """
        return self._evaluate(images)

    def backward(self, losses: Tensor) -> None:
        """Set the gradient of each member's parameters to that of its loss.

        Args:
            losses: of shape (seeds,).
        """
        parameters = list(self._stack.values()) or self.members[0]
        gradients = torch.autograd.grad(losses.sum(), parameters)
        for i, member in enumerate(self.members):
            for parameter, gradient in zip(member, gradients, strict=True):
                parameter.grad = gradient[i] if self._stack else gradient

    def train(self, mode: bool) -> None:
        """Set whether batch normalisation uses the statistics of the batch."""
        self._form.train(mode)

    def state_dict(self) -> dict[str, Any]:
        """Return all parameters and buffers."""
        return dict(self._stack) or self._form.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over parameters and buffers."""
        if not self._stack:
            self._form.load_state_dict(state)
        for name, parameter in self._stack.items():
            parameter.detach().copy_(state[name])

    def _alone(self, images: Tensor) -> Tensor:
        logits: Tensor = self._form(images[0])
        return logits.unsqueeze(0)

    def _together(self, images: Tensor) -> Tensor:
        logits: Tensor = torch.vmap(lambda state, x: functional_call(self._form, state, (x,)))(self._stack, images)
        return logits


def stackable(build: Callable[[], nn.Module]) -> bool:
    """Return whether several networks of a form can be evaluated at once."""
    with torch.device("meta"):
        return not any(True for _ in build().buffers())


def _drawn(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()

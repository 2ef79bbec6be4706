"""Logs what everybody logs, as the optimizer steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from npgm._common import validate
from npgm.torch.optimizer import NPGM


class Monitor:
    """Logs the norms, the saturation, λ and the stepsize of an optimizer's steps.

    It uses the optimizer's step hooks, so it works in every training loop and trainer. Only the steps that are logged
    are tracked and wait for the device. For each parameter group ``k`` with a gradient it logs

    - ``npgm/k/saturation``, ``npgm/k/input_norm``, ``npgm/k/output_norm`` and ``npgm/k/scale``, the fields of
      `npgm.torch.Saturation`;
    - ``npgm/k/lr``, the group's ``lr``;

    and ``npgm/grad_norm``, `NPGM.last_grad_norm`, if a group's φ is isotropic. A step under `torch.compile` is not
    tracked, and logs only ``lr``.

    Args:
        optimizer: the optimizer itself, not a trainer's wrapper of it.
        log: called as ``log(name, value, step)`` with a str, a float and an int, like ``SummaryWriter.add_scalar``.
        every: how many steps lie between two that are logged.
        step: how many steps were taken before: 0, unless a training is resumed.

    Raises:
        TypeError, ValueError: if an argument is not accepted.

    Example:
        >>> import torch
        >>> from npgm.torch import NGD
        >>> p = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
        >>> optimizer = NGD([p], lr=0.1, scale=5.0)
        >>> monitor = Monitor(optimizer, lambda name, value, step: print(step, name, round(value, 3)))
        >>> p.square().sum().div(2).backward()
        >>> optimizer.step()
        1 npgm/grad_norm 5.0
        1 npgm/0/lr 0.1
        1 npgm/0/saturation 0.5
        1 npgm/0/input_norm 5.0
        1 npgm/0/output_norm 0.5
        1 npgm/0/scale 5.0
    """

    def __init__(
        self, optimizer: NPGM, log: Callable[[str, float, int], Any], *, every: int = 1, step: int = 0
    ) -> None:
        if not isinstance(optimizer, NPGM):
            raise TypeError(f"optimizer must be an optimizer of npgm.torch, not {type(optimizer).__name__}")
        if not callable(log):
            raise TypeError(f"log must be callable as log(name, value, step), not {log!r}")
        self.step = validate.count("step", step)
        """How many steps were taken."""
        self._log, self._every = log, validate.count("every", every, least=1)
        self._tracked: list[bool] | None = None  # what the groups said before a step that is logged
        self._hooks = [optimizer.register_step_pre_hook(self._before), optimizer.register_step_post_hook(self._after)]

    def remove(self) -> None:
        """Stop logging."""
        for hook in self._hooks:
            hook.remove()

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.step += 1
        if self.step % self._every == 0:
            if self._tracked is None:  # else that step has failed
                self._tracked = [group["track"] for group in optimizer.param_groups]
            for group in optimizer.param_groups:
                group["track"] = True

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.step % self._every == 0 and self._tracked is not None:
            for group, tracked in zip(optimizer.param_groups, self._tracked, strict=False):
                group["track"] = tracked
            self._tracked = None
            for name, value in _values(optimizer):
                self._log(f"npgm/{name}", float(value), self.step)


def _values(optimizer: NPGM) -> Iterator[tuple[str, float | Tensor]]:
    if (norm := optimizer.last_grad_norm) is not None:
        yield "grad_norm", norm
    for k, (group, saturation) in enumerate(zip(optimizer.param_groups, optimizer.saturation, strict=True)):
        if any(parameter.grad is not None for parameter in group["params"]):
            yield f"{k}/lr", group["lr"]
        if saturation is not None:
            fields = ("saturation", *saturation._fields[1:])
            yield from ((f"{k}/{name}", value) for name, value in zip(fields, saturation, strict=True))

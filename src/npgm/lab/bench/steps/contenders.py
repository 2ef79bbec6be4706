"""Who takes part: steps of npgm, of torch, and of nothing but memory.

All move the same parameters and share the states of the same name, so that even a large network's fit into memory.
Torch's are fused unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, Adam, AdamW, Optimizer

from npgm.lab.bench.steps.cases import Case
from npgm.torch import IHGD, SHGD, SpectralGD

Step = Callable[[], object]

LOOP, COMPILED = "sHGDm, loop", "sHGDm, compiled"
GROWTH = ("memory, momentum", "SGDm", "Adam", "clip + SGDm", "sHGDm", "iHGDm")
"""Those whose times are compared as the number of parameters grows."""
SPECTRAL = ("Muon", "Muon, float32", "spectral", "spectral, λ = 1e-3")
"""Those that are for matrices."""
MOST_COMPILED = 200
"""Tensors: with more the compiler, which unrolls the loop over them, takes minutes."""

_LR, _BETA = 1e-6, 0.9


class Workload:
    """The parameters of a case with constant gradients, and the states that the optimizers share."""

    def __init__(self, case: Case) -> None:
        dtype = getattr(torch, case.dtype)
        generator = torch.Generator(case.device).manual_seed(0)

        def normal(shape: tuple[int, ...]) -> Tensor:
            return torch.randn(shape, dtype=dtype, device=case.device, generator=generator)

        self.parameters = [Parameter(normal(shape)) for shape in case.layout.shapes]
        for parameter in self.parameters:
            parameter.grad = normal(parameter.shape).mul_(case.size)
        self._states: dict[tuple[str, Tensor], Tensor] = {}

    def step_of(self, optimizer: Optimizer) -> Step:
        """Let an optimizer take its first step and return its step."""
        optimizer.step()
        for parameter, state in optimizer.state.items():
            for name, value in state.items():
                if value.shape == parameter.shape:  # and not a count of steps
                    state[name] = self._states.setdefault((name, parameter), value)
        return optimizer.step

    def memory(self, *, momentum: bool) -> Step:
        """Return loops that read and write what a step must: 12 bytes for each float32, and 8 for its momentum."""
        pairs = [(p.detach(), p.grad) for p in self.parameters if p.grad is not None]
        buffers = []
        if momentum:
            self.step_of(SGD(self.parameters, _LR, momentum=_BETA))
            buffers = [self._states["momentum_buffer", p] for p in self.parameters]

        def step() -> None:
            for parameter, gradient in pairs:
                parameter.add_(gradient)
            for buffer in buffers:
                buffer.neg_()

        return step

    def clipped(self, optimizer: Optimizer) -> Step:
        """Return the step of an optimizer after torch's clipping by the norm of all gradients, which clips none."""
        step = self.step_of(optimizer)

        def clip_and_step() -> None:
            clip_grad_norm_(self.parameters, 1e30)
            step()

        return clip_and_step

    def spectral(self, relative: float) -> Step:
        """Return the step of `SpectralGD` in the form of Muon, λ relative to the root mean square singular value."""
        return self.step_of(SpectralGD(self.parameters, _LR, _BETA, relative_scale=relative, scale_decay=0.0))

    def muon(self) -> Step:
        """Return the step of torch's Muon, whose iteration is in bfloat16."""
        return self.step_of(torch.optim.Muon(self.parameters, _LR, momentum=_BETA))

    def muon_in_float32(self) -> Step:
        """Return that step with the iteration in the dtype of the parameters, of which torch has none."""
        self.muon()
        buffers = [self._states["momentum_buffer", p] for p in self.parameters]

        def step() -> None:
            for p, buffer in zip(self.parameters, buffers, strict=True):
                assert p.grad is not None
                buffer.lerp_(p.grad, 1.0 - _BETA)
                x = p.grad.lerp(buffer, _BETA)
                x = x if x.shape[0] <= x.shape[1] else x.T
                x = x / x.norm().clamp(min=1e-7)
                for _ in range(5):
                    gram = x @ x.T
                    x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=-4.775, alpha=2.0315), x, beta=3.4445)
                p.data.add_(x if x.shape == p.shape else x.T, alpha=-_LR)

        return step

    def compiled(self, optimizer: Optimizer) -> Step:
        """Return the step of an optimizer compiled by `torch.compile`."""
        if len(self.parameters) > MOST_COMPILED:
            raise ValueError(f"the compiler takes too long for more than {MOST_COMPILED} tensors")
        torch.compiler.reset()  # an earlier case's code counts against the limit of recompilations
        step: Step = torch.compile(self.step_of(optimizer))
        step()
        return step


contenders: dict[str, Callable[[Workload], Step]] = {
    "memory": lambda work: work.memory(momentum=False),
    "memory, momentum": lambda work: work.memory(momentum=True),
    "SGD": lambda work: work.step_of(SGD(work.parameters, _LR, fused=True)),
    "SGDm": lambda work: work.step_of(SGD(work.parameters, _LR, _BETA, fused=True)),
    "SGDm, foreach": lambda work: work.step_of(SGD(work.parameters, _LR, _BETA, foreach=True)),
    "Adam": lambda work: work.step_of(Adam(work.parameters, _LR, fused=True)),
    "AdamW": lambda work: work.step_of(AdamW(work.parameters, _LR, fused=True)),
    "Adam, foreach": lambda work: work.step_of(Adam(work.parameters, _LR, foreach=True)),
    "clip + SGD": lambda work: work.clipped(SGD(work.parameters, _LR, fused=True)),
    "clip + SGDm": lambda work: work.clipped(SGD(work.parameters, _LR, _BETA, fused=True)),
    "clip + SGDm, foreach": lambda work: work.clipped(SGD(work.parameters, _LR, _BETA, foreach=True)),
    "sHGD": lambda work: work.step_of(SHGD(work.parameters, _LR, fused=True)),
    "sHGDm": lambda work: work.step_of(SHGD(work.parameters, _LR, _BETA, fused=True)),
    "sHGDm, foreach": lambda work: work.step_of(SHGD(work.parameters, _LR, _BETA, foreach=True)),
    COMPILED: lambda work: work.compiled(SHGD(work.parameters, _LR, _BETA, foreach=False, fused=False)),
    LOOP: lambda work: work.step_of(SHGD(work.parameters, _LR, _BETA, foreach=False, fused=False)),
    "iHGD": lambda work: work.step_of(IHGD(work.parameters, _LR, fused=True)),
    "iHGDm": lambda work: work.step_of(IHGD(work.parameters, _LR, _BETA, fused=True)),
    "iHGDm, foreach": lambda work: work.step_of(IHGD(work.parameters, _LR, _BETA, foreach=True)),
    "Muon": lambda work: work.muon(),
    "Muon, float32": lambda work: work.muon_in_float32(),
    "spectral": lambda work: work.spectral(0.1),
    "spectral, λ = 1e-3": lambda work: work.spectral(1e-3),
}
"""By name: a function that returns the step, after it has been taken once, or raises if it cannot be taken."""

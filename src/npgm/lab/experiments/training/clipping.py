"""Rules that clip the gradients of a network by what their norms were so far, with the numbers of their papers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from npgm._common import validate

State: TypeAlias = dict[str, Any]
"""What a rule remembers, of plain numbers and lists; empty at first."""
Rule: TypeAlias = Callable[[list[float], State], list[float]]
"""From the norm of each tensor's gradient to what the gradient is multiplied by; it updates the state."""


def zclip(norms: list[float], state: State) -> list[float]:
    """ZClip (Kumar et al., 2025, arXiv:2504.02507): outliers among the norms of the whole gradient, by their z-score.

    With mean μ and deviation σ of the norms so far, a norm of z = (‖g‖ - μ)/σ > 2.5 is cut to μ + 2.5² σ/z. Both are
    those of the first 25 steps, in which nothing is cut, and then moving averages (0.97) of norms as they were cut.
    """
    warmup, longest, decay, eps = 25, 2.5, 0.97, 1e-6
    norm = math.hypot(*norms)
    if "mean" not in state:
        first = state.setdefault("first", [])
        first.append(norm)
        if len(first) == warmup:
            state.update(mean=float(np.mean(first)), variance=float(np.var(first)))
        return [1.0] * len(norms)
    mean, deviation = state["mean"], math.sqrt(state["variance"])
    z = (norm - mean) / (deviation + eps)
    kept = mean + longest**2 * deviation / z if z > longest else norm
    state["mean"] = decay * mean + (1.0 - decay) * kept
    state["variance"] = decay * state["variance"] + (1.0 - decay) * (kept - state["mean"]) ** 2
    return [kept / norm if norm else 1.0] * len(norms)


def adagc(norms: list[float], state: State) -> list[float]:
    """AdaGC (Wang et al., 2025, arXiv:2502.11034): each tensor's norm, relative to its own moving average γ.

    A norm above 1.05 γ is cut to that, and γ averages (0.98) norms as they were cut. In the first 100 steps the norm of
    the whole gradient is cut to 1, and γ is the least norm of the tensor so far, 1 at most.
    """
    warmup, absolute, relative, decay = 100, 1.0, 1.05, 0.98
    averages = state.setdefault("averages", [absolute] * len(norms))
    step = state["steps"] = state.get("steps", 0) + 1
    if step <= warmup:
        factors = [min(1.0, absolute / (math.hypot(*norms) or 1.0))] * len(norms)
    else:
        factors = [min(1.0, relative * average / (norm or 1.0)) for norm, average in zip(norms, averages, strict=True)]
    for i, (norm, factor) in enumerate(zip(norms, factors, strict=True)):
        kept = factor * norm
        averages[i] = min(averages[i], kept) if step <= warmup else decay * averages[i] + (1.0 - decay) * kept
    return factors


def autoclip(norms: list[float], state: State) -> list[float]:
    """AutoClip (Seetharaman et al., 2020, arXiv:2007.14469): the radius is the 10th percentile of all norms so far.

    They are the norms of the whole gradient before they were cut, that of this step among them.
    """
    norm = math.hypot(*norms)
    history = state.setdefault("norms", [])
    history.append(norm)
    radius = float(np.percentile(history, 10.0))
    return [min(1.0, radius / (norm or 1.0))] * len(norms)


RULES: dict[str, Rule] = {"ZClip": zclip, "AdaGC": adagc, "AutoClip": autoclip}
FORMULAS = {
    "ZClip": "g ← min(1, c/‖g‖) g with c = μ + 2.5² σ/z for the z-score z > 2.5 of ‖g‖",
    "AdaGC": "g ← min(1, 1.05 γ/‖g‖) g for each tensor, with the running mean γ of its norms",
    "AutoClip": "g ← min(1, c/‖g‖) g with the 10th percentile c of the norms so far",
}


def clip(optimizer: Optimizer, parameters: Sequence[Tensor], by: float | str) -> None:
    """Let an optimizer clip the gradients before each of its steps.

    Args:
        optimizer: what a rule remembers is in its state dictionary, as ``clip`` of the first group.
        parameters: those of the whole network.
        by: the radius of `torch.nn.utils.clip_grad_norm_`, or a name of `RULES`.
    """
    if isinstance(by, str):
        rule = RULES[validate.choice("clip", by, RULES)]
        optimizer.param_groups[0]["clip"] = {}
        optimizer.register_step_pre_hook(partial(_clip_by, list(parameters), rule))
    else:
        radius = validate.positive("clip", by)
        optimizer.register_step_pre_hook(partial(_clip, list(parameters), radius))


def _clip(parameters: list[Tensor], radius: float, *_: Any) -> None:
    torch.nn.utils.clip_grad_norm_(parameters, radius)


def _clip_by(parameters: list[Tensor], rule: Rule, optimizer: Optimizer, *_: Any) -> None:
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norms = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients])
    if isinstance(norms, DTensor):
        norms = norms.full_tensor()
    factors = rule(norms.tolist(), optimizer.param_groups[0]["clip"])
    torch._foreach_mul_(gradients, factors)

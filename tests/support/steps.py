"""What every way of taking a step of npgm.torch is held to."""

from __future__ import annotations

import torch

import npgm
from npgm.torch import NPGM


def check_step_of_extreme_size(name: str, scale: float, size: float, device: str | torch.device) -> None:
    """Hold a fused step for a gradient of a size to the definition in float64."""
    p = torch.zeros(3, device=device, requires_grad=True)
    p.grad = torch.tensor([0.0, size, -size / 4], device=device)
    scale = float(torch.tensor(scale))  # as a number of float32: subnormal ones have few digits
    NPGM([p], 1e-3, reference=npgm.reference(name, scale=scale), fused=True).step()
    y = p.grad.double()
    if name.startswith("separable"):
        y = y.clamp(-3.4e38 * scale, 3.4e38 * scale)  # a ratio beyond the largest number is cut off there
    want = -1e-3 * npgm.reference(name, scale=scale).precondition(y)
    torch.testing.assert_close(p.detach().double(), want, rtol=1e-4, atol=1e-44)

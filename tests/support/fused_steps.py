"""Trajectories of fused steps for the tests of `npgm.torch`."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import npgm
from npgm import references
from npgm.torch import NPGM
from npgm.torch import fused as fused_path

FUSED = [name for name in references.names() if fused_path.accepts(npgm.reference(name))]

SHAPES = [(3, 4), (), (0, 2), (1000,), (2, 3, 4, 4), (30, 67)]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}  # each path may be off by half of it


class Calls(TorchDispatchMode):
    """Counts the native steps, and the operations that a step by torch would take."""

    def __init__(self):
        super().__init__()
        self.native, self.tensors, self.other = 0, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.npgm.apply_step_.default:
            self.native += 1
            self.tensors += len(args[0])
        if func.__name__ in ("lerp_.Scalar", "lerp_.Tensor", "sub_.Tensor", "add_.Tensor"):
            self.other += 1
        return func(*args, **(kwargs or {}))


def parameters(dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype) for shape in SHAPES]
    tensors[4] = tensors[4].to(memory_format=torch.channels_last)
    return [tensor.requires_grad_() for tensor in tensors]


def set_gradients(params, step):
    generator = torch.Generator().manual_seed(step)
    for p in params:
        noise = torch.randn(p.shape, dtype=torch.float64, generator=generator)
        p.grad = torch.empty_like(p).copy_(10.0 ** (step % 5 - 2) * (noise + p.detach().double().tanh()))


def trajectory(path, dtype, steps, name, **options):
    params = parameters(dtype)
    groups = [{"params": params[:3]}, {"params": params[3:], "scale": 2.5, "lr": 0.02}]
    optimizer = NPGM(groups, **{"lr": 0.05, "momentum": 0.9, "reference": name, **path, **options})
    for step in range(steps):
        set_gradients(params, step)
        optimizer.step()
    return params, [optimizer.state[p].get("momentum_buffer") for p in params]


def assert_close(got, want, dtype, atol):
    for a, b in zip(got, want, strict=True):
        if b is not None:
            torch.testing.assert_close(a, b, rtol=TOLERANCE.get(dtype, 0), atol=atol)

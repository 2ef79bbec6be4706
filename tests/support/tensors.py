"""Parameters, paths, a loss and states for the tests of `npgm.torch`."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from npgm import _native
from npgm.torch import IHGD, NGD, SHGD, SNGD

NAMED = {IHGD: "isotropic-cosh", SHGD: "separable-cosh", NGD: "isotropic-log", SNGD: "separable-log"}


TWO = ["isotropic-cosh", "separable-log"]
"""Of each lift one, where what is tested is not the kernel."""

FUSED = pytest.param({"fused": True}, marks=pytest.mark.skipif(not _native.available(), reason="no native module"))
each_path = pytest.mark.parametrize("path", [{"foreach": False}, {"foreach": True}, FUSED], ids=str)
each_way = pytest.mark.parametrize("path", [{"foreach": False}, {"foreach": True}, {}], ids=str)
"""The same, with the path that is chosen by default: fused where φ has such a step."""


def parameters(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, dtype=dtype, generator=generator, requires_grad=True) for shape in ((5, 3), (), (7,))]


def flat(tensors):
    return torch.cat([t.detach().double().flatten() for t in tensors]).numpy()


def loss(tensors):
    return sum((t**4).sum() / 4 - t.cos().sum() for t in tensors)


def step(optimizer, params, tensors):
    for p, g in zip(params, tensors, strict=True):
        p.grad = torch.as_tensor(g, dtype=p.dtype)
    optimizer.step()


class NoSynchronisation(TorchDispatchMode):
    """Fails where a value is read on the host, which on an accelerator is where a step waits."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func not in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default), func
        return func(*args, **(kwargs or {}))


def snapshot(optimizer):
    return copy.deepcopy(optimizer.state_dict()), [
        p.detach().clone() for g in optimizer.param_groups for p in g["params"]
    ]


def assert_unchanged(optimizer, before):
    (state, params), (state_now, params_now) = before, snapshot(optimizer)
    assert state_now["state"].keys() == state["state"].keys()
    for key, entry in state["state"].items():
        torch.testing.assert_close(state_now["state"][key], entry, rtol=0, atol=0, equal_nan=True)
    for now, then in zip(params_now, params, strict=True):
        torch.testing.assert_close(now, then, rtol=0, atol=0)


def through_file(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)

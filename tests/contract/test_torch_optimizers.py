"""Every path of every PyTorch optimizer follows the definition on the array API in float64."""

import functools

import numpy as np
import pytest
import torch

import npgm
import npgm.torch
from npgm import references
from npgm.torch import fused
from tensors import FUSED, TWO, each_path

STEPS = 12
SHAPES = [(3, 4), (), (0, 2), (7,), (2, 3, 4, 4)]
GROUPS = [  # of parameters 0, 1, 2 and 3, 4
    {},
    {"scale": 2.5, "weight_decay": 0.02, "lr": 0.02},
]
NAMES = references.names("isotropic", "separable")
LR_OF_A_TENSOR = {"lr": torch.tensor([0.05], dtype=torch.float64), "nonfinite": "skip"}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def build(name, params, **options):
    groups = [{"params": params[:3], **GROUPS[0]}, {"params": params[3:], **GROUPS[1]}]
    options = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01} | options
    return npgm.torch.NPGM(groups, reference=name, **options)


def refused(name, path):
    """Return whether there is no fused step for a reference function, and check that it is then refused."""
    phi = npgm.reference(name)
    if "fused" not in path or fused.accepts(phi):
        return False
    with pytest.raises(ValueError, match="has no step for"):
        npgm.torch.NPGM([torch.ones(1)], 0.1, reference=phi, **path)
    return True


def starts():
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape) for shape in SHAPES]


def gradients(step, xs):
    """A gradient that depends on the point, of a norm between 1e-3 and 1e3."""
    rng = np.random.default_rng(step)
    size = 10.0 ** (3 * np.sin(step))
    return [size * (rng.standard_normal(x.shape) + 0.1 * np.tanh(x)) for x in xs]


@functools.cache
def definition(name, scope="global", decoupled=False, maximize=False, momentum=0.9, momentum_order="after"):
    """The trajectory in float64 by the array-API reference functions."""
    xs = starts()
    ms = [np.zeros_like(x) for x in xs]
    of = [0, 0, 0, 1, 1]
    lr, decay = [0.05, 0.02], [0.01, 0.02]
    phis = [npgm.reference(name, scale=scale) for scale in (1.0, 2.5)]
    vectors = {"global": [range(5)], "group": [range(3), range(3, 5)], "tensor": [[i] for i in range(5)]}[scope]
    for step in range(STEPS):
        gs = [-g if maximize else g for g in gradients(step, xs)]
        if not decoupled:
            gs = [g + decay[of[i]] * xs[i] for i, g in enumerate(gs)]
        if momentum_order == "before":
            gs = ms = [momentum * m + (1 - momentum) * g for m, g in zip(ms, gs, strict=True)]
        us = [None] * 5
        for vector in vectors if name.startswith("isotropic") else [range(5)]:
            joined = np.concatenate([gs[i].reshape(-1) for i in vector])
            for i in vector:
                # each group has its own φ, of the norm of all
                u = phis[of[i]].precondition(joined) if joined.size else joined
                start = sum(gs[j].size for j in vector if j < i)
                us[i] = u[start : start + gs[i].size].reshape(gs[i].shape)
        for i in range(5):
            if decoupled:
                xs[i] = (1 - lr[of[i]] * decay[of[i]]) * xs[i]
            if momentum_order == "after":
                us[i] = ms[i] = momentum * ms[i] + (1 - momentum) * us[i]
            xs[i] = xs[i] - lr[of[i]] * us[i]
    return xs


def run(name, dtype, steps=STEPS, leaf=True, **options):
    params = [torch.tensor(x, dtype=dtype, requires_grad=leaf) for x in starts()]
    params[4].data = params[4].data.to(memory_format=torch.channels_last)
    optimizer = build(name, params, **options)
    for step in range(steps):
        points = [p.detach().double().numpy() for p in params]
        for p, g in zip(params, gradients(step, points), strict=True):
            p.grad = torch.tensor(g, dtype=dtype)
        optimizer.step()
    return params, optimizer


def assert_close(params, xs, dtype):
    # relative to the size of the whole, as the errors of single entries that pass through zero are not
    size = max(np.max(np.abs(x), initial=0) for x in xs)
    for p, x in zip(params, xs, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), x, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * size)


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, torch.float64) for name in NAMES] + [(name, torch.float32) for name in TWO]
)
@pytest.mark.parametrize("path", [{"foreach": False}, {"foreach": True}, {"differentiable": True}, FUSED], ids=str)
def test_trajectory_is_the_definition(name, dtype, path):
    if refused(name, path):
        return
    params, optimizer = run(name, dtype, leaf="differentiable" not in path, **path)
    assert_close(params, definition(name), dtype)
    assert all(optimizer.state[p]["momentum_buffer"].dtype == dtype for p in params)
    assert optimizer.state[params[4]]["momentum_buffer"].is_contiguous(memory_format=torch.channels_last)


@pytest.mark.slow
@pytest.mark.parametrize("name", TWO)
@each_path
@pytest.mark.parametrize(
    ("options", "same"),
    [
        ({"scope": "group"}, {}),
        ({"scope": "tensor"}, {}),
        ({"scope": "tensor", "decoupled": True}, LR_OF_A_TENSOR),
        ({"decoupled": True, "maximize": True}, {"nonfinite": "raise"}),
        ({"momentum": 0.0}, {}),
        ({"momentum": 0.0}, LR_OF_A_TENSOR),
        ({"momentum_order": "before"}, {"nonfinite": "raise"}),
        ({"momentum_order": "before", "scope": "tensor", "maximize": True}, {}),
        ({"momentum_order": "before", "scope": "group", "decoupled": True}, {}),
        ({"momentum_order": "before", "scope": "group", "decoupled": True}, LR_OF_A_TENSOR),
    ],
    ids=str,
)
def test_trajectory_of_each_option_is_the_definition(name, path, options, same):
    if "scope" in options and not name.startswith("isotropic"):
        options = {key: value for key, value in options.items() if key != "scope"}
    changes = {"decoupled_weight_decay" if key == "decoupled" else key: value for key, value in options.items()}
    params, _ = run(name, torch.float64, **path, **changes, **same)
    assert_close(params, definition(name, **options), torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype"), [(name, torch.bfloat16) for name in NAMES] + [(name, torch.float16) for name in TWO]
)
@each_path
def test_low_precision_is_float32_rounded_in_the_end(name, path, dtype):
    if refused(name, path):
        return
    torch.manual_seed(0)
    lows = [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in SHAPES]
    wides = [torch.nn.Parameter(low.detach().float()) for low in lows]
    options = path | {"reference": name, "lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}
    low_optimizer = npgm.torch.NPGM(lows, momentum_dtype=torch.float32, **options)
    wide_optimizer = npgm.torch.NPGM(wides, **options)
    for _ in range(3):
        for low, wide in zip(lows, wides, strict=True):
            low.grad = torch.randn_like(low)
            wide.grad = low.grad.float()
            wide.data = low.detach().float()
        low_optimizer.step()
        wide_optimizer.step()
        for low, wide in zip(lows, wides, strict=True):
            torch.testing.assert_close(low, wide.to(dtype), rtol=0, atol=0)
            torch.testing.assert_close(
                low_optimizer.state[low]["momentum_buffer"], wide_optimizer.state[wide]["momentum_buffer"]
            )


@pytest.mark.parametrize("name", TWO)
@each_path
def test_complex_parameters_are_pairs_of_reals(name, path):
    torch.manual_seed(0)
    z = torch.nn.Parameter(torch.randn(3, 2, dtype=torch.complex128))
    x = torch.nn.Parameter(torch.view_as_real(z.detach()).clone())
    optimizers = [npgm.torch.NPGM([p], 0.1, 0.9, name, 0.1, nonfinite="skip", **path) for p in (z, x)]
    for _ in range(5):
        z.grad = 3 * torch.randn_like(z)
        x.grad = torch.view_as_real(z.grad)
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(torch.view_as_real(z.detach()), x.detach(), rtol=1e-14, atol=1e-14)
    assert optimizers[0].state[z]["momentum_buffer"].dtype == torch.complex128


@pytest.mark.slow
@pytest.mark.parametrize("name", TWO)
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize(
    "options", [{"momentum": 0.0}, {"momentum": 0.9}, {"momentum": 0.0, "weight_decay": 0.1}], ids=str
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128, torch.bfloat16])
def test_sparse_gradients_move_as_dense_ones(name, foreach, options, dtype):
    torch.manual_seed(0)
    table, other = (torch.randn(shape).to(dtype) for shape in [(6, 3), (4,)])
    pairs = [[torch.nn.Parameter(table.clone()), torch.nn.Parameter(other.clone())] for _ in range(2)]
    optimizers = [npgm.torch.NPGM(pair, 0.1, reference=name, foreach=foreach, **options) for pair in pairs]
    for _ in range(3):
        # the row 4 twice: a nonlinear map needs the sum
        gradient = torch.sparse_coo_tensor(
            torch.tensor([[4, 1, 4]]), torch.randn(3, 3).to(dtype), (6, 3), check_invariants=True
        )
        for (embedding, bias), grad in zip(pairs, [gradient, gradient.to_dense()], strict=True):
            embedding.grad = grad.clone()
            bias.grad = torch.ones_like(bias)
        for optimizer in optimizers:
            optimizer.step()
    for sparse, dense in zip(*pairs, strict=True):
        torch.testing.assert_close(sparse, dense)

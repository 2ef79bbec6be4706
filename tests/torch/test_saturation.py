"""`NPGM.saturation` on every path, against a loop in NumPy."""

import math

import numpy as np
import pytest
import torch

import npgm
from npgm.torch import NGD, NPGM, SNGD
from tensors import NoSynchronisation, each_way

SHAPES = [[(3, 4), (2, 2, 3)], [(5,), (), (0, 2)]]
LIFTS = ["isotropic-log", "separable-log", "spectral-sqrt"]


def preconditioned(phi, tensors):
    """∇φ* of each tensor, or of all as one vector if φ is isotropic."""
    if phi.lift == "isotropic":
        flat = phi.precondition(np.concatenate([y.ravel() for y in tensors]))
        ends = np.cumsum([y.size for y in tensors])[:-1]
        return [u.reshape(y.shape) for u, y in zip(np.split(flat, ends), tensors, strict=True)]
    if phi.lift == "separable":
        return [phi.precondition(y) for y in tensors]
    matrices = [y.reshape(len(y), -1) if y.ndim > 1 and y.size else y.reshape(-1, 1) for y in tensors]
    return [phi.precondition(y) for y in matrices]


def norm(tensors):
    return math.sqrt(sum(np.sum(t**2) for t in tensors))


def assert_is(saturation, ys, us, scale, rtol):
    y, u = norm(ys), norm(us)
    got = [float(value) for value in saturation]
    np.testing.assert_allclose(got, [1 - scale * u / y, y, u, scale], rtol=rtol, atol=rtol)


@each_way
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("order", ["after", "before"])
@pytest.mark.parametrize("name", LIFTS)
def test_saturation_is_the_definition(name, order, dtype, path):
    rng, decay, scales = np.random.default_rng(0), [0.1, 0.0], [0.5, 3.0]
    starts = [[rng.standard_normal(shape) for shape in group] for group in SHAPES]
    groups = [
        {"params": [torch.tensor(x, dtype=dtype, requires_grad=True) for x in xs], "weight_decay": c, "scale": scale}
        for xs, c, scale in zip(starts, decay, scales, strict=True)
    ]
    optimizer = NPGM(groups, 0.1, 0.9, name, momentum_order=order, track=True, maximize=True, **path)
    assert optimizer.saturation == [None, None]
    means = [[np.zeros(shape) for shape in group] for group in SHAPES]
    rtol = 1e-12 if dtype == torch.float64 else 1e-5
    for step in range(3):
        ys = []
        for group, c, mean in zip(groups, decay, means, strict=True):
            ys.append([])
            for i, p in enumerate(group["params"]):
                g = 10.0**step * rng.standard_normal(p.shape)
                p.grad = torch.tensor(g, dtype=dtype)
                y = c * p.detach().double().numpy() - g
                mean[i] = 0.9 * mean[i] + 0.1 * y
                ys[-1].append(mean[i] if order == "before" else y)
        optimizer.step()
        for k, scale in enumerate(scales):
            us = preconditioned(npgm.reference(name, scale=scale), ys[0] + ys[1])
            us = us[: len(ys[0])] if k == 0 else us[len(ys[0]) :]
            assert_is(optimizer.saturation[k], ys[k], us, scale, rtol)


@each_way
@pytest.mark.parametrize("name", LIFTS)
def test_saturation_of_a_scale_of_each_tensor(name, path):
    rng = np.random.default_rng(0)
    params = [torch.zeros(shape, dtype=torch.float64, requires_grad=True) for shape in SHAPES[0] + SHAPES[1]]
    options = {"scale": "auto", "scope": "tensor", "relative_scale": 0.5, "scale_decay": 0.0, "track": True}
    optimizer = NPGM(params, 0.1, 0.9, name, **options, **path)
    ys = [10.0**i * rng.standard_normal(p.shape) for i, p in enumerate(params)]
    for p, y in zip(params, ys, strict=True):
        p.grad = torch.tensor(y)
    optimizer.step()
    us, product = [], 0.0
    for y in ys:
        terms = {
            "isotropic": 1,
            "separable": y.size,
            "spectral": min(len(y), y.size // len(y)) if y.ndim > 1 and y.size else 1,
        }
        scale = 0.5 * norm([y]) / math.sqrt(max(1, terms[name.partition("-")[0]]))
        [u] = preconditioned(npgm.reference(name, scale=scale or 1.0), [y])
        us.append(u)
        product += scale**2 * np.sum(u**2)
    assert_is(optimizer.saturation[0], ys, us, math.sqrt(product) / norm(us), 1e-12)


@pytest.mark.parametrize("adjust", ["aspect", "rms"])
@pytest.mark.parametrize("differentiable", [False, True])
def test_adjusted_matrices_are_as_saturated_as_others(adjust, differentiable):
    values = []
    for choice in (None, adjust):
        ps = [torch.zeros(6, 3), torch.zeros(2, 3)]
        for i, p in enumerate(ps):
            p.grad = (i + 1.0) * torch.arange(float(p.numel())).reshape(p.shape).cos()
        optimizer = NPGM(ps, 0.1, 0.0, "spectral-sqrt", adjust=choice, track=True, differentiable=differentiable)
        optimizer.step()
        values.append(torch.stack(optimizer.saturation[0]))
    torch.testing.assert_close(*values)


@pytest.mark.parametrize("name", LIFTS)
def test_saturation_waits_for_nothing_where_the_step_does_not(name):
    p = torch.ones(3, 4, requires_grad=True)
    p.grad = torch.ones(3, 4)
    optimizer = NPGM([p], 0.1, 0.9, name, foreach=True, track=True, nonfinite="skip")
    if name.startswith("spectral"):
        optimizer.step()  # whose eigenvalues are decided on
    with NoSynchronisation():
        if not name.startswith("spectral"):
            optimizer.step()
        assert optimizer.saturation[0].value.shape == ()


@pytest.mark.parametrize(
    ("name", "y", "value"),
    [
        ("isotropic-quad", 3.0, 0.0),
        ("separable-quad", 3.0, 0.0),
        ("separable-log", 0.0, 0.0),
        ("separable-log", 1e30, 1.0),
        ("isotropic-log", math.inf, math.nan),
    ],
)
@each_way
def test_saturation_at_the_ends(name, y, value, path):
    p = torch.zeros(2)
    p.grad = torch.full((2,), y)
    optimizer = NPGM([p], 0.1, reference=name, track=True, **path)
    optimizer.step()
    assert float(optimizer.saturation[0].value) == pytest.approx(value, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize(("power", "value"), [(4.0, 1.0), (1.5, -math.inf)])
def test_a_map_without_a_linear_part(power, value):
    p = torch.zeros(2)
    p.grad = torch.ones(2)
    optimizer = NPGM([p], 0.1, reference="separable-pow", kernel_parameters={"p": power}, track=True)
    optimizer.step()
    assert float(optimizer.saturation[0].value) == value


@each_way
@pytest.mark.parametrize("make", [NGD, SNGD])
def test_what_was_skipped_or_has_no_gradient_is_not_saturated(make, path):
    p, q, r = (torch.ones(2) for _ in range(3))
    p.grad, r.grad = torch.tensor([1.0, math.nan]), torch.ones(2)
    groups = [{"params": [p]}, {"params": [q]}, {"params": [r], "track": False}]
    optimizer = make(groups, 0.1, track=True, nonfinite="skip", **path)
    optimizer.step()
    first, *others = optimizer.saturation
    assert math.isnan(first.value)
    assert others == [None, None]

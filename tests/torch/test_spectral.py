"""The spectral preconditioner on tensors of torch, and the optimizer with it, against the definition."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils import parametrizations

import npgm
import remez
from npgm import _native
from npgm.torch import NPGM, SpectralGD, matrices
from npgm.torch.spectral import by_inverses, by_products, minimax, precondition
from pages import ROOT, blocks

KERNELS = [npgm.Sqrt(), npgm.Cosh(), npgm.Log(), npgm.LogSquare(), npgm.Artanh(), npgm.Root(4.0)]


def matrix(rows, columns, condition=100.0, seed=0):
    """A matrix of largest singular value 1, in float64, with singular values down to 1/condition, evenly in logarithms."""
    rng = np.random.default_rng(seed)
    p = min(rows, columns)
    u, v = (np.linalg.qr(rng.standard_normal((n, p)))[0] for n in (rows, columns))
    return torch.from_numpy(u * np.geomspace(1, 1 / condition, p) @ v.T)


def error(got, phi, y):
    want = torch.from_numpy(phi.precondition(y.double().numpy()))
    return float(torch.linalg.matrix_norm(got.double() - want, 2))


# computation


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("shape", [(20, 30), (30, 20), (24, 24), (1, 5), (5, 1)], ids=str)
@pytest.mark.parametrize("ratio", [1.0, 30.0, 100.0, 1e3, 1e6])
def test_eigenvalues_give_what_the_singular_values_do(kernel, shape, ratio):
    phi, y = npgm.Spectral(kernel, scale=1 / ratio), matrix(*shape)
    size = max(1.0, float(kernel.precondition(ratio)))
    (double,), (single,) = (precondition(phi, [z], method="eigen") for z in (y, y.float()))
    assert (double.dtype, single.dtype) == (torch.float64, torch.float32)
    assert error(double, phi, y) <= 1e-12 * max(size, ratio / 100)
    assert error(single, phi, y.float()) <= (2e-6 + 4e-7 * ratio**2) * size
    if ratio > 3e4:  # then in float64
        assert error(single, phi, y.float()) <= (1e-6 + 1e-15 * ratio**2) * size


@pytest.mark.skipif(not _native.available(), reason="needs the native module")
@pytest.mark.parametrize("instructions", _native.core().instruction_sets() if _native.available() else [])
@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (20, 30), (70, 33), (129, 530)], ids=str)
def test_inverses_give_what_the_singular_values_do(instructions, shape):
    ratios = [0.0, 1e-3, 1.0, 30.0, 1e3, 1e4, 1e6]  # the last is beyond their limit
    ys = torch.stack([ratio * matrix(*shape, condition) for ratio in ratios for condition in (1.0, 100.0, 1e6)])
    assert by_inverses.takes(npgm.Sqrt(), ys.float())
    _native.core().use_instruction_set(instructions)
    try:
        (got,) = precondition(npgm.Spectral(npgm.Sqrt()), [ys.float()])
    finally:
        _native.core().use_instruction_set(_native.core().instruction_sets()[0])
    for y, u, ratio in zip(ys, got, np.repeat(ratios, 3), strict=True):
        size = max(min(ratio, 1.0), 1e-30)
        assert error(u, npgm.Spectral(npgm.Sqrt()), y.float()) <= (2e-6 + 5e-8 * min(ratio, 1e4)) * size


@pytest.mark.skipif(not _native.available(), reason="needs the native module")
def test_inverses_depend_on_neither_batch_nor_threads():
    phi, ys = npgm.Spectral(npgm.Sqrt(), 0.01), torch.stack([matrix(300, 520, 10.0, seed) for seed in range(3)]).float()
    before = torch.get_num_threads()
    try:
        made = []
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            made.append(precondition(phi, [ys])[0])
            made.append(torch.stack(precondition(phi, list(ys))))
            made.append(torch.stack([precondition(phi, [y])[0] for y in ys]))
    finally:
        torch.set_num_threads(before)
    for other in made[1:]:
        assert torch.equal(made[0], other)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [npgm.Sqrt(), npgm.Artanh()], ids=repr)
@pytest.mark.parametrize("ratio", [1e2, 1e3, 1e4])
def test_small_singular_values_are_not_lost_in_squares(kernel, ratio):
    phi = npgm.Spectral(kernel, scale=1 / ratio)
    flat = torch.randn(16, 60, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) / 100
    graded = [matrix(60, 60, 1e3), matrix(60, 90, 1e8), matrix(60, 8, 10.0) @ matrix(8, 60, 10.0)]
    ys = [flat, *graded, torch.stack([matrix(60, 60, 1e4), matrix(60, 60, 2.0, seed=1)])]  # one of each for a batch
    for y, u in zip(ys, precondition(phi, [y.float() for y in ys], method="eigen"), strict=True):
        want = torch.from_numpy(phi.precondition(y.float().double().numpy()))
        assert torch.linalg.matrix_norm(u.double() - want, 2).max() <= 1e-4 + 2e-7 * ratio
    for y, u in zip(ys, precondition(phi, ys), strict=True):
        want = torch.from_numpy(phi.precondition(y.numpy()))
        assert torch.linalg.matrix_norm(u - want, 2).max() <= 1e-12 + 1e-15 * ratio


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [npgm.Sqrt(), npgm.LogSquare(), npgm.Artanh()], ids=repr)
@pytest.mark.parametrize("shape", [(20, 30), (30, 20), (1, 5)], ids=str)
@pytest.mark.parametrize("ratio", [0.1, 10.0, 100.0])
def test_products_alone(kernel, shape, ratio):
    phi, y = npgm.Spectral(kernel, scale=1 / ratio), matrix(*shape).float()
    wide = y if shape[0] <= shape[1] else y.mT
    six = by_products.precondition(kernel, wide[None], torch.tensor([ratio]), steps=6)[0]
    assert error(six if shape[0] <= shape[1] else six.mT, phi, y) <= 1e-5
    assert error(precondition(phi, [y], method="products")[0], phi, y) <= 1e-5
    assert error(precondition(phi, [y], method="products", dtype=torch.bfloat16)[0], phi, y) <= 0.15


def test_a_small_scale_is_raised_to_what_the_steps_suffice_for():
    phi, y = npgm.Spectral(npgm.Sqrt(), scale=1e-9), matrix(20, 30).float()
    raised = npgm.Spectral(npgm.Sqrt(), scale=float(torch.linalg.matrix_norm(y)) / 1000)
    assert error(precondition(phi, [y], method="products")[0], raised, y) <= 1e-3


def test_the_coefficients_are_those_of_remez_algorithm():
    for steps, ratio in minimax.RATIOS.items():
        polynomials, deviation = remez.composition(ratio, steps)
        np.testing.assert_allclose(polynomials, minimax.COEFFICIENTS[steps], rtol=1e-9)
        assert deviation <= 2.2e-5
        x = np.geomspace(1 / ratio, 1, 10001)
        reached = np.max(np.abs(remez.value(minimax.COEFFICIENTS[steps], x) - 1))
        assert reached == pytest.approx(deviation, rel=1e-3, abs=1e-13)
    # equal deviations of alternating sign, at four points of the interval: nothing of this degree is closer
    (a, b, c), deviation = remez.quintic(0.01, 1.0)
    x = np.linspace(0.01, 1.0, 1_000_001)
    difference = a * x + b * x**3 + c * x**5 - 1
    extreme = x[np.abs(difference) >= deviation * (1 - 1e-9)]
    signs = np.sign(difference[np.isin(x, extreme)])
    assert np.count_nonzero(np.diff(signs)) == 3


@pytest.mark.slow
def test_no_matrix_is_too_much():
    rng, phi = np.random.default_rng(0), npgm.Spectral(npgm.Sqrt(), scale=1e-3)
    ys = []
    for i in range(1000):
        rows, columns = (int(n) for n in rng.integers(0 if i % 10 == 0 else 1, 24, 2))
        y = rng.standard_normal((rows, columns))
        if i % 3 == 0 and y.size:
            rank = int(rng.integers(0, min(rows, columns) + 1))
            y = rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, columns))
        if i % 4 == 1 and y.size:
            y = y[:1] if i % 8 == 1 else y[:, :1]
        ys.append(torch.from_numpy(y * 10.0 ** rng.choice([-30, -3, 0, 3, 30])).float())
    for method in ("auto", "eigen", "products"):
        for y, u in zip(ys, precondition(phi, ys, method=method), strict=True):
            assert u.shape == y.shape
            assert u.isfinite().all()
            assert not u.numel() or torch.linalg.matrix_norm(u, 2) <= 2  # 1, but for what is lost in squares


def test_matrices_of_one_shape_are_independent_and_nan_stays():
    phi = npgm.Spectral(npgm.Sqrt(), scale=0.01)
    ys = [matrix(4, 6, seed=0), 1e-4 * matrix(4, 6, seed=1), matrix(6, 4, seed=2), torch.full((4, 6), torch.nan)]
    ys.append(torch.stack(ys[:2]).double())
    us = precondition(phi, ys)
    for y, u in zip(ys[:3], us, strict=False):
        torch.testing.assert_close(u, precondition(phi, [y])[0])
    assert us[3].isnan().all()
    torch.testing.assert_close(us[4], torch.stack(us[:2]))
    infinite = ys[0].clone()
    infinite[0, 0] = torch.inf
    assert precondition(phi, [infinite])[0].isnan().all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda phi, y: precondition("spectral-sqrt", [y]), "must be a spectral reference function"),
        (lambda phi, y: precondition(phi, [y[0]]), "two axes or more"),
        (lambda phi, y: precondition(phi, [y], method="svd"), "unknown method 'svd'; accepted: auto, eigen, products"),
        (lambda phi, y: precondition(npgm.Spectral(npgm.Cosh()), [y], method="products"), "for the kernels sqrt"),
    ],
)
def test_bad_arguments_of_the_function(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(npgm.Spectral(npgm.Sqrt()), matrix(3, 4))


POLAR_EXPRESS = [  # of Amsel, Persson, Musco and Gower, with their safety factor of 1.01 in all but the last
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
    (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
    (1.875, -1.25, 0.375),
]
NEWTON_SCHULZ = 5 * [(3.4445, -4.7750, 2.0315)]  # of torch.optim.Muon


@pytest.mark.parametrize(
    ("polynomials", "deviation", "of_the_sign"),
    [
        ([(a / 1.01, b / 1.01**3, c / 1.01**5) for a, b, c in POLAR_EXPRESS[:-1]] + POLAR_EXPRESS[-1:], 0.0061, 0.353),
        (NEWTON_SCHULZ, 0.138, 0.595),
    ],
    ids=["Polar Express 8", "Newton-Schulz 5"],
)
def test_muons_iterations_are_a_preconditioner_and_not_the_sign(polynomials, deviation, of_the_sign):
    sigma, kernel = np.geomspace(1e-5, 1, 2001), npgm.Root(4.0)
    values = remez.value(polynomials, sigma)

    def rms(scale):
        return np.sqrt(np.mean((values - kernel.precondition(sigma / scale)) ** 2))

    best = min(rms(scale) for scale in np.geomspace(1e-5, 1e-1, 1601))
    assert best == pytest.approx(deviation, rel=0.02)
    assert np.sqrt(np.mean((values - 1) ** 2)) == pytest.approx(of_the_sign, rel=0.01)


# the optimizer

SHAPES = [(3, 4), (), (5,), (2, 3, 4, 4), (0, 2)]


def of_its_gradient(ratio):
    """λ that is so many times the root mean square of the singular values of what φ is given."""
    return {"scale": "auto", "relative_scale": ratio, "scale_decay": 0.0}


def as_matrices(x, form):
    """The matrices of an array as NumPy sees them."""
    return x if x.ndim < 2 or form == "stack" else x.reshape(x.shape[0], -1)


@pytest.mark.parametrize("options", [
    {},
    {"momentum_order": "before"},
    {"momentum_order": "before", "nesterov": True},
    {"nesterov": True},
    {"momentum": 0.0},
    {"adjust": "aspect"},
    {"adjust": "rms", "matrix_form": "stack"},
    {"scale": "auto", "relative_scale": 0.3, "scale_decay": 0.0},
    {"decoupled_weight_decay": True, "maximize": True},
    {"foreach": False},
], ids=str)  # fmt: skip
@pytest.mark.parametrize(
    ("kernel", "dtype"), [("sqrt", torch.float32), ("sqrt", torch.float64), ("cosh", torch.float64)]
)
def test_trajectory_is_the_definition(kernel, options, dtype):
    rng = np.random.default_rng(0)
    xs = [rng.standard_normal(shape) for shape in SHAPES]
    params = [nn.Parameter(torch.tensor(x, dtype=dtype)) for x in xs]
    given = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1, "scale": 0.5} | options
    make = partial(NPGM, reference=f"spectral-{kernel}")
    optimizer = make(params, **given)
    ms = [np.zeros_like(x) for x in xs]
    beta, before, form = given["momentum"], options.get("momentum_order") == "before", options.get("matrix_form")
    decoupled = "decoupled_weight_decay" in options

    def direction(y):
        if not y.size:
            return y
        view = as_matrices(y, form)
        rows, columns = view.shape[-2:] if view.ndim > 1 else (view.size, 1)
        scale = 0.3 * np.linalg.norm(y) / min(rows, columns) ** 0.5 if "scale" in options else 0.5
        u = npgm.reference(f"spectral-{kernel}", scale=scale).precondition(view).reshape(y.shape)
        a = {"aspect": max(1, rows / columns) ** 0.5, "rms": 0.2 * max(rows, columns) ** 0.5}
        return a.get(options.get("adjust"), 1.0) * u

    for step in range(20):
        gs = [rng.standard_normal(x.shape) * 10 ** np.sin(step) for x in xs]
        for i, (p, g) in enumerate(zip(params, gs, strict=True)):
            p.grad = torch.tensor(g, dtype=dtype)
            g = -g if "maximize" in options else g
            y = g if decoupled else g + 0.1 * xs[i]
            u = y if before else direction(y)
            ms[i] = beta * ms[i] + (1 - beta) * u
            u = beta * ms[i] + (1 - beta) * u if "nesterov" in options else ms[i]
            u = direction(u) if before else u
            xs[i] = (1 - 0.005 * decoupled) * xs[i] - 0.05 * u
        optimizer.step()
    for p, x in zip(params, xs, strict=True):
        tolerance = 1e-11 if dtype == torch.float64 else 2e-5
        np.testing.assert_allclose(p.detach().numpy(), x, rtol=tolerance, atol=tolerance)


def in_blocks(x, form, number):
    """The matrices, views of an array, that its rows are made of."""
    if form != "stack":
        x = (np.moveaxis(x, -1, 0) if form == "transpose" else x).reshape(1, -1, x.size // x.shape[0 if form == "flatten" else -1])  # fmt: skip
    return [block for one in x for block in np.split(one, number)]


@pytest.mark.parametrize("form", ["flatten", "transpose", "stack"])
@pytest.mark.parametrize("options", [
    {"scale": "auto", "relative_scale": 0.3, "scale_decay": 0.0, "nesterov": True, "momentum_order": "before"},
    {"scale": 0.5, "adjust": "rms", "momentum_order": "after"},
    {"scale": 0.5, "adjust": "aspect", "momentum_order": "before", "differentiable": True},
], ids=str)  # fmt: skip
def test_blocks_are_matrices_by_themselves(form, options):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 6, 3) if form == "stack" else (6, 2, 3))
    x = np.ascontiguousarray(np.moveaxis(x, 0, -1)) if form == "transpose" else x
    parameter = torch.tensor(x)
    optimizer = NPGM([parameter], 0.1, 0.9, "spectral-sqrt", matrix_form=form, blocks=3, **options)
    y = rng.standard_normal(x.shape)
    parameter.grad = torch.tensor(y)
    optimizer.step()

    m = 0.1 * y if options["momentum_order"] == "before" else y
    y = 0.1 * y + 0.9 * m if "nesterov" in options else m
    values = np.linalg.svd(in_blocks(y, form, 3), compute_uv=False)
    scale = 0.3 * np.sqrt(np.mean(values**2)) if options["scale"] == "auto" else 0.5
    us = []
    for block in in_blocks(y, form, 3):
        rows, columns = block.shape
        a = {"rms": 0.2 * max(rows, columns) ** 0.5, "aspect": max(1, rows / columns) ** 0.5, None: 1.0}
        us.append(a[options.get("adjust")] * npgm.reference("spectral-sqrt", scale=scale).precondition(block))
    moved = in_blocks(x - parameter.detach().numpy(), form, 3)
    length = 0.01 if options["momentum_order"] == "after" else 0.1
    np.testing.assert_allclose(moved, length * np.array(us), rtol=1e-9, atol=1e-12)


def test_rows_that_are_no_blocks_are_refused():
    parameter = nn.Parameter(torch.ones(4, 3))
    message = "parameter 0 of group 0 has 4 rows, which cannot be 3 blocks of one size"
    with pytest.raises(ValueError, match=message):
        SpectralGD([parameter], lr=0.1, blocks=3)
    optimizer = SpectralGD([parameter], lr=0.1)
    optimizer.param_groups[0]["blocks"] = 3
    parameter.grad = torch.ones(4, 3)
    with pytest.raises(RuntimeError, match=message):
        optimizer.step()
    assert parameter.eq(1.0).all()
    with pytest.raises(ValueError, match="blocks must be at least 1, not 0"):
        SpectralGD([parameter], lr=0.1, blocks=0)


def test_state_is_saved_and_restored_as_plain_values():
    params = [nn.Parameter(matrix(4, 3).float())]
    optimizer = SpectralGD(params, lr=0.1, momentum=0.9, blocks=2, **of_its_gradient(0.1))
    params[0].grad = matrix(4, 3, seed=1).float()
    optimizer.step()
    other = SpectralGD([nn.Parameter(params[0].detach().clone())], lr=1.0, momentum=0.5, scale="auto")
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    group = other.param_groups[0]
    assert (group["reference"], group["adjust"], group["blocks"]) == ("spectral-sqrt", "rms", 2)
    for one in (optimizer, other):
        one.param_groups[0]["params"][0].grad = matrix(4, 3, seed=2).float()
        one.step()
    torch.testing.assert_close(other.param_groups[0]["params"][0], params[0], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reference": "spectral-sqrt", "fused": True}, "has no step for"),
        ({"reference": "spectral-sqrt", "adjust": "muon"}, "unknown adjust 'muon'; accepted: aspect, rms"),
        ({"reference": "spectral-sqrt", "relative": 0.1}, "scale='auto', relative_scale=relative, scale_decay=0"),
        ({"reference": "spectral-sqrt", "nesterov": True}, "nesterov needs momentum"),
        ({"reference": "spectral-sqrt", "matrix_form": "conv"}, "unknown matrix_form 'conv'"),
        ({"reference": "separable-cosh", "adjust": "rms"}, "adjust='rms' has no effect .* a spectral reference"),
        ({"matrix_form": "stack"}, "matrix_form='stack' has no effect with isotropic-cosh, scale=1.0"),
        ({"product_dtype": torch.bfloat16}, "product_dtype=torch.bfloat16 has no effect"),
        ({"nesterov": True, "momentum": 0.9}, "nesterov=True has no effect"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        NPGM([nn.Parameter(torch.ones(2, 3))], lr=0.1, **options)


# what users of Muon complain of


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 6)
        self.experts = nn.Parameter(torch.randn(3, 6, 6))
        self.attention = nn.MultiheadAttention(6, 2)
        self.features = nn.Sequential(nn.Conv1d(6, 8, 3), nn.BatchNorm1d(8), nn.Linear(8, 6), nn.LayerNorm(6))
        self.output = nn.Linear(6, 10, bias=False)


def names(group):
    return [name for name, _ in group["params"]]


def test_parameters_are_sorted_by_the_kind_of_their_module():
    net = Net()
    hidden, attention, stacks, others = matrices(net, stacks=[net.experts], reference="separable-cosh")
    assert names(hidden) == ["attention.out_proj.weight", "features.0.weight", "features.2.weight"]
    assert (names(attention), attention["blocks"]) == (["attention.in_proj_weight"], 3)
    assert (names(stacks), stacks["matrix_form"]) == (["experts"], "stack")
    assert (others["reference"], others["scale"]) == ("separable-cosh", "auto")
    assert {"embedding.weight", "output.weight", "features.1.weight", "features.3.weight"} <= set(names(others))
    groups = [hidden, attention, stacks, others]
    assert sum(len(group["params"]) for group in groups) == len(list(net.parameters()))
    SpectralGD(groups, lr=0.1)
    assert "output.weight" in names(matrices(net, head=())[0])
    # the names do not matter: a head that is called like a hidden layer, and hidden ones that are called like a head
    twin = nn.ModuleDict({"lm_head": nn.Linear(4, 4), "embed": nn.Linear(4, 4), "hidden": nn.Linear(4, 4)})
    assert names(matrices(twin)[0]) == ["lm_head.weight", "embed.weight"]


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
@pytest.mark.parametrize(
    ("normed", "matrix"),
    [
        (parametrizations.weight_norm, "parametrizations.weight.original1"),
        (parametrizations.spectral_norm, "parametrizations.weight.original"),
        (parametrizations.orthogonal, "parametrizations.weight.original"),
        (nn.utils.weight_norm, "weight_v"),
        (nn.utils.spectral_norm, "weight_orig"),
    ],
)
def test_what_a_normed_weight_is_made_of_is_the_matrix(normed, matrix):
    net = nn.Sequential(normed(nn.Linear(3, 5)), normed(nn.Linear(5, 2)))
    hidden, others = matrices(net)
    assert names(hidden) == [f"0.{matrix}"]
    assert f"1.{matrix}" in names(others)


def test_the_linear_layer_of_transformers_gpt2_is_found():
    class Conv1D(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(3, 5)), nn.Parameter(torch.zeros(5))

    with pytest.warns(UserWarning, match=r"no matrix was found; 0\.weight belong to layers of an unknown kind"):
        matrices(nn.Sequential(Conv1D()))
    Conv1D.__module__ = "transformers.pytorch_utils"
    hidden, others = matrices(nn.Sequential(Conv1D()))
    assert (names(hidden), hidden["matrix_form"], names(others)) == (["0.weight"], "transpose", ["0.bias"])
    assert matrices(nn.Sequential(Conv1D()), blocks={"0": 5})[0]["blocks"] == 5  # 5 are its outputs


def test_weights_of_recurrent_layers_and_bilinear_ones():
    recurrent = parametrizations.weight_norm(nn.LSTM(1, 3, proj_size=2), "weight_hh_l0")
    plain, gates, _ = matrices(recurrent)
    assert (names(plain), gates["blocks"]) == (["weight_hr_l0"], 4)
    assert names(gates) == ["weight_ih_l0", "parametrizations.weight_hh_l0.original1"]
    for layer, number in [(nn.GRU(1, 3), 3), (nn.GRUCell(1, 3), 3), (nn.LSTMCell(1, 3), 4)]:
        assert matrices(layer)[0]["blocks"] == number
        assert len(matrices(layer)[0]["params"]) == 2
    assert "blocks" not in matrices(nn.RNN(1, 3))[0]
    assert names(matrices(nn.Bilinear(4, 2, 3))[0]) == ["weight"]


@pytest.mark.parametrize("mode", ["real", "symbolic"])
@pytest.mark.parametrize("shape", [(3, 4), (4, 3)])
def test_a_step_is_traced_by_make_fx(mode, shape):
    def moved(p, gradient):
        p = p.clone()
        p.grad = gradient
        with torch.no_grad():
            NPGM([p], 0.1, 0.9, "spectral-sqrt").step()
        return p

    traced = make_fx(moved, tracing_mode=mode)(torch.randn(shape), torch.randn(shape))
    p, gradient = torch.randn(shape), torch.randn(shape)
    assert torch.equal(traced(p, gradient), moved(p, gradient))


def test_tied_weights_are_an_embedding_wherever_they_are_used():
    net = Net()
    net.output.weight = net.embedding.weight
    net.features[2] = nn.Linear(6, 10)
    net.features[2].weight = net.embedding.weight
    hidden, _, others = matrices(net)
    assert "features.2.weight" not in names(hidden)
    assert names(others).count("embedding.weight") == 1


def test_an_embedding_as_the_head_leaves_every_linear_layer():
    def block():
        return nn.Sequential(nn.Linear(6, 24), nn.GELU(), nn.Linear(24, 6))

    tied = nn.ModuleDict({"embedding": nn.Embedding(10, 6), "positions": nn.Embedding(8, 6), "block": block()})
    assert names(matrices(tied)[0]) == ["block.0.weight", "block.2.weight"]
    untied = nn.ModuleDict({"head": nn.Linear(6, 10), **tied})  # registered before the blocks
    assert names(matrices(untied)[0]) == ["block.0.weight", "block.2.weight"]
    classifier = nn.ModuleDict({**tied, "classes": nn.Linear(6, 3)})
    assert names(matrices(classifier)[0]) == ["block.0.weight", "block.2.weight"]


def test_blocks_are_said_by_layer_by_name_or_by_parameter():
    net = nn.ModuleDict({name: nn.Linear(4, 6) for name in ("a", "b", "c", "d", "e")})
    plain, two, three, _ = matrices(net, blocks={net["a"]: 3, "b": 2, "c.weight": 3})
    assert [names(group) for group in (plain, two, three)] == [["d.weight"], ["b.weight"], ["a.weight", "c.weight"]]
    assert (two["blocks"], three["blocks"]) == (2, 3)
    attention = nn.MultiheadAttention(6, 2)
    assert "blocks" not in matrices(attention, head=(), blocks={attention: 1})[0]


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ({"f": 3}, "must name layers or parameters of the model, which 'f' is not"),
        ({nn.Linear(1, 1): 3}, "of the model, which Linear.* is not"),
        ({"b": 3}, "that are matrices, which 'b' is not"),  # the head
        ({"a": 4}, "the 6 outputs of a.weight cannot be 4 blocks of one size"),
        ({"a": 0}, "blocks must be at least 1"),
    ],
    ids=str,
)
def test_blocks_that_are_none_are_refused(blocks, message):
    with pytest.raises(ValueError, match=message):
        matrices(nn.ModuleDict({"a": nn.Linear(4, 6), "b": nn.Linear(6, 6)}), blocks=blocks)


def test_what_is_not_in_the_model_is_refused():
    net = Net()
    with pytest.raises(ValueError, match="head must contain modules of the model"):
        matrices(net, head=[nn.Linear(2, 2)])
    with pytest.raises(ValueError, match="stacks must contain parameters of the model with three axes"):
        matrices(net, stacks=[net.output.weight])


def test_convolutions_and_stacks_keep_any_dtype():
    for shape, form in [((8, 4, 3, 3), "flatten"), ((4, 3, 3), "stack"), ((4, 3, 3), "flatten")]:
        for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
            parameter = nn.Parameter(torch.zeros(shape, dtype=dtype))
            parameter.grad = torch.randn(shape, dtype=dtype)
            NPGM([parameter], lr=1.0, scale=1e-6, matrix_form=form, reference="spectral-sqrt").step()
            assert parameter.dtype == dtype
            moved = parameter.detach().double()
            moved = moved if form == "stack" else moved.flatten(1)
            deviation = torch.linalg.svdvals(moved) - 1
            # in float32 at least: what is left is the rounding of the parameters
            assert deviation.abs().max() <= max(4 * torch.finfo(dtype).eps, 1e-4)


def test_a_clipped_gradient_is_the_same_direction():
    moved = []
    for clip in (None, 1e-3):
        parameter = nn.Parameter(torch.zeros(4, 6))
        parameter.grad = matrix(4, 6).float() * 100
        if clip:
            nn.utils.clip_grad_norm_([parameter], clip)
        SpectralGD([parameter], lr=0.1, **of_its_gradient(0.1)).step()
        moved.append(parameter.detach())
    torch.testing.assert_close(*moved, rtol=1e-4, atol=1e-6)


def test_the_rms_adjustment_has_steps_of_the_size_of_adamws():
    for shape in [(64, 64), (32, 128), (128, 32)]:
        parameter = nn.Parameter(torch.zeros(shape))
        parameter.grad = torch.randn(shape)
        SpectralGD([parameter], lr=1.0, scale=1e-6, adjust="rms").step()
        assert float(parameter.detach().square().mean().sqrt()) == pytest.approx(0.2, rel=1e-3)


@pytest.mark.parametrize("policy", ["propagate", "skip", "raise"])
def test_nan_follows_the_policy(policy):
    params = [nn.Parameter(torch.zeros(3, 4)) for _ in range(2)]
    optimizer = SpectralGD(params, lr=0.1, momentum=0.9, nonfinite=policy)
    params[0].grad, params[1].grad = torch.ones(3, 4), torch.full((3, 4), torch.nan)
    if policy == "raise":
        with pytest.raises(RuntimeError, match="contains NaN or infinity"):
            optimizer.step()
    else:
        optimizer.step()
    assert bool(params[1].isnan().all()) == (policy == "propagate")
    assert bool(params[0].any()) == (policy == "propagate")


def test_complex_parameters_are_refused():
    parameter = nn.Parameter(torch.zeros(2, 2, dtype=torch.complex64))
    parameter.grad = torch.ones_like(parameter)
    with pytest.raises(RuntimeError, match="is complex, which a spectral reference function does not support"):
        NPGM([parameter], lr=0.1, reference="spectral-sqrt").step()


def test_autograd_goes_through_a_differentiable_step():
    start = matrix(3, 4).requires_grad_()
    parameter = start.clone()
    parameter.grad = 2 * parameter
    NPGM([parameter], lr=0.1, differentiable=True, reference="spectral-sqrt").step()
    (got,) = torch.autograd.grad(parameter.sum(), start)
    phi, y, ones = npgm.Spectral(npgm.Sqrt()), start.detach().numpy(), np.ones((3, 4))
    np.testing.assert_allclose(got.numpy(), ones - 0.2 * phi.conjugate_hvp(2 * y, ones), rtol=1e-10)


def test_a_group_does_not_inherit_what_has_no_effect_in_it():
    groups = [{"params": [nn.Parameter(torch.ones(3, 2))]}, {"params": [nn.Parameter(torch.ones(3))], "reference": "separable-cosh"}]  # fmt: skip
    optimizer = SpectralGD(groups, lr=0.1, momentum=0.9, adjust="rms", nesterov=True, **of_its_gradient(1e-3))
    assert [group["adjust"] for group in optimizer.param_groups] == ["rms", None]
    assert [group["nesterov"] for group in optimizer.param_groups] == [True, False]
    fixed = {"params": [nn.Parameter(torch.ones(1))], "scale": 0.5}
    optimizer.add_param_group(fixed)
    assert optimizer.param_groups[-1]["relative_scale"] == 1.0
    with pytest.raises(ValueError, match="adjust='rms' has no effect"):
        optimizer.add_param_group(
            {"params": [nn.Parameter(torch.ones(1))], "reference": "separable-cosh", "adjust": "rms"}
        )


def test_a_state_with_the_option_relative_loads():
    """Of an earlier release, whose stacks and scopes without an effect were options, too."""
    steps = []
    for old in (False, True):
        parameter = nn.Parameter(torch.zeros(4, 6))
        optimizer = NPGM([parameter], 0.1, 0.0, "spectral-sqrt", **({} if old else of_its_gradient(0.1)))
        if old:
            state = optimizer.state_dict()
            state["param_groups"][0] |= {"relative": 0.1, "scope": "tensor"}
            with pytest.warns(UserWarning, match="continues with the reference function of the state"):
                optimizer.load_state_dict(state)
            assert "relative" not in optimizer.param_groups[0]
        for seed in (0, 1):
            parameter.grad = matrix(4, 6, seed=seed).float() * 100**seed  # λ follows at once
            optimizer.step()
        steps.append(parameter.detach())
    torch.testing.assert_close(*steps)


@pytest.mark.slow
def test_the_main_snippet_trains_as_well_as_adamw_tuned():
    (snippet,) = (code for code in blocks(ROOT / "docs" / "spectral.md", "python") if "OneCycleLR" in code)
    spectral = "npgm.torch.SpectralGD(npgm.torch.matrices(model), lr=0.02)"
    assert spectral in snippet

    def loss(optimizer, lr):
        scope = {}
        exec(snippet.replace(spectral, f"{optimizer}, lr={lr})").replace("max_lr=0.02", f"max_lr={lr}"), scope)
        with torch.no_grad():
            x = torch.randn(4096, 20)
            return float((scope["model"](x) - x[:, :1] * x[:, 1:2] - x[:, 2:3]).square().mean())

    others = [loss("torch.optim.AdamW(model.parameters()", 0.1 / 2**k) for k in range(7)]
    assert loss("npgm.torch.SpectralGD(npgm.torch.matrices(model)", 0.02) <= 1.25 * min(others)
    assert min(others) <= 0.1  # of a variance of 2

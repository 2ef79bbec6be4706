"""The option ``prox`` against a NumPy loop, on every path."""

import copy

import numpy as np
import pytest
import torch

import npgm
from npgm.proximal import L1, Ball, Box, NuclearNorm, Rows, SpectralBall, Sphere, TotalVariation
from npgm.torch import NGD, NPGM, SHGD, SNGD, SpectralGD

SHAPES = {"weight": (3, 4), "bias": (5,)}
LR, SCALE, STEPS = 0.3, 0.5, 5


def gradients(t: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(t)
    return {name: rng.normal(size=shape) for name, shape in SHAPES.items()}


def parameters() -> dict[str, torch.nn.Parameter]:
    return {name: torch.nn.Parameter(torch.tensor(value)) for name, value in gradients(100).items()}


def trained(optimizer: NPGM, named: dict[str, torch.nn.Parameter]) -> list[np.ndarray]:
    for t in range(STEPS):
        for name, g in gradients(t).items():
            named[name].grad = torch.tensor(g)
        optimizer.step()
    return [p.detach().numpy() for p in named.values()]


def by_definition(phi, prox, momentum, lr):
    """One vector of all entries for an isotropic φ, each parameter by itself for another one."""
    joint = isinstance(phi, npgm.Isotropic)
    cut = [slice(0, 12), slice(12, 17)]
    start = gradients(100)
    x = [np.concatenate([v.ravel() for v in start.values()])] if joint else list(start.values())
    m = [np.zeros_like(v) for v in x]
    for t in range(STEPS):
        g = list(gradients(t).values())
        g = [np.concatenate([v.ravel() for v in g])] if joint else g
        for i in range(len(x)):
            m[i] = momentum * m[i] + (1 - momentum) * phi.precondition(g[i])
            x[i] = prox.step(phi, x[i] - lr * m[i], lr)
    return [x[0][part].reshape(shape) for part, shape in zip(cut, SHAPES.values(), strict=True)] if joint else x


PATHS = {"single": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}, "own choice": {}}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("lr_like", ["paper", "sgd"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", ["isotropic-cosh", "isotropic-log", "separable-cosh", "separable-log"])
def test_every_path_takes_the_steps_of_the_definition(name, momentum, lr_like, path):
    phi, named = npgm.reference(name, scale=SCALE), parameters()
    options = {"momentum": momentum, "lr_like": lr_like, "prox": L1(1.0), **PATHS[path]}
    got = trained(NPGM(named.values(), LR, reference=phi, **options), named)
    lr = LR * (SCALE / (phi.kernel.curvature_at_zero * (1 - momentum)) if lr_like == "sgd" else 1.0)
    want = by_definition(phi, L1(1.0), momentum, lr)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


PLAIN = {"momentum": 0.0, "momentum_order": "after", "scale": SCALE}
"""What makes of `SpectralGD` the method of the paper."""


@pytest.mark.parametrize("prox", [SpectralBall(0.7), NuclearNorm(0.1), Sphere(2.0)], ids=repr)
def test_a_spectral_step_acts_on_matrices(prox):
    named = {"weight": torch.nn.Parameter(0.1 * parameters()["weight"].detach())}
    optimizer = SpectralGD(named.values(), LR, prox=prox, adjust="rms", **PLAIN)
    phi, x = npgm.reference("spectral-sqrt", scale=SCALE), named["weight"].detach().numpy().copy()
    for t in range(STEPS):
        g = gradients(t)["weight"]
        named["weight"].grad = torch.tensor(g)
        optimizer.step()
        lr = LR * 0.2 * 2.0  # √max(rows, columns)
        x = prox.step(phi, x - lr * phi.precondition(g), lr)
    np.testing.assert_allclose(named["weight"].detach(), x, rtol=1e-9, atol=1e-12)


def test_blocks_have_a_step_each():
    start = 0.1 * torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole, parts = torch.nn.Parameter(start.clone()), [torch.nn.Parameter(part.clone()) for part in start.split(3)]
    options = {"prox": SpectralBall(0.2), **PLAIN}
    optimizers = [SpectralGD([whole], LR, blocks=2, **options), SpectralGD(parts, LR, **options)]
    for t in range(STEPS):
        whole.grad = torch.tensor(np.random.default_rng(t).normal(size=(6, 4)))
        for part, grad in zip(parts, whole.grad.split(3), strict=True):
            part.grad = grad
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(whole.detach(), torch.cat(parts).detach(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-log"])
def test_a_scale_that_follows_is_that_of_the_step(name):
    """With ``scale_decay=0`` λ is the norm of the gradient, or the root mean square of its entries."""
    p, g = torch.nn.Parameter(torch.tensor([3.0, 0.1, -2.0], dtype=torch.float64)), np.array([1.0, -2.0, 0.5])
    scale = np.linalg.norm(g) / (1.0 if name.startswith("isotropic") else 3**0.5)
    phi = npgm.reference(name, scale=float(scale))
    want = L1(0.5).step(phi, p.detach().numpy() - LR * phi.precondition(g), LR)
    p.grad = torch.tensor(g)
    NPGM([p], LR, reference=name, scale="auto", scale_decay=0.0, prox=L1(0.5)).step()
    np.testing.assert_allclose(p.detach(), want, rtol=1e-9)


def test_groups_of_different_phi_have_a_proximal_step_each():
    """They share the norm of the gradients, and each has the step of its own φ and λ."""
    named = parameters()
    options = {
        "weight": {"reference": npgm.reference("isotropic-cosh", scale=SCALE)},
        "bias": {"reference": npgm.reference("isotropic-sqrt", scale=3 * SCALE)},
    }
    groups = [{"params": [named[name]], **options[name]} for name in SHAPES]
    optimizer = NPGM(groups, LR, reference="isotropic-cosh", scale=SCALE, prox=L1(0.5))
    before = [p.detach().numpy().copy() for p in named.values()]
    for name, g in gradients(0).items():
        named[name].grad = torch.tensor(g)
    optimizer.step()
    norm = np.sqrt(sum((g**2).sum() for g in gradients(0).values()))
    for (name, p), x in zip(named.items(), before, strict=True):
        phi = options[name]["reference"]
        y = x - LR * np.linalg.norm(phi.precondition(np.array([norm]))) * gradients(0)[name] / norm
        want = L1(0.5).step(phi, y.ravel(), LR).reshape(y.shape)
        np.testing.assert_allclose(p.detach(), want, rtol=1e-9, atol=1e-12, err_msg=name)


def test_groups_have_functions_and_stepsizes_of_their_own():
    named = parameters()
    groups = [{"params": [named["weight"]], "prox": L1(0.2), "lr": 0.1}, {"params": [named["bias"]]}]
    phi = npgm.reference("isotropic-cosh", scale=SCALE)
    x, _ = trained(NPGM(groups, LR, reference=phi), named)
    want = gradients(100)["weight"]
    for t in range(STEPS):
        g = gradients(t)
        u = phi.precondition(np.concatenate([g["weight"].ravel(), g["bias"]]))[:12].reshape(3, 4)
        want = L1(0.2).step(phi, want - 0.1 * u, 0.1)
    np.testing.assert_allclose(x, want, rtol=1e-9, atol=1e-12)


def test_rows_stay_in_a_ball_in_bfloat16_too():
    layer = torch.nn.Linear(8, 4, dtype=torch.bfloat16)
    optimizer = NGD(layer.parameters(), 0.5, momentum=0.9)
    optimizer.param_groups[0]["params"] = [layer.weight]
    optimizer.add_param_group({"params": [layer.bias]})
    optimizer.param_groups[0]["prox"] = Rows(Ball(0.5))
    for t in range(5):
        torch.manual_seed(t)
        layer(torch.randn(16, 8, dtype=torch.bfloat16)).float().square().sum().neg().backward()
        optimizer.step()
    norms = layer.weight.float().norm(dim=1)
    assert (norms <= 0.5 * (1 + 2**-8)).all()
    assert (norms > 0.49).all()


@pytest.mark.parametrize("cls", [NGD, SNGD])
def test_a_bounded_step_to_a_set_far_away_is_the_projection(cls):
    """φ has a bounded domain, and gradients so large that steps are as long as it admits."""
    p = torch.nn.Parameter(torch.tensor([5.0, 0.0]))
    p.grad = torch.tensor([1e30, 1e30])
    cls([p], 0.1, prox=Box(0.0, 1.0)).step()
    assert p.tolist() == [1.0, 0.0]


def test_a_step_that_is_left_out_leaves_the_parameters():
    p = torch.nn.Parameter(torch.tensor([5.0, 0.1]))
    before = p.detach().clone()
    p.grad = torch.tensor([float("nan"), 1.0])
    SHGD([p], 0.1, prox=L1(1.0), nonfinite="skip").step()
    p.grad = torch.ones(2)
    SHGD([p], 0.0, prox=L1(1.0)).step()  # as at the start of a warm-up
    assert torch.equal(p, before)


def test_a_state_dictionary_holds_values_alone(tmp_path):
    named = parameters()
    optimizer = NPGM(named.values(), LR, momentum=0.9, prox=L1(0.2))
    copied = copy.deepcopy(optimizer)
    assert copied.param_groups[0]["prox"] == L1(0.2)
    trained(optimizer, named)
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    other = NPGM(named.values(), LR, momentum=0.9, prox=Box(0.0))
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert other.param_groups[0]["prox"] == Box(0.0)
    assert other.state_dict()["param_groups"][0]["prox"] is None


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"prox": 0.1}, TypeError, r"prox must be a function of npgm\.proximal such as .*not 0\.1"),
        ({"prox": L1(1.0), "differentiable": True}, ValueError, "differentiable and prox cannot be combined"),
        ({"prox": L1(1.0), "capturable": True}, ValueError, "capturable and prox cannot be combined"),
        ({"prox": L1(np.ones(7))}, ValueError, r"parameter 0 of group 0 of shape \(3, 4\) .* weight has the shape"),
        ({"prox": Rows(Ball())}, ValueError, r"parameter 1 of group 0 of shape \(5,\) .* two axes"),
        ({"prox": L1(), "reference": "spectral-sqrt"}, ValueError, "parameter 0 of group 0 .* singular values"),
        ({"prox": TotalVariation(), "reference": "separable-cosh"}, ValueError, "parameter 0 of group 0"),
    ],
)
def test_what_has_no_step_is_refused_at_once(options, error, message):
    with pytest.raises(error, match=message):
        NPGM(parameters().values(), LR, **options)


def test_complex_parameters_are_refused():
    with pytest.raises(ValueError, match="is complex"):
        SHGD([torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64))], 0.1, prox=L1())

"""`scale="auto"` on every path: λ by docs/auto-scale.md."""

import copy
import functools

import numpy as np
import pytest
import torch

import auto_scale
import npgm
from npgm.torch import IHGD, NPGM, SNGD, SpectralGD
from tensors import TWO, each_path, each_way, step, through_file

SHAPES = [(3, 2), (4,), (), (0, 2), (2, 3, 2)]


def gradients(steps=8):
    return auto_scale.gradients(SHAPES, steps)


def parameters(dtype=torch.float64):
    return [torch.zeros(shape, dtype=dtype, requires_grad=True) for shape in SHAPES]


def states(optimizer):
    return [s[key].clone() for s in optimizer.state.values() for key in ("scale_rms", "scale_weight")]


def want(name, *, by_tensor, order, beta=0.9, lr=0.1, **numbers):
    """Where the definition ends after `gradients`, from zero."""
    average = [np.zeros(shape) for shape in SHAPES]

    def averaged(sequence):
        for tensors in sequence:
            for i, tensor in enumerate(tensors):
                average[i] = beta * average[i] + (1 - beta) * tensor
            yield list(average)

    before = averaged(gradients()) if order == "before" else gradients()
    directions = auto_scale.directions(name, before, by_tensor=by_tensor, **numbers)
    steps = directions if order == "before" else averaged(directions)
    return [-lr * sum(parts) for parts in zip(*steps, strict=True)]


@pytest.mark.slow
@each_path
@pytest.mark.parametrize(
    ("order", "kappa", "rho"), [("after", 1.0, 0.99), ("before", 0.3, 0.5), ("after", 2.0, 0.0), ("before", 1.0, 0.99)]
)
@pytest.mark.parametrize("scope", ["global", "tensor"])
@pytest.mark.parametrize("name", TWO)
def test_is_the_definition(name, scope, order, kappa, rho, path):
    params = parameters()
    numbers = {"scope": scope, "momentum_order": order, "relative_scale": kappa, "scale_decay": rho}
    optimizer = NPGM(params, 0.1, 0.9, name, scale="auto", **numbers, **path)
    for tensors in gradients():
        step(optimizer, params, tensors)
    ends = want(name, by_tensor=scope == "tensor", order=order, kappa=kappa, rho=rho)
    for p, x in zip(params, ends, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), x, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("order", ["after", "before"])
@pytest.mark.parametrize("kernel", ["sqrt", "cosh"])
def test_spectral_is_the_definition(kernel, order):
    params = parameters()
    optimizer = NPGM(params, 0.1, 0.9, f"spectral-{kernel}", scale="auto", momentum_order=order, relative_scale=0.3)
    for tensors in gradients():
        step(optimizer, params, tensors)
    for p, x in zip(params, want(f"spectral-{kernel}", by_tensor=True, order=order, kappa=0.3), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), x, rtol=1e-11, atol=1e-12)


def test_a_stack_is_one_vector_of_all_its_singular_values():
    parameter = torch.zeros(4, 2, 3, dtype=torch.float64, requires_grad=True)
    y = np.random.default_rng(0).standard_normal((4, 2, 3))
    step(NPGM([parameter], 1.0, 0.0, "spectral-sqrt", scale="auto", matrix_form="stack"), [parameter], [y])
    phi = npgm.Spectral(npgm.Sqrt(), np.linalg.norm(y) / np.sqrt(8))
    np.testing.assert_allclose(-parameter.detach().numpy(), phi.precondition(y), rtol=1e-12)


def test_what_nesterov_looks_at_is_what_is_measured():
    parameter = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    optimizer = SpectralGD([parameter], 1.0, 0.9, relative_scale=1.0, scale_decay=0.0, adjust=None)
    rng, mean = np.random.default_rng(0), 0.0
    for _ in range(3):
        g, before = rng.standard_normal((2, 3)), parameter.detach().clone().numpy()
        step(optimizer, [parameter], [g])
        mean = 0.9 * mean + 0.1 * g
        y = 0.9 * mean + 0.1 * g
        u = npgm.Spectral(npgm.Sqrt(), np.linalg.norm(y) / np.sqrt(2)).precondition(y)
        np.testing.assert_allclose(before - parameter.detach().numpy(), u, rtol=1e-12)


@pytest.mark.slow
@each_way
@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-log", "spectral-sqrt"])
@pytest.mark.parametrize("order", ["after", "before"])
@pytest.mark.parametrize("factor", [2.0**-20, 1e6])
def test_a_multiple_of_the_loss_has_the_same_trajectory(name, order, factor, path):
    for a, b in zip(trained(name, order, 1.0, **path), trained(name, order, factor, **path), strict=True):
        tolerance = 0.0 if np.log2(factor).is_integer() else 1e-5
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@functools.cache
def trained(name, order, factor, **path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    optimizer = NPGM(model.parameters(), 0.02, 0.9, name, scale="auto", momentum_order=order, **path)
    inputs = torch.randn(16, 5)
    for _ in range(10):
        optimizer.zero_grad()
        (factor * (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


@each_path
@pytest.mark.parametrize("name", TWO)
@pytest.mark.parametrize("size", [1e-37, 1e37])
def test_the_ends_of_the_range(name, size, path):
    ends = []
    for factor in (1.0, size):
        params = [torch.zeros(2, requires_grad=True), torch.zeros(1, requires_grad=True)]
        optimizer = NPGM(params, 0.1, 0.9, name, scale="auto", **path)
        for _ in range(3):
            step(optimizer, params, [[factor, -2.0 * factor], [2.0 * factor]])
        ends.append(params)
    for a, b in zip(*ends, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=0)


@each_path
@pytest.mark.parametrize("name", TWO)
def test_zeros_at_first_move_nothing_and_say_nothing(name, path):
    params, other = parameters(), parameters()
    optimizers = [NPGM(xs, 0.1, 0.0, name, scale="auto", **path) for xs in (params, other)]
    step(optimizers[0], params, [np.zeros(shape) for shape in SHAPES])
    assert not any(p.any() for p in params)
    assert not any(s.any() for s in states(optimizers[0]))
    for tensors in gradients(3):
        for optimizer, xs in zip(optimizers, (params, other), strict=True):
            step(optimizer, xs, tensors)
    for a, b in zip(params, other, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@each_path
@pytest.mark.parametrize("name", TWO)
@pytest.mark.parametrize("policy", ["propagate", "skip", "raise"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_leaves_the_scale_alone(name, policy, bad, path):
    params = [torch.zeros(2, requires_grad=True), torch.zeros(3, requires_grad=True)]
    optimizer = NPGM(params, 0.1, 0.9, name, scale="auto", nonfinite=policy, **path)
    step(optimizer, params, [[1.0, 2.0], [1.0, 1.0, 1.0]])
    before, points = states(optimizer), [p.detach().clone() for p in params]
    bad = [[bad, 1.0], [1.0, 1.0, 2.0]]
    if policy == "raise":
        with pytest.raises(RuntimeError, match="parameter 0 of group 0 contains NaN or infinity"):
            step(optimizer, params, bad)
    else:
        step(optimizer, params, bad)
    after = states(optimizer)
    # the other tensor has a scale of its own where φ is separable
    held = after if policy != "propagate" or name.startswith("isotropic") else after[:2]
    assert all(map(torch.equal, held, before))
    assert (len(held) == len(after)) or after[3] > before[3]
    if policy != "propagate":
        assert all(map(torch.equal, params, points))


@each_path
def test_a_step_that_a_scaler_skips_leaves_the_scale_alone(path):
    params = [torch.zeros(2, requires_grad=True)]
    optimizer = SNGD(params, 0.1, 0.9, scale="auto", **path)
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(4.0), torch.tensor(0.0)
    step(optimizer, params, [[4.0, 8.0]])
    assert float(optimizer.state[params[0]]["scale_rms"] / 0.1) == pytest.approx(2.5**0.5)
    before, optimizer.found_inf = states(optimizer), torch.tensor(1.0)
    step(optimizer, params, [[4.0, np.inf]])
    assert all(map(torch.equal, states(optimizer), before))


@each_path
@pytest.mark.parametrize("name", TWO)
@pytest.mark.parametrize("how", ["state_dict", "deepcopy"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_checkpoint_goes_on(name, how, dtype, path):
    params = parameters(dtype)
    optimizer = NPGM(params, 0.1, 0.9, name, scale="auto", relative_scale=0.7, **path)
    sequence = list(gradients())
    for tensors in sequence[:5]:
        step(optimizer, params, tensors)
    if how == "deepcopy":
        other, copies = copy.deepcopy((optimizer, params))
    else:
        copies = [p.detach().clone().requires_grad_() for p in params]
        other = NPGM(copies, 1.0, 0.5, name, scale="auto")
        other.load_state_dict(through_file(optimizer.state_dict()))
    for tensors in sequence[5:]:
        step(optimizer, params, tensors)
        step(other, copies, tensors)
    for a, b in zip(params, copies, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert {s.dtype for s in states(other)} == {torch.float64}


def test_groups_of_one_vector_may_differ_in_the_multiple():
    params = parameters()
    groups = [{"params": params[:2], "relative_scale": 0.5}, {"params": params[2:]}]
    optimizer = IHGD(groups, 0.1, scale="auto")
    alone = [IHGD(xs, 0.1, scale="auto", relative_scale=kappa) for kappa in (0.5, 1.0) for xs in (parameters(),)]
    for tensors in gradients():
        step(optimizer, params, tensors)
        for one in alone:
            step(one, one.param_groups[0]["params"], tensors)
    own = [one.param_groups[0]["params"] for one in alone]
    for i, p in enumerate(params):
        torch.testing.assert_close(p, own[i >= 2][i], rtol=1e-14, atol=1e-14)
    first, *others = (optimizer.state[p]["scale_rms"] for p in params)
    assert all(other is first for other in others)


def test_groups_of_other_scopes_and_decays_are_separate():
    params = parameters()
    options = [{"scope": "group"}, {"scale_decay": 0.5}, {"scale": 2.0}, {}]
    optimizer = IHGD([{"params": [p], **o} for p, o in zip(params, options, strict=False)], 0.1, scale="auto")
    for _ in range(8):
        step(optimizer, params[:4], [np.ones(shape) for shape in SHAPES[:4]])
    known = [optimizer.state[p].get("scale_weight") for p in params[:4]]
    assert known[2] is None
    assert [round(float(w), 6) for w in (known[0], known[1], known[3])] == [0.077255, 0.996094, 0.077255]


def test_a_parameter_that_comes_later_joins_its_vector():
    params = parameters()
    optimizer = IHGD(params[:2], 0.1, scale="auto")
    step(optimizer, params[:2], [np.ones((3, 2)), np.ones(4)])
    optimizer.add_param_group({"params": [params[2]]})
    step(optimizer, params[:3], [np.ones((3, 2)), np.ones(4), np.ones(())])
    assert optimizer.state[params[2]]["scale_rms"] is optimizer.state[params[0]]["scale_rms"]
    # the mean of 10 and 11, and not of 10, 0 and 11
    assert float(optimizer.state[params[2]]["scale_rms"] ** 2 / 0.0199) == pytest.approx(10.5, rel=1e-2)


def test_complex_entries_count_as_two():
    z = torch.zeros(3, dtype=torch.complex128, requires_grad=True)
    optimizer = SNGD([z], 1.0, scale="auto", scale_decay=0.0)
    z.grad = torch.tensor([3.0 + 4.0j, 0.0, 0.0], dtype=torch.complex128)
    optimizer.step()
    scale = 5.0 / 6**0.5
    torch.testing.assert_close(z.detach()[0], torch.tensor(-3 / (scale + 3) - 4j / (scale + 4), dtype=torch.complex128))


def test_sparse_gradients_are_measured_as_dense_ones():
    ends = []
    for sparse in (False, True):
        table = torch.ones(4, 2, requires_grad=True)
        optimizer = SNGD([table], 0.1, scale="auto")
        for t in range(3):
            grad = torch.sparse_coo_tensor([[1, 3, 1]], torch.full((3, 2), t + 1.0), (4, 2), check_invariants=True)
            table.grad = grad if sparse else grad.to_dense()
            optimizer.step()
        ends.append(table.detach())
    torch.testing.assert_close(*ends)


def test_a_state_of_a_fixed_scale_is_loaded_with_a_warning():
    params = parameters()
    fixed = IHGD(params, 0.1)
    with pytest.warns(UserWarning, match=r"scale=1\.0\), instead of .*scale='auto'"):
        IHGD(params, 0.1, scale="auto").load_state_dict(fixed.state_dict())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": "automatic"}, "unknown scale 'automatic'; accepted: auto"),
        ({"scale": "auto", "relative_scale": 0.0}, "relative_scale must be positive and finite, not 0.0"),
        ({"scale": "auto", "scale_decay": 1.0}, r"scale_decay must lie in \[0, 1\), not 1.0"),
        ({"scale": "auto", "differentiable": True}, "scale='auto' and differentiable cannot be combined"),
        ({"relative_scale": 0.5}, "relative_scale=0.5 has no effect with isotropic-cosh, scale=1.0"),
        ({"scale": 2.0, "scale_decay": 0.5}, "scale_decay=0.5 has no effect"),
        ({"scope": "tensor", "reference": "separable-log"}, "scope='tensor' has no effect .* isotropic reference"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        NPGM(parameters(), 0.1, **options)


def test_the_scale_of_a_reference_gives_way():
    optimizer = NPGM(parameters(), 0.1, reference=npgm.Separable(npgm.Log(), 3.0), scale="auto")
    assert (optimizer.param_groups[0]["reference"], optimizer.param_groups[0]["scale"]) == ("separable-log", "auto")

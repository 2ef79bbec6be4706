"""The loss of a module, minimised in one line."""

import numpy as np
import pytest
import torch

import npgm
from npgm.torch import minimize


def problem(dtype=torch.float64):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 8, dtype=dtype), torch.nn.Tanh(), torch.nn.Linear(8, 1, dtype=dtype))
    x = torch.randn(20, 3, dtype=dtype)
    return net, lambda: (net(x) - x.prod(1, keepdim=True)).square().mean()


def test_a_module_ends_where_minimize_of_a_vector_ends():
    net, loss = problem()
    other, other_loss = problem()
    start = torch.nn.utils.parameters_to_vector(other.parameters()).detach().numpy()

    def fun(x):
        torch.nn.utils.vector_to_parameters(torch.as_tensor(x), other.parameters())
        value = other_loss()
        return value.item(), torch.cat([g.ravel() for g in torch.autograd.grad(value, [*other.parameters()])]).numpy()

    want = npgm.minimize(fun, start, maxiter=50)
    seen = []
    got = minimize(net, loss, maxiter=50, callback=lambda x: seen.append(x))
    np.testing.assert_array_equal(got.x, want.x)
    torch.testing.assert_close(torch.nn.utils.parameters_to_vector(net.parameters()).detach(), torch.as_tensor(want.x))
    assert loss().item() == got.fun < 0.1 * fun(start)[0]
    assert len(seen) == got.nit
    assert all(p.grad is None for p in net.parameters())


def test_the_memory_holds_a_thousand_pairs_of_a_small_network():
    default, same, less = (
        minimize(*problem(), tol=0.0, maxiter=150, **o).x for o in ({}, {"memory": 1000}, {"memory": 100})
    )
    np.testing.assert_array_equal(default, same)
    assert not np.array_equal(default, less)


def test_only_what_requires_a_gradient_moves_in_its_own_dtype():
    net, loss = problem(torch.float32)
    net[0].requires_grad_(False)
    net[2].to(torch.bfloat16)
    frozen = net[0].weight.clone()
    forward = net[2].forward
    net[2].forward = lambda x: forward(x.bfloat16()).float()
    before = loss().item()
    result = minimize(net, loss, maxiter=20)
    assert result.x.dtype == np.float32
    assert result.x.shape == (9,)
    assert loss().item() < before
    assert torch.equal(net[0].weight, frozen)


def test_parameters_are_what_they_were_after_an_error():
    net, loss = problem()
    before = [p.clone() for p in net.parameters()]
    calls = 0

    def fails():
        nonlocal calls
        calls += 1
        if calls == 5:
            raise RuntimeError("out of memory")
        return loss()

    with pytest.raises(RuntimeError, match="out of memory"):
        minimize(net, fails)
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))


@pytest.mark.parametrize(
    ("module", "error", "message"),
    [
        (torch.nn.Tanh(), ValueError, "no parameter that requires a gradient"),
        ([torch.zeros(2, dtype=torch.complex64, requires_grad=True)], TypeError, "must be real"),
        (
            [torch.zeros(2, requires_grad=True), torch.zeros(2, device="meta", requires_grad=True)],
            ValueError,
            "on cpu, meta",
        ),
    ],
)
def test_bad_parameters_are_named(module, error, message):
    with pytest.raises(error, match=message):
        minimize(module, lambda: torch.zeros(()))

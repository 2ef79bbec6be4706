"""Autograd through the step."""

import itertools

import pytest
import torch

import npgm
from npgm import references
from npgm.torch import NPGM
from tensors import TWO


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *itertools.product(TWO, [{}, {"decoupled_weight_decay": True}, {"nonfinite": "skip"}]),
        (TWO[0], {"scope": "tensor"}),
        (TWO[0], {"momentum_order": "before"}),
        (TWO[1], {"momentum_order": "before", "nonfinite": "skip"}),
        ("spectral-sqrt", {"decoupled_weight_decay": True}),
        ("spectral-sqrt", {"momentum_order": "before", "nesterov": True, "adjust": "rms"}),
    ],
    ids=str,
)
def test_autograd_goes_through_two_steps(name, options):
    def steps(x, y, first, second, momentum, lr):
        points = [x.clone(), y.clone()]
        optimizer = NPGM(points, lr, 0.7, name, 0.1, differentiable=True, **options)
        optimizer.state[points[0]]["momentum_buffer"] = momentum.clone()
        for gradient in (first, second):
            points[0].grad, points[1].grad = gradient * 2, gradient[0] * 3
            optimizer.step()
        return tuple(points)

    generator = torch.Generator().manual_seed(0)
    shapes = [(3,), (), (3,), (3,), (3,)]
    inputs = [torch.randn(s, dtype=torch.float64, generator=generator, requires_grad=True) for s in shapes]
    assert torch.autograd.gradcheck(steps, (*inputs, torch.tensor(0.3, dtype=torch.float64, requires_grad=True)))


# at mu = 0 there is no derivative
@pytest.mark.parametrize(
    "name", [name for name in references.names("isotropic", "separable") if npgm.reference(name).mu > 0]
)
def test_autograd_at_a_zero_gradient(name):
    phi = npgm.reference(name, scale=2.0)
    point, gradient = (torch.zeros(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    moved = point.clone()
    optimizer = NPGM([moved], 0.5, reference=phi, differentiable=True)
    moved.grad = gradient * 1
    optimizer.step()
    (derivative,) = torch.autograd.grad(moved.sum(), gradient)
    jacobian = torch.autograd.functional.jacobian(phi.precondition, torch.zeros_like(gradient))
    torch.testing.assert_close(derivative, -0.5 * jacobian.sum(0))

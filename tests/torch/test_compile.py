"""`torch.compile` of the step: the same numbers, one graph, and no recompilation when the learning rate changes."""

import shutil

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from npgm.torch import IHGD, NPGM, SHGD, SpectralGD

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method. is deprecated")  # of torch's own import of inductor
]
slow = pytest.mark.slow
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")


def frames(backend, lr, compiled_calls=3, **options):
    """Step with a learning rate that changes, compare with eager steps, and return in how many steps was compiled."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend(backend)
    torch.manual_seed(0)
    own = [torch.nn.Parameter(torch.randn(3, 4)), torch.nn.Parameter(torch.randn(5))]
    eager = [torch.nn.Parameter(p.detach().clone()) for p in own]
    optimizer, other = NPGM(own, lr, 0.9, **options), NPGM(eager, 0.1, 0.9, **options)
    step, compiled = torch.compile(optimizer.step, backend=counter), 0
    for k in range(compiled_calls):
        before = counter.frame_count
        for p, q in zip(own, eager, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        rate = 0.1 / (k + 1)
        if isinstance(lr, torch.Tensor):
            optimizer.param_groups[0]["lr"].fill_(rate)
        else:
            optimizer.param_groups[0]["lr"] = rate
        other.param_groups[0]["lr"] = rate
        step()
        other.step()
        compiled += counter.frame_count > before  # Inductor may begin anew, and be given a graph twice
    for p, q in zip(own, eager, strict=True):
        torch.testing.assert_close(p, q)
    return compiled


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "foreach"),
    [
        ({"reference": "isotropic-cosh", "weight_decay": 0.1}, False),
        ({"reference": "separable-log", "weight_decay": 0.1, "decoupled_weight_decay": True}, True),
        ({"reference": "isotropic-log", "scope": "tensor", "scale": "auto", "nonfinite": "skip"}, False),
        ({"reference": "separable-log", "limit": 1.5, "track": True}, True),
    ],
    ids=str,
)
def test_a_tensor_learning_rate_compiles_once(options, foreach):
    assert frames("eager", torch.tensor(0.1), foreach=foreach, **options) == 1


@slow
def test_a_float_learning_rate_compiles_twice():
    """A constant first, and then a symbol."""
    assert frames("eager", 0.1, foreach=True, scale="auto", weight_decay=0.1) == 2


@slow
@pytest.mark.parametrize(
    ("make", "options"),
    [
        (IHGD, {"foreach": False, "lr_like": "sgd"}),
        (SHGD, {"foreach": True, "decoupled_weight_decay": True}),
        (IHGD, {"fused": True, "momentum_order": "before"}),
        (SHGD, {"fused": True, "lr_like": "sgd", "decoupled_weight_decay": True}),
        (SpectralGD, {"scale": 0.5, "matrix_form": "transpose", "blocks": 2}),
    ],
    ids=str,
)
def test_what_schedules_change_compiles_twice(make, options):
    """The stepsize, the momentum, the decay and λ: constants first, and then symbols."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    torch.manual_seed(0)
    own = [torch.nn.Parameter(torch.randn(3, 4)), torch.nn.Parameter(torch.randn(5, 2))]
    eager = [torch.nn.Parameter(p.detach().clone()) for p in own]
    optimizers = [make(params, 0.1, 0.9, **options) for params in (own, eager)]
    schedules = [torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=20) for optimizer in optimizers]
    compiled, seen = torch.compile(optimizers[0].step, backend=counter), []
    for k in range(20):
        gradients = [torch.randn_like(p) for p in own]
        for params, optimizer, step in ((own, optimizers[0], compiled), (eager, optimizers[1], optimizers[1].step)):
            optimizer.param_groups[0].update(weight_decay=0.01 * k, scale=1.0 + 0.1 * k)
            for p, gradient in zip(params, gradients, strict=True):
                p.grad = gradient.clone()
            step()
        if k + 1 < 20:
            for schedule in schedules:
                schedule.step()
        seen.append(counter.frame_count)
    torch.testing.assert_close(own, eager)
    assert seen[2:] == [seen[2]] * 18


@needs_compiler
@slow
def test_inductor():
    options = {"reference": "isotropic-cosh", "foreach": True, "weight_decay": 0.1, "scale": "auto"}
    assert frames("inductor", torch.tensor(0.1), **options) == 1


@needs_compiler
@slow
@pytest.mark.parametrize(
    ("reference", "options"),
    [("separable-pow", {"momentum_order": "before"}), ("isotropic-cosh", {"scale": "auto"})],
    ids=str,
)
def test_inductor_calls_the_fused_steps(reference, options):
    assert frames("inductor", torch.tensor(0.1), reference=reference, fused=True, weight_decay=0.1, **options) == 1


@slow
def test_the_fused_step_itself_is_one_graph():
    """As torch's are that are not fused; the wrapper that it puts around each step breaks the graph for all of them."""
    torch._dynamo.reset()
    p, q = torch.nn.Parameter(torch.ones(5)), torch.nn.Parameter(torch.ones(5))
    optimizers = [NPGM([x], lr=0.1, momentum=0.9, fused=True) for x in (p, q)]
    for x in (p, q):
        x.grad = torch.linspace(-1, 1, 5)
    plain = NPGM.step
    while hasattr(plain, "__wrapped__"):
        plain = plain.__wrapped__
    step = torch.compile(lambda: plain(optimizers[0]), fullgraph=True, backend="eager")
    with torch.no_grad():
        for _ in range(2):
            step()
            optimizers[1].step()
    torch.testing.assert_close(p, q)

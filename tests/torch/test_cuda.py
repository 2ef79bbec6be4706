"""What only a CUDA device can show; skipped without one."""

import pytest
import torch

from npgm import references
from npgm.torch import IHGD, NPGM, SHGD, fused

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

SHAPES = [(3, 4), (), (7,), (2, 3, 4, 4)]


def parameters(device, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, dtype=dtype, generator=generator).to(device).requires_grad_() for shape in SHAPES]


def gradients(params, seed):
    generator = torch.Generator().manual_seed(seed)
    for p in params:
        p.grad = torch.randn(p.shape, dtype=p.dtype, generator=generator).to(p.device)


@pytest.mark.parametrize("name", references.names("isotropic", "separable"))
@pytest.mark.parametrize("foreach", [None, False, True])
def test_trajectory_is_that_of_the_cpu(name, foreach):
    results = []
    for device in ("cpu", "cuda"):
        params = parameters(device)
        optimizer = NPGM(params, 0.1, 0.9, name, 0.01, foreach=foreach)
        for step in range(20):
            gradients(params, step)
            optimizer.step()
        results.append([p.detach().cpu() for p in params])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scope", ["global", "tensor"])
def test_parameters_on_the_cpu_and_the_device_make_one_norm(scope):
    mixed = [p.detach().to("cuda" if i % 2 else "cpu").requires_grad_() for i, p in enumerate(parameters("cpu"))]
    alone = parameters("cpu")
    for params in (mixed, alone):
        optimizer = IHGD(params, lr=0.1, momentum=0.9, scope=scope)
        for step in range(3):
            gradients(params, step)
            optimizer.step()
    for a, b in zip(mixed, alone, strict=True):
        torch.testing.assert_close(a.detach().cpu(), b.detach())


@pytest.mark.parametrize("name", references.names("isotropic", "separable"))
@pytest.mark.parametrize("foreach", [None, False, True])
@pytest.mark.parametrize("nonfinite", ["propagate", "skip"])
def test_a_step_does_not_synchronise(name, foreach, nonfinite):
    params = parameters("cuda")
    lr = torch.tensor(0.1, device="cuda")
    optimizer = NPGM(params, lr, 0.9, name, 0.1, foreach=foreach, nonfinite=nonfinite)
    gradients(params, 0)
    optimizer.step()
    optimizer.found_inf, optimizer.grad_scale = torch.zeros((), device="cuda"), torch.ones((), device="cuda")
    try:
        torch.cuda.set_sync_debug_mode("error")
        optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("foreach", [None, False, True])
def test_the_step_replays_from_a_graph(foreach):
    captured, eager = parameters("cuda"), parameters("cuda")
    lr = torch.tensor(0.1, device="cuda")
    optimizer = IHGD(captured, lr=lr, momentum=0.9, foreach=foreach, capturable=True)
    other = IHGD(eager, lr=0.1, momentum=0.9, foreach=foreach)
    for params in (captured, eager):
        gradients(params, 0)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        optimizer.step()  # the first one makes the momentum
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    other.step()
    for rate in (0.1, 0.05, 0.01):
        lr.fill_(rate)
        other.param_groups[0]["lr"] = rate
        graph.replay()
        other.step()
    for a, b in zip(captured, eager, strict=True):
        torch.testing.assert_close(a, b)


def test_a_checkpoint_of_the_cpu_goes_on_with_the_device():
    params = parameters("cpu")
    optimizer = IHGD(params, lr=0.1, momentum=0.9)
    gradients(params, 0)
    optimizer.step()
    moved = [p.detach().cuda().requires_grad_() for p in params]
    loaded = IHGD(moved, lr=0.1)
    loaded.load_state_dict(optimizer.state_dict())
    for ps, opt in ((params, optimizer), (moved, loaded)):
        gradients(ps, 1)
        opt.step()
    for a, b in zip(moved, params, strict=True):
        torch.testing.assert_close(a.detach().cpu(), b.detach())


@pytest.mark.parametrize("optimizer_class", [IHGD, SHGD])
def test_a_whole_iteration_replays_from_a_graph(optimizer_class):
    """The gradients are made in the graph, so that their addresses are not known before it is captured."""
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).cuda())
    optimizers = [optimizer_class(model.parameters(), lr=0.1, momentum=0.9, fused=True, capturable=True) for model in models]  # fmt: skip
    inputs = torch.randn(11, 7, device="cuda")

    def iterate(model, optimizer):
        optimizer.zero_grad(set_to_none=True)
        model(inputs).square().mean().backward()
        optimizer.step()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            iterate(models[0], optimizers[0])
    torch.cuda.current_stream().wait_stream(stream)
    optimizers[0].zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        models[0](inputs).square().mean().backward()
        optimizers[0].step()
    for _ in range(3):
        iterate(models[1], optimizers[1])
    for _ in range(4):
        inputs.copy_(torch.randn(11, 7))
        graph.replay()
        iterate(models[1], optimizers[1])
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_fused_is_asked_for_and_uses_the_operators_for_cuda():
    params = parameters("cuda")
    gradients(params, 0)
    optimizer = IHGD(params, lr=0.1, fused=True)  # says what is missing, if anything is
    assert "cuda" in fused.KERNELS
    operators = {"npgm::measure", "npgm::apply_step_"}
    for one, used in ((optimizer, operators), (IHGD(params, lr=0.1), set())):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            one.step()
        assert operators & {event.key for event in profile.key_averages()} == used


@pytest.mark.parametrize("optimizer_class", [IHGD, SHGD])
def test_a_gradient_scaler_skips_what_overflows(optimizer_class):
    scaled, plain = parameters("cuda", torch.float32), parameters("cuda", torch.float32)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    optimizers = [optimizer_class(params, lr=0.1, momentum=0.9, fused=True) for params in (scaled, plain)]
    for step in range(4):
        loss = sum((p * (torch.inf if step == 2 else 1.0 + step)).sum() for p in scaled)
        optimizers[0].zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizers[0])
        scaler.update()
        if step != 2:
            for p in plain:
                p.grad = torch.full_like(p, 1.0 + step)
            optimizers[1].step()
    assert scaler.get_scale() == 512.0
    for p, q in zip(scaled, plain, strict=True):
        torch.testing.assert_close(p, q)

"""What a step refuses, before anything has changed."""

import importlib
from contextlib import nullcontext
from functools import partial

import pytest
import torch

from npgm.torch import IHGD, SHGD
from tensors import each_way, loss, parameters


def test_capture_without_capturable_is_refused(monkeypatch):
    class Stream:
        def is_capturing(self):
            return True

    params = parameters()
    loss(params).backward()
    optimizer = IHGD(params, lr=0.1)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "current_stream", Stream)
    with pytest.raises(RuntimeError, match=r"Attempting CUDA graph capture of step.* capturable is False"):
        optimizer.step()
    optimizer.param_groups[0]["capturable"] = True
    optimizer.step()


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_unsupported_gradients_are_refused_before_any_change():
    first = torch.ones(2, requires_grad=True)
    bad = torch.sparse_csr_tensor([0, 1, 2], [0, 1], [1.0, 1.0], (2, 2), check_invariants=True, requires_grad=True)
    optimizer = SHGD([{"params": [first]}, {"params": [bad]}], lr=0.1, momentum=0.9)
    first.grad = torch.ones(2)
    bad.grad = bad.detach().clone()
    with pytest.raises(RuntimeError, match=r"parameter 0 of group 1 has the layout torch\.sparse_csr"):
        optimizer.step()
    assert (first == 1).all()
    assert not optimizer.state

    flat_parameter = torch.ones(2, requires_grad=True)
    flat_parameter._is_flat_param = True  # as FSDP1 marks its shards
    flat_parameter.grad = torch.ones(2)
    with pytest.raises(RuntimeError, match="is a shard of FSDP1"):
        IHGD([flat_parameter], lr=0.1).step()
    SHGD([flat_parameter], lr=0.1).step()


def wrong_states():
    def of_another_shape(p, optimizer):
        optimizer.state[p]["momentum_buffer"] = torch.zeros(5)

    def of_another_device(p, optimizer):
        optimizer.state[p]["momentum_buffer"] = torch.zeros(3, device="meta")

    def shared(p, optimizer):
        optimizer.state[p]["momentum_buffer"] = p.data

    def expanded(p, optimizer):
        p.data = torch.ones(1).expand(3)

    def reshaped(p, optimizer):
        p.data = torch.ones(4)

    return [of_another_shape, of_another_device, shared, expanded, reshaped]


@pytest.mark.parametrize("wrong", wrong_states(), ids=lambda f: f.__name__)
@each_way
@pytest.mark.parametrize("apart", ["groups", "dtypes"])
def test_what_is_wrong_is_found_before_anything_has_moved(wrong, path, apart):
    a = torch.ones(3, dtype=torch.float64 if apart == "dtypes" else torch.float32, requires_grad=True)
    b = torch.ones(3, requires_grad=True)
    groups = [a, b] if apart == "dtypes" else [{"params": [a]}, {"params": [b]}]
    optimizer = IHGD(groups, lr=0.1, momentum=0.9, **path)
    for p in (a, b):
        p.grad = torch.ones_like(p)
    optimizer.step()
    before, momentum = a.detach().clone(), optimizer.state[a]["momentum_buffer"].clone()
    wrong(b, optimizer)
    with pytest.raises(RuntimeError, match=r"parameter 1 of group 0 |parameter 0 of group 1 "):
        optimizer.step()
    assert torch.equal(a, before)
    assert torch.equal(optimizer.state[a]["momentum_buffer"], momentum)


class Here:
    """A remote reference to what is here."""

    def __init__(self, parameter):
        self.local_value = lambda: parameter


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_the_norm_of_what_is_on_several_workers_is_refused():
    module = importlib.import_module("torch.distributed.optim.optimizer")
    worker = module._LocalOptimizer  # of DistributedOptimizer, on each of them
    p = torch.ones(3, requires_grad=True)
    for options in ({}, {"scope": "group"}, {"nonfinite": "skip", "scope": "tensor"}):
        with pytest.raises(RuntimeError, match="DistributedOptimizer steps each worker's parameters by themselves"):
            worker(IHGD, [Here(p)], lr=0.1, **options)
    worker(IHGD, [Here(p)], lr=0.1, scope="tensor")
    worker(SHGD, [Here(p)], lr=0.1)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_the_norm_of_all_is_refused_in_the_backward_pass():
    apply = importlib.import_module("torch.distributed.optim.apply_optimizer_in_backward")._apply_optimizer_in_backward
    net = torch.nn.Linear(2, 1)
    with pytest.raises(RuntimeError, match="an optimizer in the backward pass steps each parameter by itself"):
        apply(IHGD, net.parameters(), {"lr": 0.1})
    apply(SHGD, net.parameters(), {"lr": 0.1})
    before = net.weight.detach().clone()
    net(torch.ones(1, 2)).sum().backward()
    torch.testing.assert_close(net.weight.detach(), before - 0.1 * torch.ones(1, 2).asinh())


@pytest.mark.parametrize(
    ("module", "refused"),
    [("zero.stage_1_and_2", True), ("zero.stage3", True), ("bf16_optimizer", True), ("engine", False)],
)
def test_a_step_of_parts_that_deepspeed_has_flattened_is_refused(module, refused):
    scope = {"__name__": f"deepspeed.runtime.{module}"}
    exec("def step(optimizer): optimizer.step()", scope)
    p = torch.ones(3, requires_grad=True)
    p.grad = torch.ones(3)
    expected = pytest.raises(RuntimeError, match="DeepSpeed's flattened parameters") if refused else nullcontext()
    for make in (IHGD, partial(SHGD, scale="auto")):
        with expected:
            scope["step"](make([p], lr=0.1))
        assert p.equal(torch.ones(3)) == refused
    scope["step"](SHGD([p], lr=0.1))


def test_a_parameter_of_no_entries_may_have_any_strides():
    p = torch.empty(0, 2).as_strided((0, 2), (0, 0)).requires_grad_()
    p.grad = torch.zeros(0, 2)
    IHGD([p], lr=0.1, momentum=0.9).step()

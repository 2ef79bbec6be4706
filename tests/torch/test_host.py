"""What a step reads on the host, copies from it, and launches."""

import itertools
import sys
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import npgm
from npgm import references
from npgm.torch import IHGD, NPGM
from tensors import TWO, NoSynchronisation, flat, loss, parameters


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "scope", "nonfinite", "foreach", "scale"),
    [(name, None, "skip", True, 1.0) for name in references.names("isotropic", "separable")]
    + list(itertools.product(TWO, ["global", "tensor"], ["propagate", "skip"], [False, True], ["auto"]))
    + list(itertools.product(TWO[:1], ["tensor"], ["propagate", "skip"], [False, True], [1.0]))
    + list(itertools.product(TWO, [None], ["propagate", "skip"], [False, True], [1.0])),
)
def test_a_step_reads_nothing_on_the_host(name, foreach, scope, nonfinite, scale):
    params = parameters()
    options = {"foreach": foreach, "scope": scope, "nonfinite": nonfinite, "weight_decay": 0.1, "capturable": True}
    optimizer = NPGM(params, torch.tensor(0.1), 0.9, name, scale=scale, **options)
    optimizer.found_inf = torch.tensor(0.0)
    optimizer.grad_scale = torch.tensor(2.0)
    loss(params).backward()
    before = flat(params)
    with NoSynchronisation():
        optimizer.step()
    assert (flat(params) != before).all()

    with pytest.raises(AssertionError), NoSynchronisation():  # the check itself
        params[0].sum().item()


class NoHost(TorchDispatchMode):
    """Fails where a tensor on the CPU takes part, which on an accelerator would have to be copied."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs, result)) if isinstance(x, torch.Tensor)]
        assert all(x.device.type != "cpu" for x in tensors), func
        return result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "scope", "scale", "foreach"),
    [(name, None, 0.5, True) for name in references.names("isotropic", "separable")]
    + list(itertools.product(TWO, ["global", "tensor"], ["auto"], [False, True]))
    + list(itertools.product(TWO[:1], ["tensor"], [0.5, 2.0], [False, True]))
    + list(itertools.product(TWO, [None], [0.5, 2.0], [False, True])),
)
def test_a_step_copies_nothing_from_the_host(name, foreach, scope, scale):
    params = [torch.ones(3, 2, device="meta", requires_grad=True) for _ in range(2)]
    optimizer = NPGM(params, 0.1, 0.9, name, 0.1, scale=scale, foreach=foreach, scope=scope, nonfinite="skip")
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.param_groups[0]["lr"] = torch.ones(1, device="meta")
    with NoHost():
        optimizer.step()


class Launches(TorchDispatchMode):
    """Counts the operations that are not views."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "scope", "dtype", "scale"),
    list(itertools.product(TWO, ["global", "tensor"], [torch.float32, torch.bfloat16], ["auto"]))
    + list(itertools.product(TWO[:1], ["tensor"], [torch.float32, torch.bfloat16], [1.0]))
    + list(itertools.product(TWO, [None], [torch.float32, torch.bfloat16], [1.0])),
)
def test_foreach_launches_as_much_for_many_tensors_as_for_few(name, scope, dtype, scale):
    counts = []
    for n in (2, 200):
        params = [torch.ones(3, 2, dtype=dtype, requires_grad=True) for _ in range(n)]
        options = {"foreach": True, "scope": scope, "nonfinite": "skip", "weight_decay": 0.1, "scale": scale}
        optimizer = NPGM(params, torch.tensor(0.1), 0.9, name, **options)
        for p in params:
            p.grad = torch.ones_like(p)
        optimizer.step()
        with Launches() as launches:
            optimizer.step()
        counts.append(launches.count)
    assert counts[0] == counts[1] < 200


@pytest.mark.parametrize("foreach", [False, True])
def test_parameters_on_several_devices(foreach):
    # "meta" has no values to read, so this shows too that none is; a norm of both devices cannot leave it
    params = [torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True, device="meta")]
    optimizer = IHGD(params, lr=torch.tensor(0.1), momentum=0.9, foreach=foreach, scope="tensor")
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert (params[0] < 1).all()
    assert [optimizer.state[p]["momentum_buffer"].device.type for p in params] == ["cpu", "meta"]


def test_a_step_enters_at_most_five_files():
    params = parameters(torch.float32)
    loss(params).backward()
    optimizer, entered = IHGD(params, 0.1, 0.9), set()
    optimizer.step()
    own = str(Path(npgm.__file__).parent)
    sys.setprofile(lambda frame, event, argument: entered.add(frame.f_code.co_filename))
    try:
        optimizer.step()
    finally:
        sys.setprofile(None)
    assert 2 <= len({name for name in entered if name.startswith(own)}) <= 5

"""How the native module reads tensors, and what it leaves to torch."""

import copy
import ctypes

import pytest
import torch
from torch._subclasses import FakeTensorMode

from fused_steps import SHAPES, assert_close, parameters, set_gradients
from npgm import _native
from npgm.torch import IHGD, NPGM, SHGD
from npgm.torch import fused as fused_path
from npgm.torch.paths import native


@pytest.mark.parametrize(
    ("parameter", "gradient", "momentum", "together"),
    [
        (torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 3), True),
        (torch.ones(2, 3), torch.ones(2, 3), None, True),
        (torch.ones(0, 3), torch.ones(0, 3), torch.ones(0, 3), True),
        (torch.ones(3, 0), torch.ones(3, 0), None, True),
        (torch.ones(()), torch.ones(()), torch.ones(()), True),
        (torch.ones(3, 2).t(), torch.ones(3, 2).t(), torch.ones(3, 2).t(), True),
        (torch.ones(2, 1, 3)[:, 0], torch.ones(2, 3), None, True),
        (torch.ones(3, 2).t(), torch.ones(2, 3), None, False),
        (torch.ones(2, 3), torch.ones(3, 2).t(), None, False),
        (torch.ones(2, 3), torch.ones(2, 3), torch.ones(3, 2).t(), False),
        (torch.ones(2, 6)[:, ::2], torch.ones(2, 6)[:, ::2], None, False),
        (torch.ones(6), torch.ones(6), torch.ones(5), False),  # as a checkpoint may bring it
        (torch.ones(2, 3), torch.ones(2, 3), torch.ones(6), False),
        (torch.ones(2), torch.ones(2).double(), None, False),
        (torch.ones(2), torch.ones(2), torch.ones(2).double(), False),
        (torch.ones(2).half(), torch.ones(2).half(), torch.ones(2), True),
        (torch.ones(2).half(), torch.ones(2).half(), torch.ones(2).bfloat16(), False),
        (torch.ones(2), torch.ones(2).to_sparse(), None, False),
        (torch.ones(2), torch.ones(2, device="meta"), None, False),
        (torch.ones(2), torch._neg_view(torch.ones(2)), None, False),
        (torch.ones(2), torch.ones(2), torch._neg_view(torch.ones(2)), False),
        (torch._neg_view(torch.ones(2)), torch.ones(2), None, False),
        (torch.ones(2), torch._efficientzerotensor(2), None, False),
        (torch.ones(2), torch._to_functional_tensor(torch.ones(2)), None, False),
        (torch.ones(2, dtype=torch.complex64), torch.ones(2, dtype=torch.complex64), None, False),
        (torch.ones(2, dtype=torch.int32), torch.ones(2, dtype=torch.int32), None, False),
    ],
)
def test_what_can_be_gone_through_together(parameter, gradient, momentum, together):
    momentum = [] if momentum is None else [momentum]
    assert (native._EXCHANGE.tensors([parameter], [gradient], momentum) is not None) == together
    # and after one that can be
    other = torch.ones(2, dtype=parameter.dtype)
    others = [torch.ones(2, dtype=m.dtype) for m in momentum]
    if other.dtype in fused_path.DTYPES:
        groups = ([other, parameter], [other.clone(), gradient], others + momentum)
        assert (native._EXCHANGE.tensors(*groups) is not None) == together


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("make", [IHGD, SHGD])
def test_what_has_no_memory_of_its_own_is_for_torch(make, momentum):
    """Zeros that are only implied, and views that negate: as gradients of the default path, and as parameters."""
    for parameter, gradient in [
        (torch.ones(4), torch._efficientzerotensor(4)),
        (torch._neg_view(torch.ones(4)), torch.ones(4)),
    ]:
        plain = parameter.clone()
        for p, g in ((parameter, gradient), (plain, gradient.clone())):
            p.grad = g
            make([p], 0.1, momentum, weight_decay=0.1).step()
        torch.testing.assert_close(parameter, plain)
    conjugates = torch.ones(2, dtype=torch.complex64).conj()
    conjugates.grad = torch.ones(2, dtype=torch.complex64)
    with pytest.raises(RuntimeError, match=r"parameter 0 of group 0 is a view that conjugates; .*resolve_conj"):
        make([conjugates], 0.1, momentum).step()


def test_subclasses_and_lists_that_do_not_match_are_not_taken():
    class Mine(torch.Tensor):
        pass

    x = torch.ones(2)
    mine = x.as_subclass(Mine)
    for tensors in ([mine], [x], []), ([x], [mine], []), ([x], [x], [mine]):
        assert native._EXCHANGE.tensors(*tensors) is None
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
        assert native._EXCHANGE.tensors([fake], [fake], []) is None
    assert native._EXCHANGE.tensors([], [], []) is None


def test_what_is_not_a_tensor_is_not_read():
    exchange, x = native._EXCHANGE, torch.ones(2)
    assert exchange.tensors([x, x], [x], []) is None
    assert exchange.tensors([x], [x], [x, x]) is None
    assert exchange.tensors([x], [None], []) is None
    assert exchange.tensors([3.0], [x], []) is None
    with pytest.raises(TypeError):
        exchange.tensors((x,), [x], [])


def test_tables_of_functions_of_other_versions_are_passed_over():
    class Table(ctypes.Structure):
        _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("earlier", ctypes.c_void_p), ("functions", ctypes.c_void_p * 5)]  # fmt: skip

    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    lends = (ctypes.c_void_p * 5)(*[1] * 5)
    earlier, without = Table(1, 3, None, lends), Table(1, 0, None, (ctypes.c_void_p * 5)())
    for table, known in [
        (earlier, True),
        (without, False),
        (Table(2, 0, None, lends), False),
        (Table(2, 0, ctypes.addressof(earlier), lends), True),
    ]:
        given = capsule(ctypes.addressof(table), b"dlpack_exchange_api", None)
        assert (_native.core().Exchange.of(given, (torch.Tensor,)) is not None) == known
    with pytest.raises(ValueError, match="at least one type"):
        _native.core().Exchange.of(given, ())
    with pytest.raises(ValueError, match="incorrect name"):
        _native.core().Exchange.of(capsule(ctypes.addressof(earlier), b"another", None), (torch.Tensor,))


@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-cosh"])
def test_tensors_may_be_replaced_between_steps(name):
    outcomes = []
    for fused in (True, False):
        params = parameters()
        optimizer = NPGM(params, 0.05, 0.9, name, fused=fused)
        for step in range(5):
            set_gradients(params, step)
            if step == 1:  # other memory, and the former freed
                params[0].data = params[0].data.clone() + 1
            if step == 2:
                params[3].data = torch.arange(2000.0)[::2]
                params[3].grad = None
            if step == 3:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            if step == 4:
                optimizer.state[params[5]]["momentum_buffer"] = torch.ones(SHAPES[5])
            optimizer.step()
        outcomes.append(params + [optimizer.state[p]["momentum_buffer"] for p in params])
    assert_close(*outcomes, torch.float32, 1e-4)


def test_momentum_of_another_shape_is_an_error():
    p = torch.ones(1000, requires_grad=True)
    p.grad = torch.ones(1000)
    optimizer = SHGD([p], lr=0.1, momentum=0.9, fused=True)
    optimizer.state[p]["momentum_buffer"] = torch.zeros(3)
    with pytest.raises(RuntimeError):
        optimizer.step()


def test_lazy_negation_and_conjugation_of_gradients_are_resolved():
    for fused in (True, False):
        z = torch.tensor([1 + 2j, 3 - 4j], requires_grad=True)
        z.grad = torch.tensor([1 + 2j, 3 - 4j]).conj()
        SHGD([z], lr=1.0, fused=fused).step()
        torch.testing.assert_close(torch.view_as_real(z.detach()), torch.tensor([[1.0, 2], [3, -4]]) - torch.tensor([[1.0, -2], [3, 4]]).asinh())  # fmt: skip
        p = torch.zeros(2, requires_grad=True)
        p.grad = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
        assert p.grad.is_neg()
        SHGD([p], lr=1.0, fused=fused).step()
        torch.testing.assert_close(p.detach(), -torch.tensor([-2.0, 4]).asinh())

"""The norm of many tensors as one, without overflow; over shards it is tested in test_distributed.py."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from npgm.torch import norms


class Plain:
    """Tensors that are not sharded, with one norm."""

    process_groups = ()

    def __init__(self, *tensors):
        self.values = torch.cat([t.reshape(-1) for t in tensors])

    def largest(self):
        return torch.cat([self.values.abs(), self.values.new_zeros(1)]).amax().reshape(1)

    def norm(self, m):
        return torch.linalg.vector_norm(self.values / m).reshape(1)


def scaled_norms(*units):
    units = [[Plain(t) for t in unit] for unit in units]
    flat = [plain for unit in units for plain in unit]
    maxima = iter(norms.largest(flat))
    return norms.scaled_norms(units, [[next(maxima) for _ in unit] for unit in units])


DTYPES = [torch.float32, torch.float64]
tensors = st.builds(
    lambda values, dtype: torch.tensor(values, dtype=dtype),
    st.lists(st.floats(-(2.0**127), 2.0**127, width=32, allow_subnormal=False), max_size=4),
    st.sampled_from(DTYPES),
)


@given(units=st.lists(st.lists(tensors, min_size=1, max_size=3), max_size=3))
def test_norms_are_those_of_all_entries_together(units):
    results = scaled_norms(*units)
    for unit, (m, q) in zip(units, results, strict=True):
        want = math.hypot(*[value for t in unit for value in t.tolist()])
        assert m.item() * q.item() == pytest.approx(want, rel=1e-5, abs=1e-44)
        assert m.dtype == max((t.dtype for t in unit), key=lambda d: d.itemsize)
        assert m.item() == max([abs(v) for t in unit for v in t.tolist() if v != 0], default=1.0)


def test_the_widest_dtype_does_not_spoil_the_others():
    for size in (1e300, 1e-300):
        ((m, q),) = scaled_norms(
            [torch.full((2,), size, dtype=torch.float64), torch.tensor([0.0, 1e-30]), torch.zeros(2)]
        )
        assert q.item() * m.item() == pytest.approx(math.hypot(size, size, 1e-30))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_is_in_the_norm_and_in_no_scale(value):
    (maximum,) = norms.largest([Plain(torch.tensor([1.0, value]))])
    assert not torch.isfinite(maximum).any()
    ((m, q),) = scaled_norms([torch.tensor([1.0, value]), torch.ones(2)])
    assert m.item() == 1
    assert not torch.isfinite(q).any()


def test_working_dtypes():
    low = [torch.float16, torch.bfloat16, torch.float32]
    assert {norms.working_dtype(dtype) for dtype in low} == {torch.float32}
    assert norms.working_dtype(torch.float64) == torch.float64
    assert norms.working_dtype(torch.complex64) == torch.complex64

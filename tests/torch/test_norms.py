"""The norm of many tensors as one, without overflow; over shards it is tested in test_distributed.py."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from npgm.torch import norms


def norm(*tensors):
    """The norm of the vector that tensors make up."""
    values = [t.reshape(-1) for t in tensors]
    largest = [norms.largest_of(t) for t in values]
    ratios = [torch.linalg.vector_norm(t / norms.divisor(m)).reshape(1) for t, m in zip(values, largest, strict=True)]
    result = norms.joint([norms.Norm(*pair) for pair in zip(largest, ratios, strict=True)])
    return norms.divisor(result.largest), result.ratio


DTYPES = [torch.float32, torch.float64]
tensors = st.builds(
    lambda values, dtype: torch.tensor(values, dtype=dtype),
    st.lists(st.floats(-(2.0**127), 2.0**127, width=32, allow_subnormal=False), max_size=4),
    st.sampled_from(DTYPES),
)


@given(parts=st.lists(tensors, max_size=3))
def test_the_norm_is_that_of_all_entries_together(parts):
    m, q = norm(*parts)
    entries = [value for t in parts for value in t.tolist()]
    assert m.item() * q.item() == pytest.approx(math.hypot(*entries), rel=1e-5, abs=1e-44)
    assert m.dtype == max((t.dtype for t in parts), key=lambda d: d.itemsize, default=torch.float32)
    assert m.item() == max([abs(v) for v in entries if v != 0], default=1.0)


def test_the_widest_dtype_does_not_spoil_the_others():
    for size in (1e300, 1e-300):
        m, q = norm(torch.full((2,), size, dtype=torch.float64), torch.tensor([0.0, 1e-30]), torch.zeros(2))
        assert q.item() * m.item() == pytest.approx(math.hypot(size, size, 1e-30))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_is_in_the_norm_and_in_no_divisor(value):
    m, q = norm(torch.tensor([1.0, value]), torch.ones(2))
    assert m.item() == 1
    assert not torch.isfinite(q).any()


def test_working_dtypes():
    low = [torch.float16, torch.bfloat16, torch.float32]
    assert {norms.working_dtype(dtype) for dtype in low} == {torch.float32}
    assert norms.working_dtype(torch.float64) == torch.float64
    assert norms.working_dtype(torch.complex64) == torch.complex64

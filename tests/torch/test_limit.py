"""`limit` on every path, against a loop in NumPy written from docs/spikes.md."""

import math

import numpy as np
import pytest
import torch

import auto_scale
from npgm.torch import NPGM, SNGD, SpectralGD
from tensors import NoSynchronisation, each_way, step, through_file

SHAPES = [(3, 2), (4,), (), (0, 2), (2, 3, 2)]
LIFTS = ["isotropic-cosh", "separable-log", "spectral-sqrt"]


def parameters(dtype=torch.float64):
    return [torch.ones(shape, dtype=dtype, requires_grad=True) for shape in SHAPES]


def limited(gradients, vectors, limit):
    """Yield gradients of which none is longer than ``limit`` times the running root mean square of its vector's."""
    states = [(0.0, 0.0)] * len(vectors)
    for tensors in gradients:
        cut = list(tensors)
        for k, vector in enumerate(vectors):
            s, w = states[k]
            r = math.hypot(*(np.linalg.norm(tensors[i]) for i in vector))
            if 0.0 < r < math.inf:
                most = limit * s / math.sqrt(w) if w > 0.0 else math.inf
                for i in vector:
                    cut[i] = tensors[i] * min(1.0, most / r)
                r = min(r, most)
                states[k] = math.sqrt(0.99 * s**2 + 0.01 * r**2), 0.99 * w + 0.01
        yield cut


@pytest.mark.slow
@each_way
@pytest.mark.parametrize("options", [{}, {"momentum_order": "before", "scale": "auto"}], ids=str)
@pytest.mark.parametrize("scope", ["global", "tensor"])
@pytest.mark.parametrize("name", LIFTS)
def test_limit_is_the_definition(name, scope, options, path):
    """Of an optimizer with the limit, and one without that is given the gradients as they are cut."""
    outcomes = []
    vectors = [range(5)] if scope == "global" else [[i] for i in range(5)]
    scope_of = {"scope": scope} if "isotropic" in name or "scale" in options else {}
    gradients = list(auto_scale.gradients(SHAPES, 12))
    for limit, given in ((2.0, gradients), (None, limited(gradients, vectors, 2.0))):
        params = parameters()
        own = {"limit": limit, "scope": scope} if limit else scope_of
        optimizer = NPGM(params, 0.1, 0.9, name, weight_decay=0.1, **options, **own, **path)
        for tensors in given:
            step(optimizer, params, tensors)
        outcomes.append(params)
    torch.testing.assert_close(*outcomes, rtol=1e-11, atol=1e-12)


@each_way
@pytest.mark.parametrize("name", LIFTS)
def test_one_spike_leaves_a_bounded_trace(name, path):
    """In float32, by a gradient whose square overflows, under a loss scale."""
    p = torch.zeros(3, 2)
    optimizer = NPGM([p], 1.0, 0.9, name, momentum_order="before", limit=10.0, **path)
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(4.0), torch.tensor(0.0)
    for size in (4e-3, 4e-3, 1e30, 0.0, 4e-3):
        step(optimizer, [p], [np.full((3, 2), size)])
    norm = float(optimizer.state[p]["momentum_buffer"].norm()) / (1e-3 * 6**0.5)
    means = [0.0]
    for size in (1.0, 1.0, 10.0, 0.0, 1.0):
        means.append(0.9 * means[-1] + 0.1 * size)
    assert norm == pytest.approx(means[-1], rel=1e-5)


@each_way
def test_what_is_skipped_does_not_count(path):
    p = torch.zeros(3)
    optimizer = SNGD([p], 0.1, 0.9, limit=2.0, nonfinite="skip", **path)
    step(optimizer, [p], [np.ones(3)])
    before = through_file(optimizer.state_dict())
    step(optimizer, [p], [np.array([1.0, np.inf, 1.0])])
    optimizer.found_inf = torch.ones(())
    step(optimizer, [p], [np.full(3, 7.0)])
    torch.testing.assert_close(optimizer.state_dict()["state"], before["state"], rtol=0, atol=0)


@pytest.mark.parametrize("scope", ["global", "group", "tensor"])
def test_limit_survives_a_checkpoint(scope):
    options = {"limit": 2.0, "scope": scope}

    def make(params):
        return NPGM([{"params": params[:2]}, {"params": params[2:]}], 0.1, 0.9, "isotropic-cosh", **options)

    gradients = list(auto_scale.gradients(SHAPES, 8))
    ps = parameters()
    optimizer = make(ps)
    for tensors in gradients[:4]:
        step(optimizer, ps, tensors)
    qs = [p.detach().clone().requires_grad_() for p in ps]
    other = make(qs)
    other.load_state_dict(through_file(optimizer.state_dict()))
    for tensors in gradients[4:]:
        step(optimizer, ps, tensors)
        step(other, qs, tensors)
    torch.testing.assert_close(ps, qs, rtol=0, atol=0)
    states = [optimizer.state[p]["limit_rms"] for p in ps]
    number = {"global": 1, "group": 2, "tensor": 5}[scope]
    assert len({id(state) for state in states}) == number


def test_limit_waits_for_nothing():
    ps = parameters(torch.float32)
    for name in ("isotropic-log", "separable-log"):
        for scope in ("global", "tensor"):
            optimizer = NPGM(ps, 0.1, 0.9, name, limit=2.0, scope=scope, foreach=True)
            with NoSynchronisation():
                step(optimizer, ps, [np.ones(shape) for shape in SHAPES])


@pytest.mark.parametrize("limit", [1.0, 0.5, -1.0, math.inf, math.nan])
def test_a_limit_is_a_number_beyond_one(limit):
    with pytest.raises(ValueError, match="limit must be"):
        SpectralGD([torch.ones(2, 2)], 0.1, limit=limit)


def test_limit_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match="limit and differentiable"):
        NPGM([torch.ones(2, 2)], 0.1, limit=10.0, differentiable=True)
    with pytest.raises(ValueError, match=r"scope='group' has no effect with separable-log.*a limit"):
        SNGD([torch.ones(2)], 0.1, scope="group")


def test_groups_with_other_limits_have_other_means():
    ps = [torch.zeros(2, dtype=torch.float64) for _ in range(2)]
    groups = [{"params": [ps[0]], "limit": 2.0}, {"params": [ps[1]], "limit": 5.0}]
    optimizer = NPGM(groups, 1.0, reference="isotropic-quad")
    step(optimizer, ps, 2 * [np.ones(2)])
    before = [p.clone() for p in ps]
    step(optimizer, ps, 2 * [np.full(2, 1e3)])
    for p, q, limit in zip(ps, before, (2.0, 5.0), strict=True):
        torch.testing.assert_close(q - p, torch.full((2,), limit, dtype=torch.float64))

"""`limit` of `npgm.optax`: it is that of `npgm.torch`, and stands before other transformations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import auto_scale
import npgm.optax
from npgm.optax import limit_by_running_norm

SHAPES = [(3, 2), (4,), (), (0, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("order", ["after", "before"])
@pytest.mark.parametrize(
    ("name", "scope"), [("isotropic-cosh", None), ("separable-log", None), ("separable-log", "global")]
)
def test_limit_is_that_of_torch(name, scope, order):
    torch = pytest.importorskip("torch")
    from npgm.torch import NPGM

    options = {"momentum_order": order, "limit": 2.0, "scope": scope}
    transformation = npgm.optax.npgm(0.1, 0.9, name, 0.1, **options)
    xs = [jnp.ones(shape, jnp.float64) for shape in SHAPES]
    params = [torch.ones(shape, dtype=torch.float64, requires_grad=True) for shape in SHAPES]
    optimizer = NPGM(params, 0.1, 0.9, name, 0.1, **options)
    state, update = transformation.init(xs), jax.jit(transformation.update)
    for tensors in auto_scale.gradients(SHAPES, 10):
        updates, state = update([jnp.asarray(t) for t in tensors], state, xs)
        xs = optax.apply_updates(xs, updates)
        for p, g in zip(params, tensors, strict=True):
            p.grad = torch.as_tensor(g)
        optimizer.step()
        for x, p in zip(xs, params, strict=True):
            np.testing.assert_allclose(x, p.detach().numpy(), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize(("scope", "norm"), [("tensor", 5.0), ("global", 13.0)])
def test_a_spike_is_cut_before_any_transformation(scope, norm, dtype):
    usual = {"a": jnp.array([3.0, -4.0], dtype), "b": jnp.array([[12.0]], dtype)}
    transformation = optax.chain(limit_by_running_norm(10.0, scope=scope), optax.trace(0.0))
    state = transformation.init(usual)
    for _ in range(3):
        updates, state = transformation.update(usual, state)
        assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), updates, usual))
    spike = usual | {"a": 1e30 * usual["a"]}
    updates, state = transformation.update(spike, state)
    assert updates["a"].dtype == dtype
    np.testing.assert_allclose(np.linalg.norm(np.asarray(updates["a"], np.float64)), 10 * norm, rtol=1e-2)


def test_what_is_refused():
    with pytest.raises(ValueError, match="limit must be greater than 1"):
        npgm.optax.sngd(0.1, limit=1.0)
    with pytest.raises(ValueError, match="unknown scope 'group'"):
        limit_by_running_norm(10.0, scope="group")

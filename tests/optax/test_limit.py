"""`limit` of `npgm.optax` before other transformations."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import npgm.optax
from npgm.optax import limit_by_running_norm


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

"""``prox`` of `npgm.optax` against that of `npgm.torch`."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

import npgm.optax
from npgm.proximal import L1, Box, SpectralBall, Sphere
from npgm.torch import NPGM

SHAPES = {"b": (5,), "w": (3, 4)}


def values(t):
    rng = np.random.default_rng(t)
    return {name: rng.normal(size=shape) for name, shape in SHAPES.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "prox"),
    [
        ("isotropic-cosh", {}, L1(0.3)),
        ("isotropic-log", {"momentum": 0.5}, {"w": L1(0.3), "b": None}),
        ("isotropic-log", {"scope": "tensor"}, Sphere(0.5)),
        ("separable-cosh", {"momentum": 0.9, "lr_like": "sgd"}, L1(0.1)),
        ("separable-log", {"weight_decay": 0.1, "decoupled_weight_decay": True}, Box(-0.2, 0.2)),
        ("spectral-sqrt", {"adjust": "rms"}, SpectralBall(0.7)),
    ],
)
def test_steps_are_those_of_torch(name, options, prox):
    with jax.enable_x64(True):
        optimizer = npgm.optax.npgm(
            lambda t: jnp.where(t == 0, 0.0, 0.2 / (1.0 + t)), reference=name, scale=0.5, prox=prox, **options
        )
        params = jax.tree.map(jnp.asarray, values(100))
        own = {k: torch.nn.Parameter(torch.tensor(v)) for k, v in values(100).items()}
        groups = [{"params": [p], "prox": prox[k] if isinstance(prox, dict) else prox} for k, p in own.items()]
        theirs = NPGM(groups, lr=0.2, reference=name, scale=0.5, **options)
        state, update = optimizer.init(params), jax.jit(optimizer.update)
        for t in range(4):
            g = values(t)
            updates, state = update(jax.tree.map(jnp.asarray, g), state, params)
            params = optax.apply_updates(params, updates)
            for k, p in own.items():
                p.grad = torch.tensor(g[k])
            for group in theirs.param_groups:
                group["lr"] = 0.0 if t == 0 else 0.2 / (1.0 + t)
            theirs.step()
    for k, p in own.items():
        np.testing.assert_allclose(params[k], p.detach(), rtol=1e-9, atol=1e-12)


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match=r"prox must contain functions of npgm\.proximal"):
        npgm.optax.shgd(0.1, prox=0.1)
    with pytest.raises(ValueError, match="prox needs a scale that is a number, not 'auto'"):
        npgm.optax.shgd(0.1, scale="auto", prox=L1())
    optimizer = npgm.optax.shgd(0.1, prox=L1())
    with pytest.raises(ValueError, match="prox needs the parameters"):
        optimizer.update(jnp.ones(2), optimizer.init(jnp.ones(2)))


def test_small_weights_become_zero():
    optimizer = npgm.optax.shgd(0.1, prox=L1(2.0))
    x = jnp.asarray([0.05, 3.0])
    updates, _ = optimizer.update(jnp.zeros(2), optimizer.init(x), x)
    assert (optax.apply_updates(x, updates) == 0).tolist() == [True, False]

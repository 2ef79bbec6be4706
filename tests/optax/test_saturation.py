"""The saturation in the state of `npgm.optax`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import npgm.optax

SHAPES = [(3, 2), (4,), (0, 2)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"scale": 2.0}, {"scale": "auto", "relative_scale": 0.3, "scope": "tensor"}], ids=str
)
@pytest.mark.parametrize("order", ["after", "before"])
@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-log", "spectral-sqrt"])
def test_saturation_is_that_of_torch(name, order, options):
    torch = pytest.importorskip("torch")
    from npgm.torch import NPGM

    if not name.startswith("isotropic") and options["scale"] != "auto":
        options = {key: value for key, value in options.items() if key != "scope"}
    transformation = npgm.optax.npgm(0.1, 0.9, name, momentum_order=order, track=True, **options)
    shapes, rng = SHAPES[:2] if name.startswith("spectral") else SHAPES, np.random.default_rng(0)
    xs = [jnp.zeros(shape, jnp.float64) for shape in shapes]
    params = [torch.zeros(shape, dtype=torch.float64) for shape in shapes]
    optimizer = NPGM(params, 0.1, 0.9, name, momentum_order=order, track=True, **options)
    state, update = transformation.init(xs), jax.jit(transformation.update)
    assert optax.tree_utils.tree_get(state, "saturation") == 0
    for size in (0.1, 1.0, 100.0):
        gradients = [size * rng.standard_normal(shape) for shape in shapes]
        _, state = update([jnp.asarray(g) for g in gradients], state)
        for p, g in zip(params, gradients, strict=True):
            p.grad = torch.as_tensor(g)
        optimizer.step()
        np.testing.assert_allclose(
            optax.tree_utils.tree_get(state, "saturation"), optimizer.saturation[0].value, rtol=1e-9
        )


def test_saturation_of_nothing_and_of_plain_gradient_descent():
    for name, y, want in (("separable-log", 0.0, 0.0), ("isotropic-quad", 3.0, 0.0), ("separable-log", 1e30, 1.0)):
        transformation = npgm.optax.scale_by_preconditioner(name, 2.0, track=True)
        _, state = transformation.update([jnp.full(2, y)], transformation.init([jnp.zeros(2)]))
        np.testing.assert_allclose(state.saturation, want, atol=1e-6)

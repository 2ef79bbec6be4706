"""The steps of `npgm.optax`, their limit and their saturation are those of `npgm.torch`."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

import auto_scale
import npgm.optax
from npgm.torch import NPGM
from tensors import step

TENSORS, MATRICES = [(3, 2), (4,), (), (0, 2)], [(2, 3, 4), (4,), (7, 2)]
BEFORE = {"momentum_order": "before"}
OF_EACH_TENSOR = {"scale": "auto", "relative_scale": 0.3, "scope": "tensor", "track": True}
FOLLOWING = {"scale": "auto", "relative_scale": 0.5, "scale_decay": 0.9, **BEFORE}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("isotropic-cosh", {"limit": 2.0}),
        ("isotropic-cosh", {"limit": 2.0, **BEFORE}),
        ("isotropic-cosh", {"scale": 2.0, "track": True, **BEFORE}),
        ("isotropic-cosh", OF_EACH_TENSOR),
        ("isotropic-cosh", FOLLOWING),
        ("separable-log", {"limit": 2.0, **BEFORE}),
        ("separable-log", {"limit": 2.0, "scope": "global"}),
        ("separable-log", {"scale": 2.0, "track": True}),
        ("separable-log", OF_EACH_TENSOR | BEFORE),
        ("separable-log", FOLLOWING),
        ("spectral-sqrt", {"scale": 2.0, "track": True, **BEFORE}),
        ("spectral-sqrt", OF_EACH_TENSOR),
        ("spectral-sqrt", {"scale": "auto", "relative_scale": 0.3, "scale_decay": 0.0, "adjust": "rms", **BEFORE}),
        ("spectral-sqrt", {"scale": 0.5, "adjust": "aspect", "nesterov": True}),
        ("spectral-sqrt", {"scale": "auto", "nesterov": True, **BEFORE}),
        ("spectral-sqrt", {"scale": "auto", "relative_scale": 0.1, "scale_decay": 0.0, "adjust": "rms", "blocks": 2}),
        ("spectral-sqrt", {"scale": 0.5, "adjust": "aspect", "blocks": 2}),
    ],
    ids=str,
)
def test_steps_are_those_of_torch(name, options):
    spectral, rng = name.startswith("spectral"), np.random.default_rng(0)
    shapes, form = (MATRICES, {"matrix_form": "stack"}) if spectral else (TENSORS, {})

    def turned(t):  # the last axis is the output's here and the first one there
        return t.mT if spectral and t.ndim > 1 else t

    xs = [jnp.asarray(rng.standard_normal(shape)) for shape in shapes]
    params = [turned(torch.tensor(np.asarray(x))).requires_grad_() for x in xs]
    transformation = npgm.optax.npgm(0.1, 0.9, name, 0.1, **options)
    optimizer = NPGM(params, 0.1, 0.9, name, 0.1, **form, **options)
    state, update = transformation.init(xs), jax.jit(transformation.update)
    normal = ([size * rng.standard_normal(shape) for shape in shapes] for size in (0.1, 1.0, 100.0, 1.0, 3.0))
    for gradients in normal if spectral else auto_scale.gradients(shapes, 10):
        updates, state = update([jnp.asarray(g) for g in gradients], state, xs)
        xs = optax.apply_updates(xs, updates)
        step(optimizer, params, [turned(torch.tensor(g)) for g in gradients])
        for x, p in zip(xs, params, strict=True):
            np.testing.assert_allclose(x, turned(p.detach()).numpy(), rtol=1e-10, atol=1e-12)
        if "track" in options:
            got = optax.tree_utils.tree_get(state, "saturation")
            np.testing.assert_allclose(got, optimizer.saturation[0].value, rtol=1e-9)

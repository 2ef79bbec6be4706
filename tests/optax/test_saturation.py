"""The saturation in the state of `npgm.optax`."""

import jax.numpy as jnp
import numpy as np

import npgm.optax


def test_saturation_of_nothing_and_of_plain_gradient_descent():
    for name, y, want in (("separable-log", 0.0, 0.0), ("isotropic-quad", 3.0, 0.0), ("separable-log", 1e30, 1.0)):
        transformation = npgm.optax.scale_by_preconditioner(name, 2.0, track=True)
        _, state = transformation.update([jnp.full(2, y)], transformation.init([jnp.zeros(2)]))
        np.testing.assert_allclose(state.saturation, want, atol=1e-6)

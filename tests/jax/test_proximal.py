"""Anisotropic proximal steps under JAX's transformations: one compiled loop, differentiated as an implicit function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npgm
from npgm import proximal

Y = np.array([3.0, -1.0, 0.2])
CASES = {
    "L1": (proximal.L1(0.3), "isotropic-cosh", 1.0),
    "scalar": (proximal.Scalar(jnp.cosh, jnp.sinh), "separable-log", 4.0),
    # one root in the equation of another
    "L2": (proximal.L2(0.3), "separable-cosh", 1.0),
    "ball": (proximal.Ball(1.0), "separable-cosh", 1.0),
}
pytestmark = pytest.mark.slow  # each compiles


def stepper(name):
    g, phi, scale = CASES[name]
    return lambda y, lr=0.5: g.step(npgm.reference(phi, scale=scale), y, lr)


@pytest.mark.parametrize("name", CASES)
def test_a_compiled_step_is_that_of_numpy(name):
    step = stepper(name)
    compiled = jax.jit(step)
    for lr in (0.01, 0.5, 40.0):
        np.testing.assert_allclose(compiled(jnp.asarray(Y), lr), step(Y, lr), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", CASES)
def test_a_batch_of_steps_is_each_of_them(name):
    step, lrs = stepper(name), np.array([0.01, 0.5, 40.0])
    got = jax.jit(jax.vmap(step, in_axes=(None, 0)))(jnp.asarray(Y), jnp.asarray(lrs))
    np.testing.assert_allclose(got, np.stack([step(Y, lr) for lr in lrs]), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
@pytest.mark.parametrize("name", CASES)
def test_derivatives_of_a_step_are_its_differences(name, mode):
    step = stepper(name)
    h = 1e-6
    want = np.stack([(step(Y + h * e) - step(Y - h * e)) / (2.0 * h) for e in np.eye(3)], axis=-1)
    np.testing.assert_allclose(jax.jit(mode(step))(jnp.asarray(Y)), want, rtol=1e-6, atol=1e-8)


def test_the_search_is_a_loop_of_the_program():
    text = str(jax.make_jaxpr(stepper("L1"))(jnp.asarray(Y)))
    assert text.count(" log1p ") < 10  # each evaluation of a hundred has several

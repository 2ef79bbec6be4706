"""What optax asks of an optimizer, of each of ours; one line of `OPTIMIZERS` adds another."""

from functools import partial

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest

import npgm.optax

OPTIMIZERS = {
    "ihgd-before": partial(npgm.optax.ihgd, learning_rate=0.1, momentum=0.9, momentum_order="before"),
    "shgd-decay": partial(npgm.optax.shgd, learning_rate=0.1, momentum=0.5, weight_decay=1e-4),
    "ngd-decoupled": partial(
        npgm.optax.ngd, learning_rate=0.3, momentum=0.5, weight_decay=1e-4, decoupled_weight_decay=True
    ),
    "sngd-auto": partial(npgm.optax.sngd, learning_rate=0.1, momentum=0.5, scale="auto"),
    "npgm-tensor-auto": partial(
        npgm.optax.npgm, learning_rate=0.1, reference="isotropic-sqrt", scope="tensor", scale="auto", relative_scale=2.0
    ),
}

each_optimizer = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)


def params_of(dtype):
    return {
        "w": jnp.asarray([[1.0, -2.0], [0.5, 3.0]], dtype),
        "b": (jnp.asarray(2.0, dtype), jnp.zeros((0, 2), dtype)),
    }


def gradients_of(params, size=1.0):
    return jax.tree.map(lambda p: (size * (p + 1)).astype(p.dtype), params)


def run(optimizer, params, steps=3, update=None, **extra):
    state = optimizer.init(params)
    for _ in range(steps):
        updates, state = (update or optimizer.update)(gradients_of(params), state, params, **extra)
        params = optax.apply_updates(params, updates)
    return params, state


def assert_equal(got, want, rtol=1e-6):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=rtol, atol=rtol)


def rosenbrock(x):
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


@pytest.mark.slow
@each_optimizer
@pytest.mark.parametrize("problem", ["parabola", "rosenbrock"])
def test_it_minimises(make, problem):
    function, start, target, lr, steps = {
        "parabola": (lambda x: 0.5 * jnp.sum((x - jnp.array([1.0, -1.0])) ** 2), [-1.0, 10.0], [1.0, -1.0], 0.1, 2000),
        "rosenbrock": (rosenbrock, [0.0, 0.0], [1.0, 1.0], 0.003, 20_000),
    }[problem]
    optimizer = make(learning_rate=optax.cosine_decay_schedule(lr, steps))

    def step(carry, _):
        x, state = carry
        updates, state = optimizer.update(jax.grad(function)(x), state, x)
        return (optax.apply_updates(x, updates), state), None

    x = jnp.array(start)
    (x, _), _ = jax.lax.scan(step, (x, optimizer.init(x)), length=steps)
    np.testing.assert_allclose(x, target, atol=1e-2)


def dtypes(pytree):
    return [leaf.dtype for leaf in jax.tree.leaves(pytree)]


@each_optimizer
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float64, "mixed"])
def test_dtypes_and_the_structure_of_the_state_are_kept(make, dtype):
    params = {"a": jnp.ones(2, jnp.bfloat16), "b": jnp.ones(3, jnp.float32), "c": jnp.ones((), jnp.float64)}
    params = params if dtype == "mixed" else params_of(dtype)
    optimizer = make()
    with jax.numpy_dtype_promotion("strict"):
        new, state = jax.eval_shape(lambda params: run(optimizer, params, steps=1), params)
    first = optimizer.init(params)
    assert dtypes(new) == dtypes(params)
    assert dtypes(state) == dtypes(first)
    assert jax.tree.structure(state) == jax.tree.structure(first)


@pytest.mark.slow
@pytest.mark.parametrize("make", [OPTIMIZERS[name] for name in ("ihgd-before", "ngd-decoupled", "sngd-auto")])
def test_jit_changes_nothing(make):
    optimizer, params = make(), params_of(jnp.bfloat16)
    got, want = (run(optimizer, params, update=update)[0] for update in (jax.jit(optimizer.update), optimizer.update))
    assert_equal(got, want, 8 * float(jnp.finfo(jnp.bfloat16).eps))


@pytest.mark.slow
@pytest.mark.parametrize("make", [OPTIMIZERS[name] for name in ("ihgd-before", "sngd-auto")])
def test_leaves_that_are_not_arrays_of_jax(make):
    optimizer = make()
    want = run(optimizer, {"a": jnp.float32(2.0), "b": jnp.ones(3, jnp.bfloat16)}, steps=1)[0]
    params = {"a": 2.0, "b": np.ones(3, ml_dtypes.bfloat16)}
    gradients = {"a": 3.0, "b": np.full(3, 2.0, ml_dtypes.bfloat16)}
    updates, _ = optimizer.update(gradients, optimizer.init(params), params)
    new = optax.apply_updates(params, updates)
    np.testing.assert_allclose(float(new["a"]), float(want["a"]), rtol=1e-6)
    assert new["b"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(new["b"], want["b"])


@pytest.mark.slow
@each_optimizer
def test_extra_arguments_pass_through(make):
    assert isinstance(make(), optax.GradientTransformationExtraArgs)
    params = params_of(jnp.float32)
    assert_equal(run(make(), params, value=jnp.array(1.0), grad=None)[0], run(make(), params)[0])


def test_the_step_can_be_cut_at_a_plateau():
    chained = optax.chain(npgm.optax.ihgd(0.1, 0.9), optax.contrib.reduce_on_plateau(patience=2))
    run(chained, params_of(jnp.float32), update=jax.jit(chained.update), value=jnp.array(1.0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "scale", "momentum", "weight_decay"),
    [
        (npgm.optax.ihgd, 2.0, None, 0.0),
        (npgm.optax.ihgd, 2.0, 0.9, 0.1),
        (npgm.optax.shgd, 2.0, 0.0, 0.1),
        (npgm.optax.sngd, "auto", 0.9, 0.0),
    ],
)
def test_injection_changes_neither_numbers_nor_structure(make, momentum, scale, weight_decay):
    options = {"learning_rate": 0.1, "momentum": momentum, "scale": scale, "weight_decay": weight_decay}
    params = params_of(jnp.float32)
    want, state = run(make(**options), params)
    injected = optax.inject_hyperparams(make)(**options)
    got, injected_state = run(injected, params, update=jax.jit(injected.update))
    assert_equal(got, want)
    assert_equal(injected_state.inner_state, state)
    injected_state.hyperparams["learning_rate"] = jnp.zeros(())  # as one sets it during a run
    updates, _ = injected.update(gradients_of(params), injected_state, params)
    assert not any(np.asarray(u).any() for u in jax.tree.leaves(updates))


@pytest.mark.slow
@each_optimizer
def test_a_state_that_was_restored_with_lists_for_tuples(make):
    def listed(node):
        if isinstance(node, tuple):
            return [listed(child) for child in node] if type(node) is tuple else type(node)(*map(listed, node))
        return node

    optimizer = make()
    params = params_of(jnp.float32)
    _, state = run(optimizer, params)
    assert isinstance(state, tuple)
    want, after = optimizer.update(gradients_of(params), state, params)
    got, after_list = optimizer.update(gradients_of(params), listed(state), params)
    assert_equal(got, want)
    assert_equal(jax.tree.leaves(after_list), jax.tree.leaves(after))


@pytest.mark.slow
@pytest.mark.parametrize("make", [OPTIMIZERS[name] for name in ("ihgd-before", "sngd-auto", "npgm-tensor-auto")])
def test_it_maps_over_a_batch_of_models(make):
    optimizer = make()
    params = params_of(jnp.float32)
    batch = jax.tree.map(lambda p: jnp.stack([p, 2 * p, -p]), params)
    states = jax.vmap(optimizer.init)(batch)
    updates, _ = jax.jit(jax.vmap(optimizer.update))(gradients_of(batch), states, batch)
    for i in range(3):
        one = jax.tree.map(lambda p, i=i: p[i], batch)
        want, _ = optimizer.update(gradients_of(one), optimizer.init(one), one)
        assert_equal(jax.tree.map(lambda u, i=i: u[i], updates), want)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "convert"),
    [
        *((make, jnp.array) for make in OPTIMIZERS.values()),
        *((OPTIMIZERS["shgd-decay"], convert) for convert in (np.float32, ml_dtypes.bfloat16, np.array)),
    ],
)
def test_numbers_may_be_scalars_of_any_kind(make, convert):
    params = params_of(jnp.float32)
    want, state = run(make(learning_rate=0.5, weight_decay=0.25), params)
    got, got_state = run(make(learning_rate=convert(0.5), weight_decay=convert(0.25)), params)
    assert_equal(got, want)
    assert_equal(got_state, state)

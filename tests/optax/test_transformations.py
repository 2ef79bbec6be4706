"""The optax transformations against the array-API definition and the PyTorch optimizer, and as optax wants them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

import npgm
import npgm.torch
from npgm import references
from npgm.optax import npgm as make
from npgm.optax import scale_by_preconditioner

FEW = [name for name in references.names() if name.endswith(("-cosh", "-pow"))]
"""The others are held to the definition on JAX's arrays in tests/contract."""
SHAPES = {"matrix": (3, 4), "nested": {"vector": (5,), "scalar": ()}, "empty": (2, 0)}


def tree(seed, dtype=jnp.float64, size=1.0):
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda shape: jnp.asarray(size * rng.standard_normal(shape), dtype=dtype),
        SHAPES,
        is_leaf=lambda node: isinstance(node, tuple),
    )


def flat(pytree):
    return np.concatenate([np.ravel(np.asarray(leaf, dtype=np.float64)) for leaf in jax.tree.leaves(pytree)])


def apply(transformation, gradients, params=None):
    return transformation.update(gradients, transformation.init(gradients), params)[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_is_the_definition_on_the_whole_tree(name):
    phi = npgm.reference(name, scale=0.7)
    compiled = jax.jit(lambda gradients: apply(scale_by_preconditioner(phi), gradients))
    for size in (1e-20, 1.0, 1e8):
        gradients = tree(0, size=size)
        updates = compiled(gradients)
        if isinstance(phi, npgm.Spectral):
            want = flat(jax.tree.map(lambda leaf: phi.precondition(np.asarray(leaf)), gradients))
        else:
            want = phi.precondition(flat(gradients))
        np.testing.assert_allclose(flat(updates), want, rtol=1e-13, atol=1e-13 * np.max(np.abs(want)))
    assert updates["matrix"].shape == (3, 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *(("isotropic-pow", dtype) for dtype in (jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64)),
        ("separable-cosh", jnp.bfloat16),
        ("separable-cosh", jnp.float64),
    ],
)
def test_dtype_is_kept_and_computed_in_float32(name, dtype):
    phi = npgm.reference(name, scale=2.0)
    gradients = tree(1, dtype, size=30.0)
    updates = jax.jit(lambda gradients: apply(scale_by_preconditioner(phi), gradients))(gradients)
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(updates))
    rtol = 4 * float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(flat(updates), phi.precondition(flat(gradients)), rtol=rtol)


def test_mixed_dtypes_are_one_vector():
    gradients = {"a": jnp.array([3.0], jnp.bfloat16), "b": jnp.array([4.0], jnp.float32), "c": jnp.array([12.0])}
    updates = apply(scale_by_preconditioner(), gradients)
    assert [leaf.dtype for leaf in jax.tree.leaves(updates)] == [jnp.bfloat16, jnp.float32, jnp.float64]
    np.testing.assert_allclose(updates["c"], np.arcsinh(13) / 13 * 12, rtol=1e-6)


@pytest.mark.slow
def test_norms_that_would_overflow_or_underflow():
    phi = npgm.reference("isotropic-cosh")
    for value in (3e38, 1e-30):
        gradients = {"a": jnp.full(1000, value, jnp.float32), "zero": jnp.zeros(3, jnp.float32)}
        updates = apply(scale_by_preconditioner(phi), gradients)
        want = np.arcsinh(min(value * np.sqrt(1000), np.finfo(np.float32).max)) / np.sqrt(1000)
        np.testing.assert_allclose(updates["a"], want, rtol=1e-5)
        assert not updates["zero"].any()
    many = {"a": jnp.ones(100_000, jnp.bfloat16)}  # a bfloat16 sum of squares stops at 256
    np.testing.assert_allclose(
        np.asarray(apply(scale_by_preconditioner("isotropic-log"), many)["a"], np.float32),
        1 / (1 + 100_000**0.5),
        rtol=1e-2,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_zero_gradients_give_zero_updates(name):
    optimizer, zeros = make(0.1, 0.9, name), {"matrix": jnp.zeros((3, 4)), "empty": jnp.zeros((2, 0))}
    assert not flat(jax.jit(lambda gradients: apply(optimizer, gradients))(zeros)).any()
    assert apply(optimizer, {}) == {}


def test_nan_is_not_hidden():
    gradients = {"a": jnp.array([1.0, jnp.nan]), "b": jnp.array([1.0])}
    assert np.isnan(flat(apply(scale_by_preconditioner("isotropic-cosh"), gradients))).all()
    assert np.isnan(flat(apply(scale_by_preconditioner("separable-cosh"), gradients))).tolist() == [False, True, False]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "momentum", "weight_decay"),
    [
        ("isotropic-cosh", None, 0.1),
        ("isotropic-cosh", 0.9, 0.0),
        ("separable-log", 0.0, 0.0),
        ("separable-log", 0.9, 0.1),
    ],
)
def test_trajectory_equals_the_solver_and_the_torch_optimizer(name, momentum, weight_decay):
    phi = npgm.reference(name, scale=0.5)
    a = np.array([[1.0, 10.0], [0.3, 2.0]])
    start = np.array([[3.0, -2.0], [5.0, 1.0]])

    def loss(x, xp):
        return 0.5 * xp.sum(a * x**2) + 0.25 * xp.sum(x**4)

    optimizer = make(0.05, momentum, phi, weight_decay)
    params = {"rows": [jnp.asarray(start[0]), jnp.asarray(start[1])]}
    state = optimizer.init(params)
    parameters = [torch.nn.Parameter(torch.tensor(row)) for row in start]
    peer = npgm.torch.NPGM(parameters, lr=0.05, momentum=momentum or 0.0, reference=phi, weight_decay=weight_decay)

    @jax.jit
    def step(params, state):
        gradients = jax.grad(lambda p: loss(jnp.stack(p["rows"]), jnp))(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(100):
        params, state = step(params, state)
        peer.zero_grad()
        stacked = torch.stack(list(parameters))
        (0.5 * (torch.tensor(a) * stacked**2).sum() + 0.25 * (stacked**4).sum()).backward()
        peer.step()

    def regularised(x):
        return loss(x, np) + 0.5 * weight_decay * np.sum(x**2), a * x + x**3 + weight_decay * x

    solver = npgm.minimize(regularised, start, lr=0.05, momentum=momentum or 0.0, reference=phi, maxiter=100, tol=0.0)
    np.testing.assert_allclose(np.stack(params["rows"]), solver.x, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(torch.stack(list(parameters)).detach().numpy(), solver.x, rtol=1e-10, atol=1e-12)
    assert (momentum is not None) == bool(jax.tree.leaves(state))


def quadratic(optimizer, steps, dtype=jnp.float32):
    params = {"x": jnp.array([3.0, -4.0], dtype), "y": jnp.array([10.0], dtype)}
    state = optimizer.init(params)
    step = jax.jit(optimizer.update)
    for _ in range(steps):
        updates, state = step(jax.tree.map(lambda p: p, params), state, params)
        params = optax.apply_updates(params, updates)
    return params, state


def test_states_are_made_of_shapes_and_numbers_have_a_length():
    options = {"reference": "spectral-sqrt", "scale": "auto", "adjust": "aspect"}
    params = {"w": jnp.ones((2, 3), jnp.bfloat16), "b": jnp.ones(3), "s": jnp.ones(())}
    optimizer = make(0.1, 0.9, **options)
    shapes = optimizer.init(jax.eval_shape(lambda: params))
    assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, optimizer.init(params))
    assert jnp.isfinite(apply(optimizer, params)["s"])


def test_a_second_call_does_not_compile_again():
    optimizer = make(0.1, 0.9)
    calls = 0

    @jax.jit
    def step(gradients, state, params):
        nonlocal calls
        calls += 1
        return optimizer.update(gradients, state, params)

    params = tree(0, jnp.float32)
    state = optimizer.init(params)
    for _ in range(3):
        _, state = step(params, state, params)
    assert calls == 1


@pytest.mark.slow
def test_a_schedule_equals_its_constant_and_follows_its_values():
    constant, _ = quadratic(make(0.1, 0.5), 5)
    scheduled, _ = quadratic(make(optax.constant_schedule(0.1), 0.5), 5)
    np.testing.assert_allclose(flat(scheduled), flat(constant), rtol=1e-6)
    stopped, _ = quadratic(make(optax.piecewise_constant_schedule(0.1, {2: 0.0})), 5)
    np.testing.assert_allclose(flat(stopped), flat(quadratic(make(0.1), 2)[0]), rtol=1e-6)


@pytest.mark.slow
def test_hyperparameters_can_be_injected():
    dtype = jnp.bfloat16
    injected = optax.inject_hyperparams(make, static_args="reference")(
        learning_rate=0.1, momentum=0.5, reference="isotropic-cosh", weight_decay=0.01
    )
    plain = make(0.1, 0.5, weight_decay=0.01)
    params, state = quadratic(injected, 5, dtype)
    np.testing.assert_allclose(flat(params), flat(quadratic(plain, 5, dtype)[0]), rtol=4 * float(jnp.finfo(dtype).eps))
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(params))
    assert state.hyperparams["momentum"] == 0.5


@pytest.mark.slow
def test_works_under_multi_steps():
    optimizer = optax.MultiSteps(make(0.1, 0.9), every_k_schedule=2)
    params = tree(0)
    first, second = tree(1), tree(2)
    state, step = optimizer.init(params), jax.jit(optimizer.update)
    updates, state = step(first, state, params)
    assert not flat(updates).any()
    updates, state = step(second, state, params)
    mean = jax.tree.map(lambda a, b: (a + b) / 2, first, second)
    np.testing.assert_allclose(flat(updates), flat(apply(make(0.1, 0.9), mean)), rtol=1e-6)


def test_masked_and_partition_see_their_part_as_the_vector():
    gradients = {"a": jnp.array([3.0, 4.0]), "b": jnp.array([100.0])}
    masked = apply(optax.masked(scale_by_preconditioner(), {"a": True, "b": False}), gradients)
    np.testing.assert_allclose(masked["a"], np.arcsinh(5.0) * np.array([0.6, 0.8]), rtol=1e-12)
    assert masked["b"] == 100.0
    both = optax.partition({"x": make(1.0), "y": make(1.0, reference="separable-log")}, {"a": "x", "b": "y"})
    updates = apply(both, gradients)
    np.testing.assert_allclose(updates["a"], -masked["a"], rtol=1e-12)
    np.testing.assert_allclose(updates["b"], -100 / 101, rtol=1e-12)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64])
@pytest.mark.parametrize("lr", [0.1, optax.constant_schedule(0.1)], ids=["number", "schedule"])
def test_state_is_stable_under_cond(dtype, lr):
    optimizer = make(lr, 0.9, weight_decay=0.1)
    params = tree(0, dtype)
    state = optimizer.init(params)

    def step(state):
        return optimizer.update(params, state, params)

    def step_or_not(state):
        return jax.lax.cond(True, step, lambda state: (jax.tree.map(jnp.zeros_like, params), state), state)

    updates, _ = jax.eval_shape(step_or_not, state)  # which refuses branches of different types
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(updates))


def test_momentum_can_be_kept_in_float32():
    optimizer = make(0.1, 0.99, accumulator_dtype=jnp.float32)
    params = tree(0, jnp.bfloat16)
    updates, state = jax.eval_shape(optimizer.update, params, optimizer.init(params), params)
    assert all(leaf.dtype == jnp.bfloat16 for leaf in jax.tree.leaves(updates))
    assert {leaf.dtype for leaf in jax.tree.leaves(state) if leaf.ndim} == {jnp.dtype(jnp.float32)}


def test_state_can_be_mapped_over_parameters():
    optimizer = make(0.1, 0.9)
    state = optimizer.init(tree(0))
    mapped = optax.tree_utils.tree_map_params(optimizer, lambda leaf: leaf + 1, state)
    assert (flat([leaf for leaf in jax.tree.leaves(mapped) if leaf.ndim]) == 1).all()


def test_decay_can_be_masked():
    params = {"w": jnp.array([2.0]), "b": jnp.array([2.0])}
    zero = jax.tree.map(jnp.zeros_like, params)
    updates = apply(make(1.0, weight_decay=0.5, reference="isotropic-quad", mask={"w": True, "b": False}), zero, params)
    assert (float(updates["w"][0]), float(updates["b"][0])) == (-1.0, 0.0)


def test_differentiates_at_zero():
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(apply(scale_by_preconditioner(), {"x": x})["x"])))(jnp.zeros(3))
    np.testing.assert_array_equal(gradient, np.ones(3))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: make(-0.1), ValueError, "learning_rate must be nonnegative"),
        (lambda: make(float("nan")), ValueError, "learning_rate must be nonnegative"),
        (lambda: make("0.1"), TypeError, "learning_rate must be a real number"),
        (lambda: make(0.1, 1.0), ValueError, "momentum must lie in"),
        (lambda: make(0.1, weight_decay=-1), ValueError, "weight_decay must be nonnegative"),
        (lambda: make(0.1, adjust="rms"), ValueError, "adjust is for spectral reference functions"),
        (lambda: make(0.1, blocks=2), ValueError, "blocks is for spectral reference functions"),
        (lambda: make(0.1, reference="spectral-sqrt", blocks=0), ValueError, "blocks must be at least 1"),
        (lambda: make(0.1, 0.9, nesterov=True), ValueError, "nesterov is for spectral reference functions"),
        (lambda: make(0.1, reference="spectral-sqrt", nesterov=True), ValueError, "nesterov needs momentum"),
        (lambda: make(0.1, reference="spectral-sqrt", adjust="muon"), ValueError, "unknown adjust 'muon'"),
        (lambda: make(0.1, reference="cosh"), ValueError, "unknown reference 'cosh'"),
        (lambda: scale_by_preconditioner(npgm.Cosh()), TypeError, "reference must be a reference function"),
        (lambda: apply(scale_by_preconditioner(), {"a": jnp.array([1])}), TypeError, "a gradient has dtype int"),
        (lambda: apply(scale_by_preconditioner("separable-log"), {"a": jnp.array([1j])}), TypeError, "real floating"),
        (lambda: apply(make(0.1, weight_decay=0.1), {"a": jnp.array([1.0])}), ValueError, "params"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.slow
@pytest.mark.parametrize("momentum", [None, 0.9])
@pytest.mark.parametrize("order", ["after", "before"])
@pytest.mark.parametrize("name", ["isotropic-log", "separable-logx2"])
def test_with_lr_like_sgd_small_gradients_take_the_steps_of_sgd(name, order, momentum):
    decayed = {"weight_decay": 0.1, "decoupled_weight_decay": True}
    own = make(0.1, momentum, name, scale=1e8, lr_like="sgd", momentum_order=order, **decayed)
    other = optax.sgd(0.1, momentum)
    x = jnp.ones(3)
    states = [one.init(x) for one in (own, other)]
    for t in range(4):
        gradient = jnp.asarray([1.0, -2.0, 0.5 * t])
        got, states[0] = own.update(gradient, states[0], x)
        want, states[1] = other.update(gradient, states[1], x)
        np.testing.assert_allclose(got, want - 0.01 * x, rtol=1e-6)


def test_what_lr_like_does_not_go_with():
    with pytest.raises(ValueError, match="needs a number as scale"):
        make(0.1, scale="auto", lr_like="sgd")
    with pytest.raises(ValueError, match="is linear at small gradients"):
        make(0.1, reference="isotropic-pow", lr_like="sgd")

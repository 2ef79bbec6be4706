"""`scale="auto"`: λ by docs/auto-scale.md."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import auto_scale
import npgm.optax
from npgm.optax import scale_by_preconditioner

SHAPES = [(3, 2), (4,), (), (0, 2)]


def gradients(steps=8):
    return auto_scale.gradients(SHAPES, steps)


def updates_of(transformation, sequence, dtype=jnp.float64):
    state, update = None, jax.jit(transformation.update)
    for tensors in sequence:
        leaves = [jnp.asarray(tensor, dtype) for tensor in tensors]
        state = transformation.init(leaves) if state is None else state
        updates, state = update(leaves, state)
        yield updates


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "scope", "by_tensor", "kappa", "rho"),
    [
        ("isotropic-cosh", None, False, 1.0, 0.99),
        ("isotropic-sqrt", "tensor", True, 0.3, 0.5),
        ("separable-log", None, True, 0.3, 0.5),
        ("separable-cosh", "global", False, 1.0, 0.99),
    ],
)
def test_is_the_definition(name, scope, by_tensor, kappa, rho):
    """The scope is by default the tensor where separable, and all where isotropic."""
    scoped = {} if scope is None else {"scope": scope}
    follow = scale_by_preconditioner(name, "auto", relative_scale=kappa, scale_decay=rho, **scoped)
    want = auto_scale.directions(name, gradients(), by_tensor=by_tensor, kappa=kappa, rho=rho)
    for got_tensors, want_tensors in zip(updates_of(follow, gradients()), want, strict=True):
        for got, expected in zip(got_tensors, want_tensors, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize(("make", "order"), [(npgm.optax.ihgd, "after"), (npgm.optax.sngd, "before")])
def test_a_multiple_of_the_loss_has_the_same_trajectory(make, order):
    def loss(x, factor):
        return factor * (jnp.sum(jnp.cosh(x["a"])) + 1e-3 * jnp.sum(x["b"] ** 2) * jnp.sum(x["a"] ** 2))

    optimizer = make(0.02, 0.9, scale="auto", momentum_order=order)

    @jax.jit
    def run(factor):
        def step(carry, _):
            x, state = carry
            updates, state = optimizer.update(jax.grad(loss)(x, factor), state, x)
            return (optax.apply_updates(x, updates), state), None

        x = {"a": jnp.array([3.0, -2.0, 0.5], jnp.float32), "b": jnp.array([[10.0, -4.0]], jnp.float32)}
        return jax.lax.scan(step, (x, optimizer.init(x)), length=50)[0][0]

    want = run(jnp.float32(1.0))
    for factor in (2.0**-20, 2.0**20, 1e-6, 1e6):
        tolerance = 0.0 if np.log2(factor).is_integer() else 1e-4
        for a, b in zip(jax.tree.leaves(run(jnp.float32(factor))), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance)


@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-log"])
def test_one_outlier_does_not_take_the_scale_along(name):
    follow = scale_by_preconditioner(name, "auto")
    usual, outlier = [jnp.array([3.0, -4.0])], [jnp.array([3e30, -4e30])]
    state, update = follow.init(usual), jax.jit(follow.update)
    for _ in range(500):
        before, state = update(usual, state)
    _, state = update(outlier, state)
    after, _ = update(usual, state)
    assert (np.abs(after[0]) > np.abs(before[0]) / 1.42).all()


@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-log"])
def test_the_ends_of_the_range(name):
    follow = scale_by_preconditioner(name, "auto")
    ones = [jnp.array([1.0, -2.0], jnp.float32), jnp.array([2.0], jnp.float32)]
    want = list(updates_of(follow, [ones] * 3, jnp.float32))
    for size in (1e-37, 1e37):
        got = updates_of(follow, [[size * leaf for leaf in ones]] * 3, jnp.float32)
        for updates, expected in zip(got, want, strict=True):
            for a, b in zip(updates, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-log"])
def test_what_is_not_finite_leaves_the_scale_alone(name):
    follow = scale_by_preconditioner(name, "auto")
    update = jax.jit(follow.update)
    for bad in (np.nan, np.inf):
        good, worse = [jnp.array([1.0, 2.0])], [jnp.array([bad, 1.0])]
        state = follow.init(good)
        for gradient in (worse, good, worse):
            updates, state = update(gradient, state)
            assert (gradient is good) == np.isfinite(updates[0]).all() or name == "separable-log"
        _, want = update(good, follow.init(good))
        jax.tree.map(np.testing.assert_array_equal, state, want)


def test_zeros_do_not_move_and_say_nothing_of_the_scale():
    follow = scale_by_preconditioner("separable-log", "auto")
    zero = [jnp.zeros(3), jnp.zeros((0,))]
    updates, state = follow.update(zero, follow.init(zero))
    assert not updates[0].any()
    jax.tree.map(np.testing.assert_array_equal, state, follow.init(zero))


def test_a_number_takes_the_place_of_the_references_scale():
    gradient = [jnp.array([3.0, 4.0])]
    want = npgm.reference("isotropic-cosh", scale=2.0).precondition(gradient[0])
    for reference in ("isotropic-cosh", npgm.Isotropic(npgm.Cosh(), scale=7.0)):
        for scale in (2.0, jnp.array(2.0)):  # an array as `optax.inject_hyperparams` hands it over
            got, _ = scale_by_preconditioner(reference, scale).update(gradient, optax.EmptyState())
            np.testing.assert_allclose(got[0], want, rtol=1e-14)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"scale": "automatic"}, ValueError, "unknown scale 'automatic'; accepted: auto"),
        ({"scale": 0.0}, ValueError, "scale must be positive and finite, not 0.0"),
        ({"scale": True}, TypeError, "scale must be a real number, not True"),
        ({"scale": np.ones(2)}, TypeError, "scale must be a real number"),
        ({"scope": "group"}, ValueError, "unknown scope 'group'; accepted: global, tensor"),
        ({"relative_scale": -1.0}, ValueError, "relative_scale must be positive"),
        ({"scale_decay": 1.0}, ValueError, "scale_decay must lie in"),
        ({"momentum_order": "first"}, ValueError, "unknown momentum_order 'first'; accepted: after, before"),
    ],
)
def test_bad_input_is_named(options, error, message):
    with pytest.raises(error, match=message):
        npgm.optax.npgm(0.1, **options)

"""The estimates against closed forms and dense matrices, and what they say of themselves."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import npgm
from npgm import theory
from npgm.problems import registry
from npgm.theory import oracles


def network(seed=0, sizes=(8, 12, 7), dtype=torch.float64):
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(sizes[0], sizes[1]), torch.nn.Tanh(), torch.nn.Linear(sizes[1], sizes[2])]
    model = torch.nn.Sequential(*layers).to(dtype)
    inputs, targets = torch.randn(30, sizes[0], dtype=dtype), torch.randint(0, sizes[2], (30,))
    return model, lambda: 4 * torch.nn.functional.cross_entropy(model(inputs), targets)


def dense(oracle, phi, x):
    """Return ∇²φ*(∇f(x)) and ∇²f(x) as matrices."""
    grad, hvp = oracle.linearize(x)
    D = np.stack([phi.conjugate_hvp(grad, unit) for unit in np.eye(x.size)], axis=1)
    return D, np.stack([hvp(unit) for unit in np.eye(x.size)], axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["isotropic-cosh", "separable-cosh", "isotropic-log", "separable-quad"])
def test_agrees_with_the_dense_decomposition_on_a_network(name):
    model, loss = network()
    oracle, x = oracles.from_torch(loss, model.named_parameters())
    assert x.size == 199
    phi = npgm.reference(name, scale=0.3)
    D, H = dense(oracle, phi, x)
    exact = np.max(np.linalg.eigvals(D @ H).real), np.linalg.norm(D @ H, 2)
    for estimate, want in zip((theory.anisotropic_smoothness, theory.preconditioned_lipschitz), exact, strict=True):
        result = estimate(oracle, phi, x, max_products=None, rtol=1e-8)
        assert result.value == pytest.approx(want, rel=1e-6)
        assert result.kind == "lower estimate"
        limited = estimate(oracle, phi, x)
        assert limited.products <= 16
        assert 0.85 * want <= limited.value <= want * (1 + 1e-9)
        assert limited.cost > 0
    norm = theory.hessian_norm(oracle, x, max_products=None, rtol=1e-8).value
    assert norm == pytest.approx(np.linalg.norm(H, 2), rel=1e-6)


def test_torch_and_jax_and_numpy_oracles_agree():
    A = np.random.default_rng(0).standard_normal((5, 4))

    def f(x, xp):
        return xp.sum(xp.cosh(A @ x) if xp is not torch else torch.cosh(torch.as_tensor(A) @ x))

    x = np.array([0.1, -0.4, 0.3, 0.9])
    tensor = torch.tensor(x, requires_grad=True)
    from_torch, at_torch = oracles.from_torch(lambda: f(tensor, torch), [tensor])
    from_jax, at_jax = oracles.from_jax(
        lambda p: f(jnp.concatenate([p["a"], p["b"]]), jnp), {"a": jnp.asarray(x[:1]), "b": jnp.asarray(x[1:])}
    )
    from_numpy = oracles.from_numpy(
        lambda x: (f(x, np), A.T @ np.sinh(A @ x)), lambda x, d: A.T @ (np.cosh(A @ x) * (A @ d))
    )
    np.testing.assert_array_equal(at_torch, x)
    np.testing.assert_array_equal(at_jax, x)
    d = np.array([1.0, 0.0, -2.0, 0.5])
    elsewhere = x + 1.0
    grad, hvp = from_numpy.linearize(elsewhere)
    for oracle in (from_torch, from_jax):
        np.testing.assert_allclose(oracle.gradient(elsewhere), grad, rtol=1e-8)
        other, product = oracle.linearize(elsewhere)
        oracle.linearize(x)  # a later point must not disturb the products at the earlier one
        np.testing.assert_allclose(other, grad, rtol=1e-8)
        np.testing.assert_allclose(product(d), hvp(d), rtol=1e-8)
    np.testing.assert_array_equal(tensor.detach().numpy(), x)


def test_a_network_is_left_as_it_was_even_if_the_loss_fails():
    model, loss = network(dtype=torch.float32)
    before = [p.detach().clone() for p in model.parameters()]
    oracle, x = oracles.from_torch(loss, model.parameters())
    theory.anisotropic_smoothness(oracle, npgm.reference("isotropic-cosh"), x + 0.5)

    def fails():
        raise RuntimeError("no data")

    broken, _ = oracles.from_torch(fails, model.parameters())
    with pytest.raises(RuntimeError, match="no data"):
        broken.linearize(x + 1.0)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    assert all(p.grad is None for p in model.parameters())


def test_a_trajectory_gives_a_lower_estimate_within_a_percent():
    for key, name in (("quartic", "separable-cosh"), ("double-well", "separable-cosh"), ("logistic", "isotropic-exp")):
        problem, phi = registry[key](), npgm.reference(name)
        points = np.linspace(-4, 4, 401)[:, None]
        estimate = theory.anisotropic_smoothness(problem, phi, points)
        exact = problem.constants(phi).smoothness
        assert 0.99 * exact <= estimate.value <= exact * (1 + 1e-9)
        assert estimate.at_points.shape == (401,)


def test_the_two_constants_differ_where_curvature_is_negative():
    problem, phi = registry["bump"](), npgm.reference("isotropic-cosh")
    points = np.linspace(-6, 6, 1001)[:, None]
    assert theory.anisotropic_smoothness(problem, phi, points).value == pytest.approx(1.684439, rel=1e-4)
    assert theory.preconditioned_lipschitz(problem, phi, points).value == pytest.approx(4.8, rel=1e-6)


def test_largest_signed_eigenvalue_may_be_negative():
    concave = oracles.from_numpy(lambda x: (-0.5 * x @ x, -x), lambda x, d: -d)
    phi = npgm.reference("isotropic-quad")
    for n in (3, 60):
        assert theory.anisotropic_smoothness(concave, phi, np.ones(n)).value == pytest.approx(-1.0)
        assert theory.preconditioned_lipschitz(concave, phi, np.ones(n)).value == pytest.approx(1.0)
    flat = oracles.from_numpy(lambda x: (0.0, 0 * x), lambda x, d: 0 * d)
    for limit in (16, None):
        assert theory.anisotropic_smoothness(flat, phi, np.ones(60), max_products=limit).value == 0.0


@pytest.mark.parametrize("limit", [16, None])
def test_the_eigenvector_of_one_point_does_not_trap_the_next(limit):
    n = 60
    moving = oracles.from_numpy(lambda x: (0.0, 0 * x), lambda x, d: (1.0 + 9.0 * (np.arange(n) == x[0])) * d)
    points = np.repeat(np.array([[3.0], [40.0], [7.0]]), n, axis=1)
    estimate = theory.anisotropic_smoothness(moving, npgm.reference("isotropic-quad"), points, max_products=limit)
    np.testing.assert_allclose(estimate.at_points, 10.0, rtol=1e-2)


def test_l0_l1_fit():
    x = np.linspace(-5, 5, 101)  # cosh is (1, 1)-smooth: cosh <= 1 + |sinh|
    l0, l1 = theory.l0_l1_fit(np.abs(np.sinh(x)), np.cosh(x))
    assert (np.cosh(x) <= l0 + l1 * np.abs(np.sinh(x)) + 1e-9).all()
    assert l0 + l1 * np.sum(np.abs(np.sinh(x))) / x.size <= 1 + np.mean(np.abs(np.sinh(x))) + 1e-9
    assert theory.l0_l1_fit([1.0, 2.0], [3.0, 3.0]) == pytest.approx((3.0, 0.0))
    with pytest.raises(ValueError, match="one shape"):
        theory.l0_l1_fit([1.0], [1.0, 2.0])


def test_pl_constant_is_estimated_from_above():
    problem, phi = registry["cosh-sum"](), npgm.reference("isotropic-cosh")
    run = npgm.minimize(problem, problem.start, lr=0.1, reference=phi, history=True)
    estimate = theory.pl_constant(run.history["fun"], run.history["stationarity"], 0.0)
    assert estimate.kind == "upper estimate"
    assert 1.0 <= estimate.value <= 2.0
    with pytest.raises(ValueError, match="is above f at iteration 0"):
        theory.pl_constant([0.5, 2.0], [1.0, 1.0], 1.0)
    with pytest.raises(ValueError, match="nowhere above"):
        theory.pl_constant([1.0], [1.0], 1.0)
    # a difference that rounding made says nothing
    assert theory.pl_constant([2e5 + 1.0, 2e5 + 1e-10], [3.0, 1e-27], 2e5).value == pytest.approx(3.0)


def test_a_value_far_from_every_eigenvalue_is_called_no_estimate():
    """A Hessian of many negative eigenvalues and one positive one, which sixteen products do not find."""
    diagonal = np.append(-100.0 * np.random.default_rng(0).random(399), 1.0)
    oracle = theory.oracles.from_numpy(lambda x: (0.5 * diagonal @ x**2, diagonal * x), lambda x, d: diagonal * d)
    few = theory.anisotropic_smoothness(oracle, "isotropic-quad", np.zeros(400))
    assert few.value < 0.0
    assert few.kind == "not converged"
    assert few.residuals[0] > 0.1
    enough = theory.anisotropic_smoothness(oracle, "isotropic-quad", np.zeros(400), max_products=None)
    assert enough.value == pytest.approx(1.0, rel=1e-3)
    assert enough.kind == "lower estimate"
    assert enough.residuals[0] < 1e-2
    # and is one where it is close to an eigenvalue
    flipped = theory.oracles.from_numpy(lambda x: (0.0, -diagonal * x), lambda x, d: -diagonal * d)
    assert theory.anisotropic_smoothness(flipped, "isotropic-quad", np.zeros(400)).kind == "lower estimate"


@pytest.mark.parametrize("n", [1, 2, 40])
def test_sharpness_of_any_number_of_variables(n):
    curvatures = np.linspace(-5.0, 3.0, n) if n > 1 else np.array([3.0])
    value, vector = theory.sharpness(lambda x, d: curvatures * d, np.zeros(n), rtol=1e-9)
    assert value == pytest.approx(3.0)
    np.testing.assert_allclose(np.abs(vector), np.eye(n)[-1], atol=1e-6)


def test_noise_constants_of_example_3_3():
    phi = npgm.Isotropic(npgm.Cosh())
    x = np.linspace(-6, 6, 2401)
    each = np.stack([2 * (x - 1), 4 * (x + 2)], axis=1)[..., None]
    dual, variance = theory.noise(phi, each)
    assert dual.value == pytest.approx(6.2836, rel=1e-3)
    assert variance.value == pytest.approx(np.max((each[:, 0] - each[:, 1]) ** 2) / 4)
    assert (dual.at_points <= 0.5 * variance.at_points + 1e-12).all()  # Proposition 3.2
    bounded, _ = theory.noise(npgm.reference("isotropic-log"), np.array([[9.0], [-9.0]]), np.array([9.0]))
    assert bounded.value == np.inf


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda f, phi: theory.anisotropic_smoothness(f, phi, np.array([np.nan])), ValueError, "points must be finite"),
        (
            lambda f, phi: theory.anisotropic_smoothness(f, phi, np.ones((2, 2, 2))),
            ValueError,
            "points must have shape",
        ),
        (lambda f, phi: theory.anisotropic_smoothness(f, phi, np.ones((0, 2))), ValueError, "points must have shape"),
        (lambda f, phi: theory.anisotropic_smoothness(f, phi, np.ones(1), max_products=3), ValueError, "at least 10"),
        (
            lambda f, phi: theory.anisotropic_smoothness(f, phi, np.ones(1), rtol=0.0),
            ValueError,
            "rtol must be positive",
        ),
        (lambda f, phi: theory.anisotropic_smoothness(np.sum, phi, np.ones(1)), TypeError, "expected an Oracle"),
        (lambda f, phi: theory.noise(phi, np.ones(3)), ValueError, "gradients must have shape"),
        (lambda f, phi: theory.noise(phi, np.ones((3, 2)), np.ones(3)), ValueError, "gradient must have 2 entries"),
        (
            lambda f, phi: oracles.from_torch(lambda: 0, network()[0].parameters())[0].gradient(np.ones(3)),
            ValueError,
            "as the parameters",
        ),
        (lambda f, phi: oracles.from_torch(lambda: 0, [3.0]), TypeError, "parameters must be tensors"),
        (lambda f, phi: oracles.from_torch(lambda: 0, [torch.ones(2)]), TypeError, "requires a gradient"),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call(registry["quartic"](), npgm.reference("isotropic-cosh"))


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_a_product_that_is_not_finite_is_an_error():
    with pytest.raises(ValueError, match="not finite"):
        theory.anisotropic_smoothness(registry["quartic"](), npgm.reference("isotropic-cosh"), np.array([1e200]))


@pytest.mark.slow
def test_default_cost_on_the_mnist_network():
    model, loss = network(sizes=(784, 512, 10), dtype=torch.float32)
    oracle, x = oracles.from_torch(loss, model.parameters())
    estimate = theory.anisotropic_smoothness(oracle, npgm.reference("isotropic-cosh"), x)
    assert estimate.products <= 16
    assert np.isfinite(estimate.cost)


def test_jax_arrays_need_no_double_precision():
    function, x = oracles.from_jax(lambda x: jnp.sum(jnp.cosh(x)), jnp.ones(3, dtype=jnp.float32))
    value = theory.anisotropic_smoothness(function, npgm.reference("separable-exp"), x).value
    assert value == pytest.approx(np.cosh(1) / (1 + np.sinh(1)), rel=1e-5)
    assert jax.config.read("jax_enable_x64")


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (torch.nn.Dropout(0.5), "it calls Dropout in training mode"),
        (torch.nn.BatchNorm1d(4), "it calls BatchNorm1d in training mode"),
        (None, "two calls gave"),
    ],
)
def test_a_loss_that_is_not_one_function_is_warned_of(layer, said):
    torch.manual_seed(0)
    first, inputs = torch.nn.Linear(3, 4).double(), torch.randn(8, 3, dtype=torch.float64)
    model = torch.nn.Sequential(first, *([] if layer is None else [layer.double()]))

    def loss():
        output = model(inputs)
        return (
            (output if layer is not None else torch.nn.functional.dropout(output, training=model.training))
            .square()
            .sum()
        )

    oracle, x = theory.oracles.from_torch(loss, first.parameters())
    with pytest.warns(RuntimeWarning, match=said):
        theory.anisotropic_smoothness(oracle, "isotropic-cosh", x)
    model.eval()
    oracle, x = theory.oracles.from_torch(loss, first.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        theory.anisotropic_smoothness(oracle, "isotropic-cosh", x)

"""The problems with known constants: derivatives, minima, and constants against a dense grid."""

import functools

import numpy as np
import pytest

import npgm
from backends import BACKENDS, JAX, TORCH
from npgm.problems import Problem, register, registry
from npgm.problems.scalar_sums import ScalarSum

PROBLEMS = [cls() for cls in registry.values()]
PROBLEMS += [
    registry["cosh-sum"](c=(1.0, 3.0)),
    registry["double-well"](a=10.0),
    registry["scaled-reference"](reference=npgm.reference("separable-mix4", scale=2.0), c=0.5),
    registry["scaled-reference"](reference=npgm.reference("isotropic-exp", scale=3.0)),
]
each_problem = pytest.mark.parametrize("problem", PROBLEMS, ids=repr)


def known():
    for problem in PROBLEMS:
        for name in npgm.references.names():
            for scale in (1.0, 8.0):
                phi = getattr(problem, "reference", npgm.reference(name, scale=scale))
                try:
                    yield problem, phi, problem.constants(phi)
                except ValueError:
                    continue


def alike(problem, phi, constants):
    """What a case tests: where every lift is its kernel, the lifts are one case unless their constants differ."""
    of_kernel = isinstance(problem, ScalarSum) or problem.start.size == 1
    return (problem, phi.kernel if of_kernel else phi, phi.scale, constants)


KNOWN = {alike(*case): case for case in reversed([*known()])}.values()  # of several lifts, the isotropic one


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "backend"), [*((p, TORCH) for p in PROBLEMS), *((p, JAX) for p in PROBLEMS[:3])], ids=repr
)
def test_derivatives_agree_with_autograd(problem, backend):
    x = problem.start * 0.3
    d = np.linspace(-1.0, 1.0, x.size) + 0.1
    _, grad = problem(x)
    np.testing.assert_allclose(backend.jacobian(lambda x: problem(x)[0], backend.array(x)), grad, rtol=1e-10)
    hessian = backend.jacobian(lambda x: problem(x)[1], backend.array(x))
    np.testing.assert_allclose(problem.hvp(x, d), hessian @ d, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "backend"),
    [(p, b) for b in BACKENDS for p in (PROBLEMS[: len(registry)] if b is JAX else PROBLEMS)],
    ids=repr,
)
def test_backends_and_batches_agree(problem, backend):
    x = np.stack([problem.start, -0.5 * problem.start])
    value, grad = problem(backend.array(x))
    rows = [problem(row) for row in x]
    np.testing.assert_allclose(backend.numpy(value), [row[0] for row in rows], rtol=1e-13)
    np.testing.assert_allclose(backend.numpy(grad), [row[1] for row in rows], rtol=1e-13, atol=1e-15)
    low = backend.numpy(problem(backend.array(x.astype(np.float32)))[1])
    assert low.dtype == np.float32
    np.testing.assert_allclose(low, grad, rtol=1e-4)


@each_problem
def test_minimum_is_the_infimum(problem):
    n = problem.start.size
    minimum = problem.minimum(n)
    rng = np.random.default_rng(0)
    values = problem(np.concatenate([10 * rng.standard_normal((200, n)), rng.standard_normal((200, n))]))[0]
    assert values.min() >= minimum - 1e-12
    x = np.full(n, 700.0) if problem.minimiser is None else problem.minimiser
    value, grad = problem(x)
    assert value - minimum < 1e-12
    np.testing.assert_allclose(grad, 0.0, atol=1e-12)


@functools.cache
def along_the_line(problem):
    """The slope and the curvature of a sum at 40,001 points with equal entries."""
    x = np.linspace(-13, 13, 40001)[:, None] * np.ones(problem.start.size)
    return problem(x)[1], problem.hvp(x, np.ones_like(x))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "phi", "constants"),
    # the estimates refuse a spectral φ of a flat vector
    [case for case in KNOWN if not isinstance(case[1], npgm.Spectral) or isinstance(case[0], ScalarSum)],
    ids=repr,
)
def test_constants_agree_with_a_grid(problem, phi, constants):
    if isinstance(problem, ScalarSum):
        slope, curvature = along_the_line(problem)
        eigenvalues = phi.kernel.curvature(slope / phi.scale) / phi.scale * curvature
        assert np.max(eigenvalues) == pytest.approx(constants.smoothness, rel=1e-5)
        assert np.max(eigenvalues) <= constants.smoothness * (1 + 1e-12)
        assert np.max(np.abs(eigenvalues)) == pytest.approx(constants.lipschitz, rel=1e-5)
    else:
        n, rng = problem.start.size, np.random.default_rng(0)
        center = problem.minimiser
        points = center + rng.standard_normal((20, n)) * np.logspace(-6, 0.4, 20)[:, None]
        if problem.key == "radial-quartic":
            points = np.linspace(0.5, 1.6, 400)[:, None] * phi.scale ** (1 / 3) * np.array([0.6, 0.0, -0.8])
        for estimate, want in (
            (npgm.theory.anisotropic_smoothness, constants.smoothness),
            (npgm.theory.preconditioned_lipschitz, constants.lipschitz),
        ):
            value = estimate(problem, phi, points).value
            assert value == pytest.approx(want, rel=1e-4)
            assert value <= want * (1 + 1e-9)


@pytest.mark.parametrize(("problem", "phi", "constants"), [case for case in KNOWN if case[2].pl is not None], ids=repr)
def test_pl_constant_is_the_infimum(problem, phi, constants):
    n = problem.start.size
    x = np.concatenate(
        [np.linspace(-30, 30, 5000)[:, None] * np.ones(n), np.linspace(-3, 3, 999)[:, None] * np.eye(n)[0]]
    )
    gap = problem(x)[0] - problem.minimum(n)
    quotient = (phi.stationarity(problem(x)[1], axis=-1) / np.where(gap > 0, gap, np.nan))[gap > 1e-12]
    assert quotient.min() >= constants.pl * (1 - 1e-6)
    assert quotient.min() <= constants.pl * (1 + 1e-2)


def test_the_step_of_equality_reaches_the_minimiser_at_once():
    problem = registry["scaled-reference"]()
    result = npgm.minimize(problem, problem.start, lr=1 / problem.c, reference=problem.reference, maxiter=1, tol=1e-9)
    np.testing.assert_allclose(result.x, problem.b, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: registry["cosh-sum"](c=0.5), "c must be at least 1, not 0.5"),
        (lambda: registry["cosh-sum"](c=()), r"c must be at least 1, not \(\)"),
        (lambda: registry["double-well"](a=-1.0), "a must be positive"),
        (lambda: registry["quadratic"](a=()), "at least one value"),
        (lambda: registry["scaled-reference"](reference=npgm.reference("isotropic-log")), "full domain"),
        (lambda: registry["quartic"]().constants(npgm.reference("separable-mix3")), "not known relative to"),
        (lambda: registry["bump"]().constants(npgm.reference("separable-cosh", scale=2.0)), "scale = 1, not 2.0"),
        (lambda: registry["cosh-sum"](c=(1.0, 2.0)).constants(npgm.reference("isotropic-cosh")), "separable reference"),
        (lambda: registry["radial-quartic"]().constants(npgm.reference("isotropic-exp")), "isotropic-cosh"),
        (lambda: registry["quadratic"]().constants(npgm.reference("isotropic-pow")), "strongly convex φ"),
    ],
)
def test_what_is_not_known_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_registering_a_taken_key_is_refused():
    class Other(registry["quartic"]):
        pass

    with pytest.raises(ValueError, match="'quartic' is taken"):
        register(Other)
    assert issubclass(Other, Problem)


def test_constants_are_those_of_the_dimension():
    quartic, phi = registry["quartic"](), npgm.reference("isotropic-cosh")
    assert quartic.constants(phi) == quartic.constants("isotropic-cosh", 1)
    with pytest.raises(ValueError, match="n > 1, the constants of quartic are known for a separable reference"):
        quartic.constants(phi, 2)
    # since on the plane the constant is larger: 3.3137 at this point
    found = npgm.theory.anisotropic_smoothness(quartic, phi, np.array([1.91, 1.91])).value
    assert found > 3.3 > quartic.constants(phi, 1).smoothness
    assert quartic.constants("separable-cosh", 5) == quartic.constants("separable-cosh", 1)
    for problem in (registry["quadratic"](), registry["scaled-reference"](), registry["cosh-sum"](c=(1.0, 2.0))):
        with pytest.raises(ValueError, match="variables, not of 7"):
            problem.constants("separable-cosh", 7)
    with pytest.raises(TypeError, match="n must be an integer"):
        quartic.constants(phi, 1.0)


def test_the_witness_is_smooth_for_log_and_not_l0_l1_smooth():
    problem, phi = registry["exp-square"](), npgm.reference("isotropic-log")
    assert problem.constants(phi).smoothness == 2.0
    x = np.linspace(0.0, 12.0, 2001)[:, None]
    slope, curvature = np.abs(problem(x)[1][:, 0]), problem.hvp(x, np.ones_like(x))[:, 0]
    assert npgm.theory.anisotropic_smoothness(problem, phi, x).value == pytest.approx(2.0)
    quotient = curvature / (1 + slope)
    assert (np.diff(quotient[200:]) > 0).all()  # it grows like 2|x|: no L0 and L1 will do
    assert quotient[-1] == pytest.approx(24.0, rel=0.01)
    points = np.random.default_rng(0).uniform(-2.5, 2.5, (2000, 1))
    slack = npgm.theory.certify.descent(problem, phi, points, 2.0)
    assert (slack >= -1e-12 * problem(points)[0].max()).all()


def test_example_3_3_has_bounded_noise_and_unbounded_variance():
    problem, phi = registry["two-quadratics"](), npgm.reference("isotropic-cosh")
    x = np.linspace(-1e3, 1e3, 400_001)[:, None]
    full, values = problem(x)[1], np.stack(problem.gradients(x))
    np.testing.assert_allclose(values.mean(axis=0), full)
    dual = phi(phi.precondition(full, axis=-1) - phi.precondition(values, axis=-1), axis=-1).mean(axis=0)
    assert dual.max() == pytest.approx(problem.noise(phi), rel=1e-6)
    assert dual.max() <= problem.noise(phi)
    assert dual[-1] == pytest.approx(1 / 16, rel=1e-2)
    assert np.mean((values - full) ** 2, axis=0).max() > 1e6
    rng = np.random.default_rng(0)
    draws = [float(problem.sample(rng, np.array([2.0]))[0]) for _ in range(200)]
    assert set(draws) == {2.0, 16.0}
    with pytest.raises(ValueError, match="known relative to cosh"):
        problem.noise("isotropic-exp")

"""The constants of the theory, measured at points.

Every number here comes from finitely many points. A supremum over ℝⁿ is at least what is found at some points, an
infimum at most: an `Estimate` says which of the two it is, and no certificate that is built on one is more than
empirical.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse.linalg

from npgm._common import validate
from npgm._common.array import Floats
from npgm.references import Reference
from npgm.theory.certify.rounding import resolution as resolve
from npgm.theory.flat import on_vectors
from npgm.theory.oracles import Hvp, as_oracle

Operator = Callable[[Floats], Floats]

Kind = Literal["lower estimate", "upper estimate", "not converged"]

_CONVERGED = 0.1
_DENSE = 32
"""Up to this dimension the matrix is formed: n products, no iteration."""


@dataclass(frozen=True)
class Estimate:
    """A constant estimated from samples.

    Args:
        value: the estimate over all points.
        kind: ``"lower estimate"`` of a supremum, or ``"upper estimate"`` of an infimum; never a bound on it. ``"not
            converged"`` if a residual is above a tenth: the value is then a useless lower bound, possibly negative, and
            more products are needed.
        at_points: the value at each point.
        products: the number of Hessian-vector products.
        cost: the time of the whole estimate, in evaluations of the gradient; NaN if no product was needed.
        residuals: ‖Av - θv‖/|θ| at each point, for the symmetric operator A of which the estimate is the largest
            eigenvalue, and its Ritz pair (θ, v), ‖v‖ = 1; empty if there is none. An eigenvalue, if not the largest
            one, lies within this share of θ.
    """

    value: float
    kind: Kind
    at_points: Floats = field(repr=False)
    products: int = 0
    cost: float = np.nan
    residuals: Floats = field(default_factory=lambda: np.empty(0), repr=False)


def anisotropic_smoothness(
    function: Any,
    reference: Reference | str,
    points: Any,
    *,
    max_products: int | None = 16,
    rtol: float = 1e-3,
    seed: int = 0,
) -> Estimate:
    """Estimate L_a = sup λ_max(∇²φ*(∇f) ∇²f) from below.

    Under mild conditions on φ (Lemma 2.5 of Oikonomidis et al., 2025), f satisfies the descent inequality (4) with
    every L > L_a. All kernels of the package except pow and huber meet them.

    The product of two symmetric matrices has the eigenvalues of D^½ H D^½ with D = ∇²φ*(∇f(x)) and H = ∇²f(x), of
    which the largest signed one is taken. For up to 32 variables the matrix is formed. For more, LOBPCG finds the
    eigenvalue within a given number of products, or Lanczos' method without a limit; the value at a point is then a
    Rayleigh quotient, a lower bound of λ_max there.

    Args:
        function: an `Oracle` (see `npgm.theory.oracles`), or an object with ``function(x) -> (f, ∇f)`` and
            ``function.hvp(x, d)``, both on vectors of shape (n,).
        reference: φ; a spectral φ as `npgm.Blocks`, which names the matrices in x.
        points: a vector of shape (n,), or several, of shape (k, n), such as the iterates of a run.
        max_products: the largest number of Hessian-vector products at a point for more than 32 variables, at least 10;
            None for no limit. ``Estimate.cost`` says what they cost.
        rtol: the relative accuracy at which to stop earlier.
        seed: of the first vector at the first point; every other point starts near the last eigenvector.

    Example:
        >>> import numpy as np, npgm
        >>> problem, phi = npgm.problems.registry["quartic"](), npgm.reference("separable-cosh")
        >>> points = np.linspace(-3, 3, 601)[:, None]
        >>> round(npgm.theory.anisotropic_smoothness(problem, phi, points).value, 3)
        2.182
        >>> round(problem.constants(phi).smoothness, 3)
        2.182
    """
    points = _points(points)
    phi = on_vectors(reference, points.shape[1])

    def operator(grad: Floats, hvp: Hvp) -> Operator:
        root = phi.conjugate_hessian(grad, root=True)
        return lambda v: root(hvp(root(v)))

    return _largest(function, points, operator, 1, max_products, rtol, seed, lambda value: value)


def preconditioned_lipschitz(
    function: Any,
    reference: Reference | str,
    points: Any,
    *,
    max_products: int | None = 16,
    rtol: float = 1e-3,
    seed: int = 0,
) -> Estimate:
    """Estimate L_p = sup ‖∇²φ*(∇f) ∇²f‖, the Lipschitz constant of ∇φ*(∇f) (Assumption 2.5), from below.

    The largest singular value is the root of the largest eigenvalue of H D² H, at two Hessian-vector products a step.
    L_p is at least L_a; Theorem 2.7 needs it. For the arguments see `anisotropic_smoothness`.
    """
    points = _points(points)
    phi = on_vectors(reference, points.shape[1])

    def operator(grad: Floats, hvp: Hvp) -> Operator:
        D = phi.conjugate_hessian(grad)
        return lambda v: hvp(phi.scale * D(phi.scale * D(hvp(v))))  # λD, whose square is a number at every λ

    def transform(value: float) -> float:
        return float(max(value, 0.0) ** 0.5 / phi.scale)

    return _largest(function, points, operator, 2, max_products, rtol, seed, transform)


def hessian_norm(
    function: Any, points: Any, *, max_products: int | None = 16, rtol: float = 1e-3, seed: int = 0
) -> Estimate:
    """Estimate sup ‖∇²f‖ from below; for the arguments see `anisotropic_smoothness`."""

    def operator(grad: Floats, hvp: Hvp) -> Operator:
        return lambda v: hvp(hvp(v))

    return _largest(function, points, operator, 2, max_products, rtol, seed, lambda value: max(value, 0.0) ** 0.5)


def _largest(
    function: Any,
    points: Any,
    operator: Callable[[Floats, Hvp], Operator],
    products_each: int,
    max_products: int | None,
    rtol: float,
    seed: int,
    transform: Callable[[float], float],
) -> Estimate:
    oracle = as_oracle(function)
    points = _points(points)
    limit = None if max_products is None else validate.count("max_products", max_products, least=10) // products_each
    rtol = validate.positive("rtol", rtol)
    n = points.shape[1]
    noise: Floats = np.random.default_rng(seed).standard_normal(n) / n**0.5
    start = noise
    values, residuals, products = [], [], 0
    gradient_seconds = _seconds(lambda: oracle.gradient(points[0]))
    began = time.perf_counter()
    for x in points:
        grad, hvp = oracle.linearize(x)
        value, vector, residual, count = _eigenvalue(operator(grad, hvp), n, start, limit, rtol)
        start = vector + noise  # the last vector alone may be one of a smaller eigenvalue here, and then stay so
        values.append(transform(value))
        residuals.append(residual / abs(value) if value else math.inf if residual else 0.0)
        products += count * products_each
    cost = (time.perf_counter() - began) / gradient_seconds
    at_points, relative = np.array(values), np.array(residuals)
    kind: Kind = "lower estimate" if np.all(relative <= _CONVERGED) else "not converged"
    return Estimate(float(np.max(at_points)), kind, at_points, products, cost, relative)


def _seconds(work: Callable[[], Any]) -> float:
    """Return the median time of three calls, after one that compiles and allocates."""
    work()
    times = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return max(sorted(times)[1], 1e-9)


def _eigenvalue(
    apply: Operator, n: int, start: Floats, limit: int | None, rtol: float
) -> tuple[float, Floats, float, int]:
    """Return the largest eigenvalue of a symmetric operator, its vector and residual, and how often it was applied."""
    if n <= _DENSE:
        matrix = np.stack([apply(unit) for unit in np.eye(n)], axis=1)
        _finite(matrix)
        values, vectors = scipy.linalg.eigh(0.5 * (matrix + matrix.T))
        return float(values[-1]), vectors[:, -1], 0.0, n
    count = 0

    def matvec(v: Floats) -> Floats:
        nonlocal count
        count += 1
        return _finite(apply(v.ravel()))

    linear = scipy.sparse.linalg.LinearOperator((n, n), matvec=matvec, dtype=np.float64)
    image = matvec(start)
    size = float(np.linalg.norm(image))
    if size == 0.0:  # a quotient of 0, where neither method can start
        return 0.0, np.zeros(n), 0.0, count
    if limit is None:
        values, vectors = scipy.sparse.linalg.eigsh(linear, k=1, which="LA", v0=start, tol=rtol)
        value, vector = float(values[0]), vectors[:, 0]
        return value, vector, float(np.linalg.norm(matvec(vector) - value * vector)), count
    # from the image, since a random vector of a large space is almost orthogonal to the one that is sought
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the limit was reached
        _, vectors, quotients, norms = scipy.sparse.linalg.lobpcg(
            linear,
            (image / size)[:, None],
            largest=True,
            maxiter=max(limit - 4, 1),
            tol=rtol * size / float(np.linalg.norm(start)),
            retLambdaHistory=True,
            retResidualNormsHistory=True,
        )
    # the vector returned is the one of least residual; each value is a Rayleigh quotient, and the largest the best
    best = int(np.argmax(np.concatenate([np.ravel(value) for value in quotients])))
    residual = float(np.ravel(norms[min(best, len(norms) - 1)])[0])
    return float(np.ravel(quotients[best])[0]), vectors[:, 0], residual, count


def _finite(values: Floats) -> Floats:
    if not np.isfinite(values).all():
        raise ValueError("a Hessian-vector product, or ∇²φ*, is not finite at one of the points")
    return values


def _points(points: Any) -> Floats:
    array: Floats = np.atleast_2d(np.asarray(points, dtype=np.float64))
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"points must have shape (n,) or (k, n), but have shape {np.shape(points)}")
    if not np.isfinite(array).all():
        raise ValueError("points must be finite, but contain NaN or infinity")
    return array


def l0_l1_fit(gradient_norms: Any, hessian_norms: Any) -> tuple[float, float]:
    """Return L0, L1 >= 0 with ‖∇²f‖ <= L0 + L1 ‖∇f‖ at all samples, with the least total excess.

    They solve a linear program. On ℝⁿ the function may need larger constants.

    Args:
        gradient_norms: ‖∇f‖ at the points.
        hessian_norms: ‖∇²f‖ at the same points, as ``hessian_norm(...).at_points``.
    """
    r, size = np.asarray(gradient_norms, dtype=np.float64), np.asarray(hessian_norms, dtype=np.float64)
    if r.ndim != 1 or r.shape != size.shape or not r.size:
        raise ValueError(f"gradient_norms and hessian_norms must have one shape (k,), not {r.shape} and {size.shape}")
    rows = np.stack([np.ones_like(r), r], axis=1)
    solution = scipy.optimize.linprog(rows.sum(axis=0), A_ub=-rows, b_ub=-size, bounds=(0, None))
    if not solution.success:
        raise ValueError(f"no fit: {solution.message}")
    return float(solution.x[0]), float(solution.x[1])


def pl_constant(values: Any, stationarity: Any, minimum: float, *, resolution: float | None = None) -> Estimate:
    """Estimate the μ of Definition 2.3, inf φ(∇φ*(∇f)) / (f - inf f), from above.

    Points at which rounding hides f - inf f do not count. Elsewhere the quotient is the largest that rounding allows.

    Args:
        values: f at the points, such as ``history["fun"]``.
        stationarity: φ(∇φ*(∇f)) at the same points, such as ``history["stationarity"]``.
        minimum: inf f itself; with a lower bound, the quotients need not be above μ.
        resolution: the error of a value of f; by default that of `npgm.theory.certify.resolution`.

    Raises:
        ValueError: if f is nowhere above ``minimum`` by more than rounding, or below it.
    """
    f, S = (np.ravel(np.asarray(v, dtype=np.float64)) for v in (values, stationarity))
    rho = resolve(f, minimum, given=resolution)
    known = f - minimum > 2.0 * rho
    if not known.any():
        raise ValueError(f"f is nowhere above minimum = {minimum!r} by more than the rounding of its values, {rho:.3g}")
    quotients = S[known] / (f[known] - minimum - rho)
    return Estimate(float(np.min(quotients)), "upper estimate", quotients)


def noise(reference: Reference | str, gradients: Any, gradient: Any | None = None) -> tuple[Estimate, Estimate]:
    """Estimate the two noise constants of a stochastic gradient g from below, each as a supremum over points.

    Args:
        reference: φ.
        gradients: minibatch gradients, of shape (samples, n) at one point, or (points, samples, n).
        gradient: ∇f there, of shape (n,) or (points, n); by default the mean of the samples, whose own error makes
            the variance too small by the factor 1 - 1/samples.

    Returns:
        The estimates of σ² in E φ(∇φ*(∇f) - ∇φ*(g)) <= σ² (Theorem 3.1), infinite if a difference leaves the domain
        of φ, and of σ² in E‖g - ∇f‖² <= σ² (bounded variance, for a batch of the given size).
    """
    samples = np.asarray(gradients, dtype=np.float64)
    if samples.ndim == 2:
        samples = samples[None]
    if samples.ndim != 3 or 0 in samples.shape:
        raise ValueError(f"gradients must have shape (samples, n) or (points, samples, n), not {np.shape(gradients)}")
    phi = on_vectors(reference, samples.shape[2])
    mean = samples.mean(axis=1, keepdims=True)
    if gradient is not None:
        if np.size(gradient) != mean.size:
            raise ValueError(f"gradient must have {mean.size} entries, not shape {np.shape(gradient)}")
        mean = np.reshape(np.asarray(gradient, dtype=np.float64), mean.shape)
    difference = phi.precondition(mean, axis=-1) - phi.precondition(samples, axis=-1)
    dual = np.mean(phi(difference, axis=-1), axis=1)
    variance = np.mean(np.sum((samples - mean) ** 2, axis=-1), axis=1)
    return tuple(Estimate(float(np.max(at)), "lower estimate", at) for at in (dual, variance))  # type: ignore[return-value]


def sharpness(
    hvp: Callable[[Floats, Floats], Floats], x: Floats, *, start: Floats | None = None, rtol: float = 1e-3
) -> tuple[float, Floats]:
    """Return λ_max(∇²f(x)), the largest signed eigenvalue of the Hessian, and its eigenvector, by Lanczos' method.

    Args:
        hvp: ``hvp(x, d)`` returns ∇²f(x) d.
        x: the point, of any shape.
        start: an estimate of the eigenvector, of the shape of ``x``, such as the result at a nearby point.
        rtol: the relative accuracy of the eigenvalue; the value found is a lower bound up to it.
    """
    v0: Floats = np.random.default_rng(0).standard_normal(x.size) if start is None else np.ravel(start)
    value, vector, _, _ = _eigenvalue(lambda d: hvp(x, d.reshape(x.shape)).ravel(), x.size, v0, None, rtol)
    return value, vector.reshape(x.shape)

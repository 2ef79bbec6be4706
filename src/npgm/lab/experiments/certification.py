"""A problem run with a method, and held to the theorems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import OptimizeResult

from npgm._common import validate
from npgm._common.array import Floats
from npgm.lab.experiments.solving import instances
from npgm.problems import Constants, Problem, StochasticProblem
from npgm.references import Reference, reference
from npgm.solvers import History, minimize
from npgm.theory import anisotropic_smoothness, certify, oracles
from npgm.theory.bounds import AssumptionError

METHODS = {"npgm": 0.0, "gd": 0.0, "gdm": 0.9}
"""The methods that the theorems cover, with their default momentum: the last two are the first with φ = ½‖·‖²."""

ESTIMATED = ("matrix-factorization", "phase-retrieval")
"""The paper's own problems, for which no constant is known in closed form."""

_SAFETY = 1.5

NOISES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Floats]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "skewed": lambda rng, shape: np.where(rng.random(shape) < 0.9, -1.0 / 3.0, 3.0),
    "heavy": lambda rng, shape: rng.standard_t(3.0, shape) / 3.0**0.5,
}
"""Noise of mean 0 and variance 1, independent in each entry."""


@dataclass(frozen=True)
class Certified:
    """A run with its certificates.

    Args:
        lr: the stepsize of the run.
        constants: those of the problem relative to φ.
        iterations: how many there were.
        report: the bounds against the run.
        descent: the least slack of the descent inequality (4) between successive iterates, relative to 1 + |f|; NaN
            where it was not looked at, or φ overflows.
        estimated: whether the constants are estimates, and the certificates empirical.
        result: what `npgm.minimize` returned; None for stochastic runs.
    """

    lr: float
    constants: Constants
    iterations: int
    report: certify.Report
    descent: float = np.nan
    estimated: bool = False
    result: OptimizeResult | None = None


def certify_problem(
    problem: Problem,
    phi: Reference,
    *,
    method: str = "npgm",
    lr: float | None = None,
    momentum: float | None = None,
    momentum_order: str = "after",
    maxiter: int = 200,
    start: Floats | None = None,
) -> Certified:
    """Run a method on a problem from its start, and hold the run to every theorem that applies.

    Args:
        problem: one whose constants relative to φ are known.
        phi: φ; ½‖·‖² for the methods "gd" and "gdm".
        method: one of `METHODS`.
        lr: γ; by default the largest that a theorem allows, 1/L for β < 1/2 and (1-β)²/L else; with momentum before
            the preconditioner that of Theorem A, or for a φ of bounded domain the one of the least bound of Theorem A'.
        momentum: β.
        momentum_order: ``"after"`` or ``"before"`` the preconditioner.
        maxiter: the number of iterations.
        start: x⁰; by default that of the problem.

    Raises:
        ValueError: if the method has no theorem, or the constants are not known.
    """
    beta, maxiter = _momentum(method, momentum, phi), validate.count("maxiter", maxiter, least=1)
    start, minimiser = problem.start if start is None else start, problem.minimiser
    constants = problem.constants(phi, start.size)
    before = validate.choice("momentum_order", momentum_order, ("after", "before")) == "before"
    ell = gradient_lipschitz(problem) if before else None
    if lr is None:
        lr = _largest(constants, beta) if ell is None else _largest_before(problem, phi, ell, beta, maxiter, start)
    return _run(
        problem,
        phi,
        start,
        constants,
        lr=lr,
        momentum=beta,
        momentum_order=momentum_order,
        gradient_lipschitz=ell,
        maxiter=maxiter,
        minimum=problem.minimum(start.size),
        exact=True,
        convex=problem.convex,
        distance=None if minimiser is None else float(np.linalg.norm(start - minimiser)),
    )


def certify_estimated(
    function: Callable[[Floats], tuple[Any, Floats]],
    hvp: Callable[[Floats, Floats], Floats],
    phi: Reference,
    start: Floats,
    *,
    minimum: float,
    exact: bool = False,
    momentum: float = 0.0,
    maxiter: int = 200,
) -> Certified:
    """Run Algorithm 1 with an L that is estimated along the run, and hold the run to the theorems.

    L is 1.5 times the largest λ_max(∇²φ*(∇f) ∇²f) found at up to twenty iterates; where a run comes upon a larger one,
    it is made again with a smaller γ. The certificates are empirical: L may be larger elsewhere.

    Args:
        function: f and ∇f at a vector of shape (n,).
        hvp: takes x and d to ∇²f(x) d.
        phi: φ.
        start: x⁰, of shape (n,).
        minimum: inf f, or a lower bound of it.
        exact: whether it is inf f.
        momentum: β.
        maxiter: the number of iterations.
    """
    maxiter = validate.count("maxiter", maxiter, least=1)
    oracle, points, L = oracles.from_numpy(function, hvp), [start], -np.inf
    while True:
        found = anisotropic_smoothness(oracle, phi, np.stack(points), max_products=None, rtol=1e-2).value
        if found <= L:
            break
        L = _SAFETY * found
        constants = Constants(L)
        lr = _largest(constants, momentum)
        points = [start]
        minimize(
            function, start, lr=lr, momentum=momentum, reference=phi, maxiter=maxiter, tol=0.0, callback=points.append
        )
        points = points[:: max(len(points) // 20, 1)]
    arguments: dict[str, Any] = {"lr": lr, "momentum": momentum, "maxiter": maxiter, "minimum": minimum, "exact": exact}
    return _run(function, phi, start, constants, estimated=True, **arguments)


def certify_paper(key: str, phi: Reference, *, momentum: float = 0.0, maxiter: int = 200) -> Certified:
    """Certify a run on one of the `ESTIMATED` problems at the paper's size: rank 10 on MovieLens 100K, or n = 1000.

    The stochastic phase retrieval of the paper has no theorem, since its noise is not bounded: this is the whole f.
    """
    validate.choice("problem", key, ESTIMATED)
    arguments: dict[str, Any] = {"momentum": momentum, "maxiter": maxiter}
    if key == "phase-retrieval":
        instance: Any = instances.registry[key](0.5, n=1000, m=300, batch_size=50, threads=1)
        problem = instance.problem(0)
        return certify_estimated(
            problem, problem.hvp, phi, instance.starts([0])[0], minimum=problem.optimum, **arguments
        )
    instance = instances.registry["movielens-factorization"](10, threads=1)
    problem = instance.problem
    function, hvp = instances.on_vectors(problem)
    start = problem.start(0).ravel()
    return certify_estimated(function, hvp, phi, start, minimum=problem.optimum, exact=True, **arguments)


def certify_stochastic(
    problem: Problem,
    phi: Reference,
    *,
    lr: float | None = None,
    momentum: float = 0.0,
    deviation: float = 1.0,
    maxiter: int = 200,
    seeds: int = 20,
    noise: str = "normal",
    start: Floats | None = None,
) -> Certified:
    """Run the stochastic method on a problem, and hold the mean over the seeds to Theorems 3.1, 3.4 and 3.5.

    Theorem 3.4 has runs of its own, of K = maxiter/16, maxiter/4 and maxiter iterations, with the variance of a batch
    of K. With momentum, which is before the preconditioner, the theorems are A and A', and these runs are left out.

    Args:
        problem: one whose constants relative to φ are known. A `StochasticProblem` has a stochastic gradient of its
            own; to the gradient of another one, noise is added.
        phi: φ.
        lr: γ; by default 1/L, and with momentum as in `certify_problem`.
        momentum: β.
        deviation: σ with E‖g - ∇f‖² = σ², for the noise that is added.
        maxiter: the number of iterations.
        seeds: how many runs.
        noise: one of `NOISES`, normal, skewed or with heavy tails.
        start: x⁰; by default that of the problem.
    """
    start, draw = problem.start if start is None else start, NOISES[validate.choice("noise", noise, NOISES)]
    constants = problem.constants(phi, start.size)
    maxiter, deviation = validate.count("maxiter", maxiter, least=1), validate.nonnegative("deviation", deviation)
    ell = gradient_lipschitz(problem) if validate.fraction("momentum", momentum) else None
    if lr is None:
        largest = 1.0 / constants.smoothness
        lr = largest if ell is None else _largest_before(problem, phi, ell, momentum, maxiter, start)
    minimum, common = problem.minimum(start.size), {"smoothness": constants.smoothness}

    def runs(gradient: Any, iterations: int) -> Any:
        return certify.simulate(
            problem, gradient, phi, start, lr=lr, momentum=momentum, iterations=iterations, seeds=range(seeds)
        )

    def noisy(batch: int) -> Any:
        size = deviation / start.size**0.5
        return lambda rng, x: problem(x)[1] + size * draw(rng, (batch, x.size)).mean(axis=0)

    def batched(K: int) -> Any:
        history = runs(noisy(K), K)  # of the mean of K gradients, drawn at once
        return History({**history, "batch": K}, history.method, size=history.size)

    if isinstance(problem, StochasticProblem):
        if momentum:
            raise ValueError(f"Theorems A and A' need a bounded variance, and that of {problem.key} is not known to be")
        report = certify.stochastic(
            runs(problem.sample, maxiter),
            minimum=minimum,
            exact=True,
            pl=constants.pl,
            noise=problem.noise(phi),
            **common,
        )
        report.refused["Theorem 3.4"] = str(
            AssumptionError("Theorem 3.4", "a bounded variance", f"that of {problem.key} is not known to be bounded")
        )
        return Certified(lr, constants, maxiter, report)
    report = certify.stochastic(
        runs(noisy(1), maxiter),
        minimum=minimum,
        exact=True,
        pl=constants.pl,
        variance=deviation * deviation,
        gradient_lipschitz=ell,
        **common,
    )
    if momentum:
        return Certified(lr, constants, maxiter, report)
    sizes = sorted({max(maxiter // 16, 1), max(maxiter // 4, 1), maxiter})
    growing = certify.growing_batches(
        [batched(K) for K in sizes], minimum=minimum, variance=deviation * deviation, **common
    )
    both = certify.Report(
        report.certificates + growing.certificates,
        report.refused | growing.refused,
        report.undecided | growing.undecided,
    )
    return Certified(lr, constants, maxiter, both)


def noise_conditions(problem: StochasticProblem, phi: Reference, reach: float = 100.0) -> tuple[Floats, Floats, Floats]:
    """Return x, E φ(∇φ*(f') - ∇φ*(g)) and E|g - f'|² over a range of the line, as in Example 3.3 of the paper.

    Args:
        problem: a problem on the line whose `gradients` are the values of g, with equal chances.
        phi: φ.
        reach: x in [-reach, reach].
    """
    gradients = getattr(problem, "gradients", None)
    if gradients is None:
        raise ValueError(f"{problem.key} does not list the values of its stochastic gradient")
    x = np.linspace(-validate.positive("reach", reach), reach, 4001)[:, None]
    full, values = problem(x)[1], np.stack(gradients(x))
    dual = np.mean(phi(phi.precondition(full, axis=-1) - phi.precondition(values, axis=-1), axis=-1), axis=0)
    variance = np.mean(np.sum((values - full) ** 2, axis=-1), axis=0)
    return x[:, 0], dual, variance


def _momentum(method: str, momentum: float | None, phi: Reference) -> float:
    beta = METHODS[validate.choice("method", method, METHODS)] if momentum is None else momentum
    if method != "npgm" and phi != reference("isotropic-quad"):
        raise ValueError(f"method {method!r} has the reference isotropic-quad, not {phi!r}")
    return validate.fraction("momentum", beta)


def _largest(constants: Constants, momentum: float) -> float:
    """Return the largest γ that a theorem allows."""
    L = constants.smoothness
    return 1.0 / L if momentum < 0.5 else (1.0 - momentum) ** 2 / max(L, constants.lipschitz or L)


def gradient_lipschitz(problem: Problem) -> float:
    """Return the Lipschitz constant of ∇f itself.

    Raises:
        ValueError: if there is none, or it is not known.
    """
    try:
        constants = problem.constants("isotropic-quad", problem.start.size)
    except ValueError as error:
        raise ValueError(f"Theorems A and A' need the Lipschitz constant of ∇f itself, and {error}") from None
    return constants.smoothness if constants.lipschitz is None else constants.lipschitz


def _largest_before(problem: Problem, phi: Reference, ell: float, beta: float, maxiter: int, start: Floats) -> float:
    """Return the largest γ of Theorem A; for a φ of bounded domain the one of the least bound of Theorem A'."""
    if phi.radius == np.inf:
        a, b = 1.0 / phi.kernel.mu, (beta / (1.0 - beta)) ** 2 / phi.kernel.mu
        return float(2.0 / (a + (a**2 + 4.0 * b) ** 0.5)) / ell * phi.scale  # aq + bq² = 1 for q = γℓ/λ
    gap = float(problem(start)[0]) - problem.minimum(start.size)
    drift = ell * phi.euclidean_radius(start.shape) ** 2 * (2.0 * beta / (1.0 - beta) + 0.5)
    return float((gap / (drift * maxiter)) ** 0.5)  # the least of D0/(γK) + γ drift


def _run(
    function: Callable[[Floats], tuple[Any, Floats]],
    phi: Reference,
    start: Floats,
    constants: Constants,
    *,
    lr: float,
    momentum: float,
    maxiter: int,
    momentum_order: str = "after",
    estimated: bool = False,
    **known: Any,
) -> Certified:
    points: list[Floats] = [start]
    result = minimize(
        function,
        start,
        lr=lr,
        momentum=momentum,
        momentum_order=momentum_order,
        reference=phi,
        maxiter=maxiter,
        tol=0.0,
        history=True,
        callback=lambda x: points.append(x),
    )
    report = certify.deterministic(
        result.history,
        smoothness=constants.smoothness,
        lipschitz=constants.lipschitz,
        pl=constants.pl,
        **known,
    )
    least = 0.0
    for i in range(0, len(points) - 1, 16):  # a few at a time, since they may be large
        slack = certify.descent(function, phi, np.stack(points[i : i + 17]), constants.smoothness)
        scale = 1.0 + np.abs(result.history["fun"][i : i + len(slack)])
        least = float(np.minimum(least, np.min(slack / scale[:, None])))
    return Certified(lr, constants, result.nit, report, least, estimated, result)

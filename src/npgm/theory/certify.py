"""Runs held to the theorems: for each one that applies, its bound against what was observed, and why others do not.

>>> import npgm
>>> problem = npgm.problems.registry["cosh-sum"](c=2.0)
>>> phi = npgm.reference("separable-cosh")
>>> run = npgm.minimize(problem, problem.start, lr=0.5, reference=phi, maxiter=50, history=True)
>>> constants = problem.constants(phi)
>>> report = npgm.theory.certify.deterministic(
...     run.history, smoothness=constants.smoothness, pl=constants.pl, minimum=problem.minimum(1)
... )
>>> report.holds, [certificate.bound.theorem for certificate in report.certificates]
(True, ['The base bound', 'Theorem 2.2', 'Theorem 2.4, refined'])
>>> report.refused["Theorem 2.4"]
'Theorem 2.4 does not apply: it assumes β > 0, but β = 0'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from npgm import _validate
from npgm._array import Floats
from npgm._files import replacing
from npgm.references import Isotropic, Reference, as_reference
from npgm.solvers import History
from npgm.solvers.methods.npgm import NPGM
from npgm.theory import bounds
from npgm.theory.bounds import AssumptionError, Bound

Function = Callable[[Floats], tuple[Any, Floats]]

_RTOL, _ERRORS, _EPS = 1e-9, 3.0, float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Certificate:
    """A bound and what it bounds.

    Args:
        bound: the bound at each k.
        observed: the quantity at each k; for a stochastic run, its mean over the seeds.
        error: the standard error of that mean, 0 for a deterministic run.
    """

    bound: Bound
    observed: Floats = field(repr=False)
    error: Floats = field(repr=False)

    @property
    def slack(self) -> Floats:
        """The bound minus the observed quantity at each k."""
        return self.bound.values - self.observed

    @property
    def ratio(self) -> float:
        """The largest quotient of the observed quantity and its bound; at most 1 if the bound held everywhere."""
        observed, bound = self._said()
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = np.where(observed <= 0.0, 0.0, observed / bound)
        return float(np.max(ratios, initial=0.0))

    @property
    def holds(self) -> bool:
        """Whether the bound held at each k, up to rounding and three standard errors of the mean."""
        observed, bound = self._said()
        allowed = bound * (1.0 + _RTOL) + _ERRORS * self.error[~np.isnan(self.bound.values)] + 1e-300
        return bool(np.all(observed <= allowed))

    def _said(self) -> tuple[Floats, Floats]:
        """Return the quantity and its bound at those k for which there is one, no smaller than what rounding leaves."""
        said = ~np.isnan(self.bound.values)
        observed = self.observed[said]
        return observed, np.maximum(self.bound.values[said], _EPS * np.max(observed, initial=0.0))


@dataclass(frozen=True)
class Report:
    """The certificates of a run, and the theorems that do not apply to it.

    Args:
        certificates: one for each theorem that applies.
        refused: for each other one, which assumption fails.
    """

    certificates: list[Certificate]
    refused: dict[str, str]

    @property
    def holds(self) -> bool:
        """Whether every bound held."""
        return all(certificate.holds for certificate in self.certificates)

    def plot(self, path: str | Path) -> None:
        """Draw each bound (dashed) and the observed quantity (solid) against the iteration; needs Matplotlib.

        A bound is drawn thin where it is vacuous.
        """
        import matplotlib.figure

        quantities = list(dict.fromkeys(c.bound.quantity for c in self.certificates))
        figure = matplotlib.figure.Figure(figsize=(5.0 * max(len(quantities), 1), 3.6), layout="constrained")
        for ax, quantity in zip(
            figure.subplots(1, max(len(quantities), 1), squeeze=False)[0], quantities, strict=False
        ):
            shown = [c for c in self.certificates if c.bound.quantity == quantity]
            ax.plot(shown[0].observed, color="black", label="observed")
            for i, certificate in enumerate(shown):
                values = certificate.bound.values
                label = f"{certificate.bound.theorem} ({certificate.bound.provenance})"
                ax.plot(values, color=f"C{i}", linestyle="--", linewidth=0.7)
                ax.plot(np.where(certificate.bound.vacuous, np.nan, values), f"C{i}", linestyle="--", label=label)
            ax.set(yscale="log", xlabel="iteration", title=quantity)
            ax.grid(alpha=0.3)
            ax.legend(fontsize="small")
        path = Path(path)
        with replacing(path) as file:
            figure.savefig(file, format=path.suffix.removeprefix(".") or "png")


def deterministic(
    history: History,
    *,
    smoothness: float,
    lipschitz: float | None = None,
    pl: float | None = None,
    minimum: float,
    convex: bool = False,
    distance: float | None = None,
) -> Report:
    """Hold a run to every theorem of the paper, and to the derived ones.

    γ, β and φ are those of the history's own method; one that is not Algorithm 1 is refused by every theorem. The
    bounds are as good as the constants: from estimates (see `npgm.theory.smoothness`) they are empirical.

    Args:
        history: that of ``npgm.minimize(..., history=True)``, of one run.
        smoothness: L of the descent inequality (4).
        lipschitz: the Lipschitz constant of ∇φ*(∇f), for Theorem 2.7.
        pl: the PL constant μ, for Theorem 2.4.
        minimum: inf f, or a lower bound of it.
        convex: whether f is convex.
        distance: the distance of the start from a minimiser, for the bound of an isotropic φ on a convex f.

    Raises:
        TypeError, ValueError: if ``history`` does not know its method, or is not that of one run.
    """
    reference, momentum = _method(history)
    fun, norms, measure = (_series(history, name) for name in ("fun", "grad_norm", "stationarity"))
    gap = fun - _validate.real("minimum", minimum)
    if (gap < -_RTOL * np.abs(fun)).any():
        raise ValueError(f"minimum = {minimum!r} is above f at iteration {int(np.argmin(gap))} of the run")
    gap = np.maximum(gap, 0.0)
    step: dict[str, Any] = {"smoothness": smoothness, "lr": history.method.lr, "gap": float(gap[0])}
    run = {**step, "iterations": fun.size - 1}
    heavy: dict[str, Any] = {**run, "momentum": momentum}
    trials: dict[str, Callable[[], Bound]] = {
        "The base bound": lambda: _base(reference, run, momentum),
        "Theorem 2.2": lambda: bounds.theorem_2_2(reference, **heavy),
    }
    if pl is not None:
        for refined in (False, True):
            trials[f"Theorem 2.4{', refined' * refined}"] = lambda refined=refined: bounds.theorem_2_4(  # type: ignore[misc]
                reference, pl=pl, refined=refined, **heavy
            )
    if lipschitz is not None:
        for tight in (False, True):
            trials[f"Theorem 2.7{', tight' * tight}"] = lambda tight=tight: bounds.theorem_2_7(  # type: ignore[misc]
                reference, lipschitz=lipschitz, first=float(measure[0]), tight=tight, **heavy
            )
    if convex and momentum == 0.0:
        trials["The convex bound on φ*(∇f)"] = lambda: bounds.convex_conjugate(reference, convex=True, **run)
        if distance is not None:
            trials["The convex bound on f"] = lambda: bounds.convex_isotropic(
                reference, convex=True, distance=distance, gradient_norms=norms, **step
            )
    observed: dict[str, Callable[[], Floats]] = {
        "mean stationarity": lambda: np.cumsum(measure) / np.arange(1, measure.size + 1),
        "mean stationarity from 1": lambda: np.concatenate(
            [[np.nan], np.cumsum(measure[1:]) / np.arange(1, measure.size)]
        ),
        "gap": lambda: gap,
        "conjugate": lambda: _conjugate(reference, norms),
    }
    return _report(history, trials, lambda bound: (observed[bound.quantity](), np.zeros(fun.size)))


def _base(reference: Reference, run: dict[str, Any], momentum: float) -> Bound:
    _without_momentum("The base bound", momentum)
    return bounds.base_method(reference, **run)


def _without_momentum(theorem: str, momentum: float) -> None:
    if momentum > 0.0:
        raise AssumptionError(theorem, "β = 0", f"β = {momentum:g}")


def _conjugate(reference: Reference, norms: Floats) -> Floats:
    if not isinstance(reference, Isotropic):
        raise AssumptionError(
            "The convex bound on φ*(∇f)", "φ isotropic, to be observed in a history", f"φ is {reference.name}"
        )
    values: Floats = reference.conjugate(norms[:, None], axis=-1)
    return values


def stochastic(
    history: History,
    *,
    smoothness: float,
    minimum: float,
    noise: float | None = None,
    variance: float | None = None,
    pl: float | None = None,
) -> Report:
    """Hold stochastic runs, without momentum, to Theorems 3.1 and 3.5, in the mean over the seeds.

    Theorem 3.4 is about a batch that grows with the number of iterations, so that it is not held to a single run; for
    a fixed batch, Theorem 3.1 with the noise of Proposition 3.2 is its counterpart. For momentum the paper has no
    stochastic theorem.

    Args:
        history: arrays "fun" and "stationarity" of shape (iterations + 1, seeds), of f and φ(∇φ*(∇f)) with the full
            gradient, and the method, as `simulate` returns them.
        smoothness: L of the descent inequality (4).
        minimum: inf f, or a lower bound of it.
        noise: σ² with E φ(∇φ*(∇f) - ∇φ*(g)) <= σ² everywhere.
        variance: σ² with E‖g - ∇f‖² <= σ² everywhere, in place of ``noise``, which then follows from Proposition 3.2.
        pl: the PL constant μ, for Theorem 3.5.

    Raises:
        TypeError, ValueError: if ``history`` does not know its method, or not exactly one of ``noise`` and
            ``variance`` is given.
        AssumptionError: if a variance is given, and φ does not turn it into a noise.
    """
    reference, momentum = _method(history)
    if (noise is None) == (variance is None):
        raise ValueError("exactly one of noise and variance must be given")
    if noise is None:
        noise = bounds.proposition_3_2(reference, variance)  # type: ignore[arg-type]
    fun, measure = (np.asarray(history[name], dtype=np.float64) for name in ("fun", "stationarity"))
    if fun.ndim != 2 or fun.shape != measure.shape:
        raise ValueError(f"the history must have shape (iterations + 1, seeds), not {fun.shape} and {measure.shape}")
    gap = fun - _validate.real("minimum", minimum)
    run: dict[str, Any] = {
        "smoothness": smoothness,
        "lr": history.method.lr,
        "gap": float(np.max(gap[0])),
        "noise": noise,
        "iterations": fun.shape[0] - 1,
    }
    trials: dict[str, Callable[[], Bound]] = {"Theorem 3.1": lambda: bounds.theorem_3_1(reference, **run)}
    if pl is not None:
        trials["Theorem 3.5"] = lambda: bounds.theorem_3_5(reference, pl=pl, **run)
    averages = np.cumsum(measure, axis=0) / np.arange(1, fun.shape[0] + 1)[:, None]

    def observed(bound: Bound) -> tuple[Floats, Floats]:
        samples = gap if bound.quantity == "gap" else averages
        error = (
            samples.std(axis=1, ddof=1) / samples.shape[1] ** 0.5 if samples.shape[1] > 1 else np.zeros(len(samples))
        )
        return samples.mean(axis=1), error

    return _report(history, trials, observed, lambda theorem: _without_momentum(theorem, momentum))


def simulate(
    function: Function,
    gradient: Callable[[np.random.Generator, Floats], Floats],
    reference: Reference | str,
    start: Floats,
    *,
    lr: float,
    iterations: int,
    seeds: Sequence[int],
) -> History:
    """Run x ← x - γ ∇φ*(g(x)) from ``start`` for each seed, and record what `stochastic` needs.

    Args:
        function: f and ∇f at a vector of shape (n,).
        gradient: takes a generator and x to a stochastic gradient g(x).
        reference: φ.
        start: x^0, of shape (n,).
        lr: γ.
        iterations: the number of steps.
        seeds: one run each.

    Returns:
        Arrays "fun" and "stationarity" of shape (iterations + 1, seeds), with the method.
    """
    method, iterations = NPGM(lr, reference=as_reference(reference)), _validate.count("iterations", iterations)
    records = np.empty((2, iterations + 1, len(seeds)))
    for column, seed in enumerate(seeds):
        rng, x = np.random.default_rng(seed), np.array(start, dtype=np.float64)
        for k in range(iterations + 1):
            value, full = function(x)
            records[:, k, column] = value, method.reference.stationarity(full)
            x = x - method.lr * method.reference.precondition(gradient(rng, x))
    return History({"fun": records[0], "stationarity": records[1]}, method)


def descent(function: Function, reference: Reference | str, points: Any, smoothness: float) -> Floats:
    """Return the slack of the descent inequality (4) between each of the points and the next one, both ways.

    f(y) <= f(x) + (1/L) [φ(L (y - x) + ∇φ*(∇f(x))) - φ(∇φ*(∇f(x)))]: right side minus left side, +∞ where the
    argument leaves the domain of φ. Negative beyond rounding, it refutes L.

    Args:
        function: f and ∇f at a vector of shape (n,).
        reference: φ.
        points: of shape (k + 1, n), such as the iterates of a run.
        smoothness: L.

    Returns:
        An array of shape (k, 2): from x^j to x^{j+1}, and back.
    """
    phi, L = as_reference(reference), _validate.positive("smoothness", smoothness)
    points = np.asarray(points, dtype=np.float64)
    if points.ndim != 2 or points.shape[0] < 2:
        raise ValueError(f"points must have shape (k + 1, n) with k >= 1, not {points.shape}")
    pairs = [function(x) for x in points]
    values = np.array([float(value) for value, _ in pairs])
    u = phi.precondition(np.stack([grad for _, grad in pairs]), axis=-1)
    measure = phi.stationarity(np.stack([grad for _, grad in pairs]), axis=-1)

    def slack(source: slice, target: slice) -> Floats:
        model = phi(L * (points[target] - points[source]) + u[source], axis=-1) - measure[source]
        difference: Floats = values[source] + model / L - values[target]
        return difference

    with np.errstate(over="ignore"):
        return np.stack([slack(slice(None, -1), slice(1, None)), slack(slice(1, None), slice(None, -1))], axis=1)


def _report(
    history: History,
    trials: dict[str, Callable[[], Bound]],
    observe: Callable[[Bound], tuple[Floats, Floats]],
    assume: Callable[[str], None] = lambda theorem: None,
) -> Report:
    certificates, refused = [], {}
    for name, trial in trials.items():
        try:
            if history.method.as_npgm is None:
                raise AssumptionError(name, "Algorithm 1 of the paper", f"the run is one of {history.method!r}")
            assume(name)
            bound = trial()
            certificates.append(Certificate(bound, *observe(bound)))
        except AssumptionError as error:
            refused[name] = str(error)
    return Report(certificates, refused)


def _method(history: History) -> tuple[Reference, float]:
    """Return φ and β of the run; β is 0 where no theorem applies."""
    if not isinstance(history, History):
        raise TypeError(
            "history must be that of npgm.minimize(..., history=True), or an npgm.solvers.History, which knows the "
            f"method of the run, not {type(history).__name__}"
        )
    method = history.method.as_npgm
    return history.method.measure, 0.0 if method is None else method.momentum


def _series(history: History, name: str) -> Floats:
    if name not in history:
        raise ValueError(f"history has no {name!r}; run minimize with history=True")
    values = np.asarray(history[name], dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"history must be that of one run, but {name!r} has shape {values.shape}")
    return values

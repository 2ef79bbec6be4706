"""Certificates of stochastic runs, in the mean over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from npgm._common import validate
from npgm._common.array import Floats
from npgm.references import Reference
from npgm.solvers import History
from npgm.solvers.methods.npgm import NPGM
from npgm.theory import bounds
from npgm.theory.bounds import AssumptionError, Bound
from npgm.theory.certify import assume
from npgm.theory.certify.momentum import trials_before_the_map
from npgm.theory.certify.report import Report, Trials, report
from npgm.theory.certify.rounding import gap as gap_above
from npgm.theory.certify.rounding import resolution as resolve
from npgm.theory.flat import on_vectors

Function = Callable[[Floats], tuple[Any, Floats]]
StochasticGradient = Callable[[np.random.Generator, Floats], Floats]

_FALSE_ALARMS = 1e-3
"""How often chance alone may make a certificate fail, whatever the distribution of the runs."""

_BETS = np.linspace(0.0625, 1.0, 16)


def simulate(
    function: Function,
    gradient: StochasticGradient,
    reference: Reference | str,
    start: Floats,
    *,
    lr: float,
    iterations: int,
    seeds: Sequence[int],
    batch: int = 1,
    momentum: float = 0.0,
    variance_reduction: bool = False,
) -> History:
    """Run x ← x - γ ∇φ*(m), m ← β m + (1-β) g(x), from ``start`` and m = 0, and record what `stochastic` needs.

    Args:
        function: f and ∇f at a vector of shape (n,).
        gradient: takes a generator and x to a stochastic gradient g(x).
        reference: φ, or its name.
        start: x^0, of shape (n,).
        lr: γ.
        iterations: the number of steps.
        seeds: one run for each; they must differ.
        batch: how many stochastic gradients a step averages.
        momentum: β, before the preconditioner.
        variance_reduction: whether m ← g(x) + β (m - g(x⁻)), with both gradients of one sample and x⁻ the point before:
            STORM (Cutkosky and Orabona, 2019). ``gradient`` is called at both with the generator in the same state. No
            certificate is about such a run with β > 0.

    Returns:
        Arrays "fun", "stationarity", "grad_norm", "conjugate", φ*(∇f), and "momentum", φ of the last step over γ, of
        shape (iterations + 1, seeds), the number "batch", the list "seeds", and "variance_reduction" if asked for, with
        the method.

    Raises:
        ValueError: if there is no seed, or one of them twice; or if φ is spectral and x^0 has several entries.
    """
    start, seeds = np.array(start, dtype=np.float64), list(seeds)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must be distinct, and at least one, not {seeds!r}")
    phi = on_vectors(reference, start.size)
    method = NPGM(lr, reference=phi, momentum=momentum, momentum_order="before")
    iterations = validate.count("iterations", iterations)
    batch = validate.count("batch", batch, least=1)
    names = ("fun", "stationarity", "grad_norm", "conjugate", "momentum")
    records = np.empty((len(names), iterations + 1, len(seeds)))

    def mean_gradient(rng: np.random.Generator, x: Floats) -> Any:
        mean = sum(gradient(rng, x) for _ in range(batch)) / batch
        if np.shape(mean) != x.shape:
            raise ValueError(f"gradient must return an array of shape {x.shape}, not {np.shape(mean)}")
        return mean

    for column, seed in enumerate(seeds):
        rng, x, m = np.random.default_rng(seed), start, np.zeros_like(start)
        last = x
        for k in range(iterations + 1):
            value, full = function(x)
            measures = phi.stationarity(full), np.linalg.norm(full), phi.conjugate(full), phi.stationarity(m)
            records[:, k, column] = value, *measures
            if k < iterations:
                if variance_reduction and k > 0:
                    state = rng.bit_generator.state
                    mean = mean_gradient(rng, x)
                    rng.bit_generator.state = state  # the sample of the last draw anew
                    m = mean + method.momentum * (m - mean_gradient(rng, last))
                else:
                    mean = mean_gradient(rng, x)
                    m = mean if variance_reduction else method.momentum * m + (1.0 - method.momentum) * mean
                last, x = x, x - method.lr * phi.precondition(m)
    how: dict[str, Any] = {"batch": batch, "seeds": seeds}
    if variance_reduction:
        how["variance_reduction"] = True
    return History(dict(zip(names, records, strict=True)) | how, method, size=start.size)


def stochastic(
    history: History,
    *,
    smoothness: float,
    minimum: float,
    exact: bool = False,
    noise: float | None = None,
    variance: float | None = None,
    pl: float | None = None,
    gradient_lipschitz: float | None = None,
    resolution: float | None = None,
) -> Report:
    """Check stochastic runs against Theorems 3.1 and 3.5, or with momentum A and A', in the mean over the seeds.

    The theorems bound expectations, so a mean over seeds may exceed its bound by chance. The margin allows for this
    under every distribution: a certificate fails by chance at most once in a thousand. One seed decides nothing. For
    Theorem 3.4, whose batches grow with the number of iterations, see `growing_batches`. For momentum the paper has no
    stochastic theorem.

    Args:
        history: arrays "fun" and "stationarity" of shape (iterations + 1, seeds), of f and φ(∇φ*(∇f)) with the full
            gradient, and the method, as `simulate` returns them.
        smoothness: L of the descent inequality (4).
        minimum: inf f, or a lower bound of it.
        exact: whether ``minimum`` is inf f itself, as Theorem 3.5 needs.
        noise: σ² with E φ(∇φ*(∇f) - ∇φ*(g)) <= σ² everywhere.
        variance: σ² with E‖g - ∇f‖² <= σ² everywhere, in place of ``noise``, which then follows from Proposition 3.2.
        pl: the PL constant μ, for Theorem 3.5.
        gradient_lipschitz: the Lipschitz constant of ∇f itself, for Theorems A and A' on momentum before the
            preconditioner, which need the variance.
        resolution: the error of a value of f, as in `deterministic`.

    Raises:
        TypeError, ValueError: if ``history`` does not know its method, or not exactly one of ``noise`` and
            ``variance`` is given; or if f falls below ``minimum``.
    """
    assume.check(history)
    if (noise is None) == (variance is None):
        raise ValueError("exactly one of noise and variance must be given")
    phi = history.method.stationarity_reference
    fun, stationarity = _runs(history)
    rho = resolve(fun, minimum, eps=history.eps, given=resolution)
    gap = gap_above(fun, minimum)
    run: dict[str, Any] = {
        "smoothness": smoothness,
        "lr": history.method.lr,
        "gap": float(np.max(gap[0])) + rho,
        "iterations": fun.shape[0] - 1,
    }

    def dual() -> float:
        return bounds.proposition_3_2(phi, variance) if noise is None else noise  # type: ignore[arg-type]

    trials: Trials = {"Theorem 3.1": lambda: bounds.theorem_3_1(phi, noise=dual(), **run)}
    if pl is not None:
        trials["Theorem 3.5"] = lambda: bounds.theorem_3_5(phi, pl=pl, noise=dual(), **run)
    before: Trials = {}
    if gradient_lipschitz is not None and variance is not None:
        before = trials_before_the_map(
            history, gradient_lipschitz, gap=run["gap"], iterations=run["iterations"], variance=variance
        )

    def observe(bound: Bound) -> tuple[Floats, ...]:
        rounding = 64.0 * history.eps * np.abs(bound.values)
        if bound.quantity == "gap":
            assume.known_minimum(bound.theorem, minimum, exact)
            mean, chance = _mean(gap)
            return mean, rounding + rho, chance
        of = np.asarray(history["conjugate"]) if bound.quantity == "mean conjugate" else stationarity
        mean, chance = _mean(np.cumsum(of, axis=0) / np.arange(1, fun.shape[0] + 1)[:, None])
        return mean, rounding, chance

    def require(theorem: str) -> None:
        _assume(theorem, history, momentum=theorem in before)
        assume.comparable(theorem, history, float(np.max(gap[0])), rho)

    return report(trials | before, observe, require)


def growing_batches(
    histories: Sequence[History],
    *,
    smoothness: float,
    minimum: float,
    variance: float,
    resolution: float | None = None,
) -> Report:
    """Check stochastic runs against Theorem 3.4: K iterations with a batch of K, for several K.

    Args:
        histories: for each K, that of ``simulate(..., iterations=K, batch=K)``, from one start and with one γ.
        smoothness: L of the descent inequality (4).
        minimum: inf f, or a lower bound of it.
        variance: σ² with E‖g - ∇f‖² <= σ² everywhere for one stochastic gradient, and so σ²/K for the batch.
        resolution: the error of a value of f, as in `deterministic`.

    Returns:
        One certificate, with an entry at K - 1 for each K.
    """
    histories = list(histories)
    if not histories:
        raise ValueError("histories must contain at least one history")
    for history in histories:
        assume.check(history)
        if history.method != histories[0].method:
            raise ValueError(f"histories must have one method, not {histories[0].method!r} and {history.method!r}")
    first = histories[0]
    last = max(len(_runs(history)[0]) for history in histories) - 1
    observed, chance, D0 = np.full(last, np.nan), np.full(last, np.nan), 0.0
    gaps: list[tuple[float, float]] = []
    for history in histories:
        fun, stationarity = _runs(history)
        K = len(fun) - 1
        if K < 1:
            raise ValueError("a history of no iteration says nothing of Theorem 3.4")
        if not np.isnan(observed[K - 1]):
            raise ValueError(f"histories must differ in their numbers of iterations, but two have {K}")
        rho = resolve(fun, minimum, eps=history.eps, given=resolution)
        gaps.append((float(np.max(gap_above(fun[0], minimum))), rho))
        D0 = max(D0, sum(gaps[-1]))
        if fun.shape[1] > 1:
            observed[K - 1], chance[K - 1] = (part[0] for part in _mean(stationarity[:-1].mean(axis=0, keepdims=True)))

    def trial() -> Bound:
        bound = bounds.theorem_3_4(
            first.method.stationarity_reference,
            smoothness=smoothness,
            lr=first.method.lr,
            gap=D0,
            variance=variance,
            iterations=last - 1,
        )
        return replace(bound, values=np.where(np.isnan(observed), np.nan, bound.values))

    def require(theorem: str) -> None:
        for history, (gap, rho) in zip(histories, gaps, strict=True):
            _assume(theorem, history)
            assume.comparable(theorem, history, gap, rho)
            K = len(history["fun"]) - 1
            if history.get("batch") != K:
                found = f"one run has {K} iterations and batch {history.get('batch')}"
                raise AssumptionError(theorem, "a batch of as many as there are iterations", found)

    def observe(bound: Bound) -> tuple[Floats, ...]:
        return observed, 64.0 * first.eps * np.abs(bound.values), chance

    return report({"Theorem 3.4": trial}, observe, require)


def _runs(history: History) -> tuple[Floats, Floats]:
    for name in ("fun", "stationarity"):
        if name not in history:
            raise ValueError(f"history has no {name!r}; it must be one of npgm.theory.certify.simulate")
    fun, stationarity = (np.asarray(history[name], dtype=np.float64) for name in ("fun", "stationarity"))
    if fun.ndim != 2 or fun.shape != stationarity.shape:
        raise ValueError(
            f"the history must have shape (iterations + 1, seeds), not {fun.shape} and {stationarity.shape}"
        )
    seeds = list(history.get("seeds", range(fun.shape[1])))
    if len(seeds) != fun.shape[1] or len(set(seeds)) < len(seeds):
        raise ValueError(f"each of the {fun.shape[1]} runs must have its own seed, but the history has {seeds}")
    return fun, stationarity


def _assume(theorem: str, history: History, *, momentum: bool = False) -> None:
    if momentum:
        assume.before_the_map(theorem, history)
    else:
        assume.algorithm_1(theorem, history)
        assume.without_momentum(theorem, history.method.as_npgm.momentum)  # type: ignore[union-attr]
    fun, _ = _runs(history)
    assume.some_steps(theorem, len(fun) - 1)
    if fun.shape[1] < 2:
        raise assume.UndecidedError(
            f"{theorem} is about an expectation, which needs two seeds at least, and there is one"
        )


def _mean(samples: Floats) -> tuple[Floats, Floats]:
    """Return the mean over the seeds at each k, and by how much chance may carry it too far.

    For independent X ≥ 0 of mean c, the average over w of ∏(1 - w + wX/c) has the expectation 1, and so exceeds t with
    a chance of at most 1/t (Markov; Waudby-Smith and Ramdas 2024 bet so). The margin is from the mean to the least c
    at which it does not, with t such that all k together fail by chance once in a thousand.
    """
    mean = samples.mean(axis=1)
    shares = samples / np.where(mean > 0.0, mean, 1.0)[:, None]
    limit = np.log(len(mean) * len(_BETS) / _FALSE_ALARMS)
    low, high = np.zeros_like(mean), np.ones_like(mean)  # c over the mean
    for _ in range(30):
        middle = 0.5 * (low + high)
        excess = shares / middle[:, None] - 1.0
        with np.errstate(divide="ignore"):  # a share of 0 loses the bet w = 1
            gains = logsumexp([np.log1p(w * excess).sum(axis=1) for w in _BETS], axis=0)
        low, high = np.where(gains > limit, middle, low), np.where(gains > limit, high, middle)
    return mean, (1.0 - low) * mean

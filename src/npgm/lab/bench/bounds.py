"""How close runs come to the bounds of the theorems: random runs on the known problems, and known close ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from typer import Exit, Option

import npgm
from npgm._common.array import Floats
from npgm.lab.experiments.certification import NOISES, certify_problem, certify_stochastic
from npgm.lab.style import FAINT, INK, STYLES, blank, drawing, save
from npgm.lab.terminal import console, new_table, show
from npgm.problems import Constants, Problem
from npgm.problems.multivariate import QuadraticForm, ScaledReference
from npgm.references import Isotropic, Reference
from npgm.theory.certify import Certificate, auto

KERNELS = ("cosh", "exp", "mix3", "mix4", "quad", "log", "sqrt", "lncos")
SHAPE = (3, 2)
"""Of the matrix that a spectral φ sees, where a problem has as many variables as one wants."""
NONE, SMALL, LARGE = (0.0,), (0.1, 0.3, 0.49), (0.5, 0.7, 0.9, 0.99)
BETAS = SMALL + LARGE
_OF_MOMENTUM = ("Theorem 2.2", "Theorem B")
"""Without momentum they are the base bound."""
_COLUMNS = 4
_HIGHEST = 1e12


class Case(NamedTuple):
    """A run in words, its certificate, and the largest ratio of what was observed to the bound, after the start.

    For a mean over seeds, what was observed is the least expectation that chance leaves room for.
    """

    words: str
    certificate: Certificate
    ratio: float


class Draw(NamedTuple):
    """A problem, a φ and a start, with random numbers for what else a run needs."""

    problem: Problem
    phi: Reference
    start: Floats
    rng: np.random.Generator
    iterations: int
    seeds: int

    @property
    def constants(self) -> Constants:
        """Those of the problem relative to φ."""
        return self.problem.constants(self.phi, self.start.size)

    @property
    def smoothness(self) -> float:
        """L."""
        return self.constants.smoothness

    @property
    def lipschitz(self) -> float:
        """The larger of L and L_p."""
        return max(self.smoothness, self.constants.lipschitz or 0.0)

    def certified(self, momentum: float, lr: float | None = None, order: str = "after") -> list[Certificate]:
        """Return the certificates of a run of Algorithm 1, or with momentum before the preconditioner."""
        options: dict[str, Any] = {"momentum": momentum, "lr": lr, "momentum_order": order, "start": self.start}
        found = certify_problem(self.problem, self.phi, maxiter=self.iterations, **options).report.certificates
        return [c for c in found if momentum or c.bound.theorem not in _OF_MOMENTUM]

    def stochastic(self, momentum: float) -> list[Certificate]:
        """Return the certificates of runs with one of the three noises, or that of the problem itself."""
        options: dict[str, Any] = {
            "noise": str(self.rng.choice([*NOISES])),
            "deviation": 10.0 ** self.rng.uniform(-1, 1),
        }
        return certify_stochastic(
            self.problem,
            self.phi,
            momentum=momentum,
            maxiter=self.iterations,
            seeds=self.seeds,
            start=self.start,
            **options,
        ).report.certificates

    def by_rule(self, lr: Any, momentum: float = 0.0) -> list[Certificate]:
        """Return the certificates of a run that need no L."""
        history = npgm.minimize(
            self.problem,
            self.start,
            lr=lr,
            momentum=momentum,
            reference=self.phi,
            maxiter=self.iterations,
            tol=0.0,
            history=True,
        ).history
        return auto(history, minimum=self.problem.minimum(self.start.size)).certificates

    def share(self, low: float = 0.1, high: float = 1.0) -> float:
        """Return a random share of the largest stepsize."""
        return float(self.rng.uniform(low, high))

    def rate_of_b(self, beta: float) -> float:
        """Return a γ of Theorem B."""
        return min(self.share() * (1.0 - beta) / (beta * self.lipschitz), 1.0 / self.smoothness)


class Kind(NamedTuple):
    """Runs that a theorem is about: with which β and draws, and their certificates."""

    theorem: str
    betas: tuple[float, ...]
    needs: Callable[[Draw], bool]
    certificates: Callable[[Draw, float], list[Certificate]]


def _any(draw: Draw) -> bool:
    return True


def _convex(draw: Draw) -> bool:
    return isinstance(draw.phi, Isotropic) and draw.problem.convex


def _pl(draw: Draw) -> bool:
    return draw.constants.pl is not None


def _isotropic(draw: Draw) -> bool:
    return isinstance(draw.phi, Isotropic) and draw.constants.lipschitz is not None


def _full(draw: Draw) -> bool:
    return draw.phi.kernel.noise_inequality


def _bounded(draw: Draw) -> bool:
    return draw.phi.radius < np.inf


KINDS = (
    Kind("The base bound", NONE, _any, lambda draw, beta: draw.certified(beta, draw.share(0.1, 2.0) / draw.smoothness)),
    Kind(
        "The convex bound on f", NONE, _convex, lambda draw, beta: draw.certified(beta, draw.share() / draw.smoothness)
    ),
    Kind("Theorem 2.2", SMALL, _any, Draw.certified),
    Kind("Theorem 2.4", SMALL, _pl, Draw.certified),
    Kind("Theorem 2.7", BETAS, _isotropic, lambda draw, beta: draw.certified(beta, (1.0 - beta) ** 2 / draw.lipschitz)),
    Kind("Theorem B", BETAS, _isotropic, lambda draw, beta: draw.certified(beta, draw.rate_of_b(beta))),
    Kind("Theorem 2.2, variable stepsizes", SMALL, _any, lambda draw, beta: draw.by_rule("backtracking", beta)),
    Kind("Theorem B, variable stepsizes", LARGE, _isotropic, lambda draw, beta: draw.by_rule("backtracking", beta)),
    Kind("Nonmonotone descent", BETAS, _any, lambda draw, beta: draw.by_rule("auto", beta)),
    Kind("Theorem A", BETAS, _full, lambda draw, beta: draw.certified(beta, None, "before")),
    Kind("Theorem A'", BETAS, _bounded, lambda draw, beta: draw.certified(beta, None, "before")),
    Kind("Theorem 3.4", NONE, _full, Draw.stochastic),
    Kind("Theorem 3.5", NONE, lambda draw: _full(draw) and _pl(draw), Draw.stochastic),
    Kind("Theorem A", BETAS, _full, Draw.stochastic),
    Kind("Theorem A'", BETAS, _bounded, Draw.stochastic),
)


def run(
    runs: Annotated[int, Option(min=0, help="Random runs of each kind.")] = 100,
    iterations: Annotated[int, Option(min=4, help="How many iterations a random run has.")] = 60,
    seeds: Annotated[int, Option(min=2, help="How many runs a stochastic bound is compared with.")] = 20,
    problems: Annotated[list[str] | None, Option(help="A problem; by default all; repeatable.")] = None,
    plot: Annotated[Path | None, Option(help="Draw the closest runs into this file.")] = None,
) -> None:
    """Print the closest run of each theorem, of random ones and of known ones, and draw it beside the bound.

    The exit code is 1 if a ratio is above 1, which would refute a theorem.
    """
    found = [*random_runs(problems or sorted(npgm.problems.registry), runs, iterations, seeds)]
    known = [*known_runs()] if problems is None else []
    closest = {theorem: max(cases, key=lambda case: case.ratio) for theorem, cases in by_theorem(found + known).items()}
    of_random, of_known = by_theorem(found), by_theorem(known)
    table = new_table("theorem", "runs", "worst", "known", "closest run", wrapped=("closest run",))
    for theorem, case in closest.items():
        random, best = of_random.get(theorem, []), of_known.get(theorem, [])
        worst = (f"{max(case.ratio for case in cases):.2f}" if cases else "–" for cases in (random, best))
        table.add_row(theorem, str(len(random)), *worst, case.words)
    console.print(table)
    if plot is not None:
        _draw(closest, plot)
        show([plot])
    if any(case.ratio > 1.0 + 1e-9 for case in closest.values()):
        raise Exit(1)


def by_theorem(cases: list[Case]) -> dict[str, list[Case]]:
    """Return the cases of each theorem, in the order of their names."""
    theorems = sorted({case.certificate.bound.theorem for case in cases})
    return {theorem: [case for case in cases if case.certificate.bound.theorem == theorem] for theorem in theorems}


def random_runs(problems: list[str], runs: int, iterations: int, seeds: int) -> Iterator[Case]:
    """Yield the certificates of random runs, so many of each kind, or fewer where the problems have none of it."""
    for number, kind in enumerate(KINDS):
        rng, made, tried = np.random.default_rng(number), 0, 0
        while made < runs and tried < 100 * runs:
            tried += 1
            draw, beta = _draw_run(rng, problems, iterations, seeds), float(rng.choice(kind.betas))
            if draw is None or not kind.needs(draw):
                continue
            try:
                found = kind.certificates(draw, beta)
            except ValueError:
                continue
            made += kind.theorem in {certificate.bound.theorem for certificate in found}
            yield from _cases(f"{draw.problem.key}, {draw.phi.name}, β = {beta:g}, as in {kind.theorem}", found)


def _draw_run(rng: np.random.Generator, problems: list[str], iterations: int, seeds: int) -> Draw | None:
    lift, kernel, scale = rng.choice([*npgm.references.lifts]), rng.choice(KERNELS), 10.0 ** rng.uniform(-1.0, 1.0)
    phi = npgm.reference(f"{lift}-{kernel}", scale=float(scale) if rng.random() < 0.5 else 1.0)
    cls, size = npgm.problems.registry[str(rng.choice(problems))], SHAPE[0] * SHAPE[1]
    many = cls in (QuadraticForm, ScaledReference)
    if lift == "spectral" and many:
        phi = npgm.Blocks(phi, [SHAPE])
    try:
        if cls is ScaledReference:
            problem: Problem = ScaledReference(phi, float(rng.uniform(0.5, 3.0)), tuple(rng.standard_normal(size)))
        else:
            problem = QuadraticForm(tuple(10.0 ** rng.uniform(-1.0, 1.0, size))) if many else cls()
        start = problem.start * 10.0 ** rng.uniform(-1.0, 1.0)
        problem.constants(phi, start.size)
        with np.errstate(over="ignore"):
            low = bool(problem(start)[0] < _HIGHEST)
    except ValueError:
        return None
    return Draw(problem, phi, start, rng, iterations, seeds) if low else None


def known_runs() -> Iterator[Case]:
    """Yield runs that come close to a bound: for each theorem one at least above 0.4 of it."""
    for kind, key, name, start, iterations, certificates in KNOWN:
        problem = npgm.problems.registry[key]()
        at = problem.start if start is None else np.array(start)
        draw = Draw(problem, npgm.reference(name), at, np.random.default_rng(0), iterations, 100)
        yield from _cases(f"{key}, {name}, {kind}", certificates(draw))


KNOWN: list[tuple[str, str, str, list[float] | None, int, Callable[[Draw], list[Certificate]]]] = [
    ("γ = 1/L", "scaled-reference", "isotropic-cosh", None, 20, lambda draw: draw.certified(0.0)),
    ("β = 0.1", "scaled-reference", "isotropic-cosh", None, 20, lambda draw: draw.certified(0.1)),
    ("β = 0.1", "exponential-penalty", "isotropic-exp", None, 60, lambda draw: draw.certified(0.1)),
    ("γ = 1, from -40", "exponential-penalty", "isotropic-exp", [-40.0], 60, lambda draw: draw.certified(0.0)),
    ("γ = 4, from -60", "logistic", "isotropic-quad", [-60.0], 60, lambda draw: draw.certified(0.0)),
    ("β = 0.9, from -20", "logistic", "isotropic-quad", [-20.0], 600, lambda draw: draw.certified(0.9)),
    ("γ = 1.9/L", "two-quadratics", "isotropic-quad", None, 20, lambda draw: draw.by_rule(1.9 / 3.0)),
    ("β = 0.9", "cauchy", "isotropic-cosh", None, 60, lambda draw: draw.by_rule("backtracking", 0.9)),
    ("β = 0", "quadratic", "isotropic-cosh", None, 60, lambda draw: draw.by_rule("backtracking")),
    ("β = 0, noise", "scaled-reference", "isotropic-cosh", None, 12, lambda draw: draw.stochastic(0.0)),
    ("β = 0.1, before", "logistic", "isotropic-cosh", None, 60, lambda draw: draw.certified(0.1, None, "before")),
    ("β = 0.1, before", "two-quadratics", "isotropic-log", None, 60, lambda draw: draw.certified(0.1, None, "before")),
]
"""A kind of run, its problem, φ, start and iterations, and its certificates."""


def _cases(words: str, certificates: list[Certificate]) -> Iterator[Case]:
    for certificate in certificates:
        yield Case(words, certificate, _ratio(certificate))


def _ratio(certificate: Certificate) -> float:
    ratios = (certificate.observed - certificate.chance) / (certificate.bound.values + certificate.margin)
    said = np.isfinite(certificate.bound.values) & ~certificate.bound.vacuous
    said[0] = False  # where a bound on f - inf f is D0
    return float(np.max(ratios, initial=0.0, where=said))


@drawing()
def _draw(cases: dict[str, Case], path: Path) -> None:
    rows = -(-len(cases) // _COLUMNS)
    figure = blank(3.4 * _COLUMNS, 2.3 * rows)
    axes = figure.subplots(rows, _COLUMNS, squeeze=False).ravel()
    for ax in axes[len(cases) :]:
        ax.set_axis_off()
    for ax, (theorem, case) in zip(axes, cases.items(), strict=False):
        observed, values = case.certificate.observed, case.certificate.bound.values
        k = np.flatnonzero(np.isfinite(values) & (observed > 0.0))
        marker = "o" if k.size < 9 else ""
        style = STYLES[1]
        ax.plot(k, values[k], color=style.color, linestyle="--", marker=marker, label="bound")
        ax.plot(k, observed[k], color=INK, marker=marker, label="run")
        ax.set_title(f"{theorem}\n{case.words}", fontsize="small")
        ax.set(yscale="log", xlabel="iteration")
        ax.grid(color=FAINT, linewidth=0.6)
    save(figure, path)

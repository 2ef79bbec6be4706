"""How close runs come to the bounds of the theorems: for each theorem, the closest run on the known problems."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from typer import Option

import npgm
from npgm.lab.experiments.certification import certify_problem, certify_stochastic, gradient_lipschitz
from npgm.lab.style import FAINT, INK, STYLES, blank, drawing, save
from npgm.lab.terminal import console, new_table, show
from npgm.problems import Constants, Problem, StochasticProblem
from npgm.references import Isotropic, Reference
from npgm.theory.certify import Certificate, auto

REFERENCES = ("isotropic-cosh", "isotropic-exp", "isotropic-log", "separable-cosh", "separable-log")
_OF_MOMENTUM = ("Theorem 2.2", "Theorem B")
"""Without momentum they are the base bound."""
_COLUMNS = 4


class Case(NamedTuple):
    """A run in words, its certificate, and the largest ratio of what was observed to the bound, after the start."""

    words: str
    certificate: Certificate
    ratio: float


def run(
    iterations: Annotated[int, Option(min=4, help="How many iterations a run has.")] = 60,
    seeds: Annotated[int, Option(min=2, help="How many runs a stochastic bound is compared with.")] = 8,
    problems: Annotated[list[str] | None, Option(help="A problem; by default all; repeatable.")] = None,
    plot: Annotated[Path | None, Option(help="Draw the closest runs into this file.")] = None,
) -> None:
    """Print the closest run of each theorem, and draw it beside the bound. A ratio above 1 would refute a theorem."""
    closest: dict[str, Case] = {}
    for key in problems or sorted(npgm.problems.registry):
        problem = npgm.problems.registry[key]()
        for phi, constants in _references(problem):
            for words, certificates in _runs(problem, phi, constants, iterations, seeds):
                for certificate in certificates:
                    case = Case(f"{key}, {phi.name}, {words}", certificate, _ratio(certificate))
                    theorem = certificate.bound.theorem
                    if theorem not in closest or case.ratio > closest[theorem].ratio:
                        closest[theorem] = case
    ordered = dict(sorted(closest.items()))
    table = new_table("theorem", "ratio", "run", wrapped=("run",))
    for theorem, case in ordered.items():
        table.add_row(theorem, f"{case.ratio:.2f}", case.words)
    console.print(table)
    if plot is not None:
        _draw(ordered, plot)
        show([plot])


def _references(problem: Problem) -> Iterator[tuple[Reference, Constants]]:
    """Yield each of `REFERENCES` for which the problem has known constants; on the line the lifts are one function."""
    for phi in map(npgm.reference, REFERENCES):
        if problem.start.size == 1 and not isinstance(phi, Isotropic):
            continue
        try:
            yield phi, problem.constants(phi)
        except ValueError:
            continue


def _runs(
    problem: Problem, phi: Reference, constants: Constants, iterations: int, seeds: int
) -> Iterator[tuple[str, list[Certificate]]]:
    L = constants.smoothness
    for beta in (0.0, 0.1, 0.3, 0.49, 0.9):
        found = certify_problem(problem, phi, momentum=beta, maxiter=iterations).report.certificates
        yield f"β = {beta:g}", [c for c in found if beta or c.bound.theorem not in _OF_MOMENTUM]
    done = certify_problem(problem, phi, momentum=0.0, lr=1.5 / L, maxiter=iterations)
    yield "γ = 1.5/L", [c for c in done.report.certificates if c.bound.theorem not in _OF_MOMENTUM]
    if isinstance(phi, Isotropic) and constants.lipschitz:
        for beta in (0.5, 0.9):
            lr = min((1.0 - beta) / (3.0**0.5 * beta * constants.lipschitz), 1.0 / L)
            done = certify_problem(problem, phi, momentum=beta, lr=lr, maxiter=iterations)
            yield f"β = {beta:g}, τ = .58", done.report.certificates
    rules: list[dict[str, Any]] = [{"lr": "backtracking"}, {"lr": "backtracking", "momentum": 0.3}, {"lr": "auto"}]
    if isinstance(phi, Isotropic):
        rules += [{"lr": "backtracking", "momentum": 0.5}, {"lr": "backtracking", "momentum": 0.9}]
    for options in rules:
        words = ", ".join(f"{name} = {value}" for name, value in options.items()).replace("lr", "γ")
        history = npgm.minimize(
            problem, problem.start, reference=phi, maxiter=iterations, tol=0.0, history=True, **options
        ).history
        report = auto(history, minimum=problem.minimum(problem.start.size))
        yield words.replace("momentum", "β"), report.certificates
    try:
        gradient_lipschitz(problem)
        betas: tuple[float, ...] = (0.1, 0.9)
    except ValueError:
        betas = ()
    before: dict[str, Any] = {"momentum_order": "before", "maxiter": iterations}
    for beta in betas:
        yield f"β = {beta:g}, before", certify_problem(problem, phi, momentum=beta, **before).report.certificates
    for beta in (0.0, *(() if isinstance(problem, StochasticProblem) else betas)):
        try:
            done = certify_stochastic(problem, phi, momentum=beta, maxiter=iterations, seeds=seeds)
        except ValueError:  # whose noise is not known relative to this φ
            continue
        yield f"β = {beta:g}, noise", done.report.certificates


def _ratio(certificate: Certificate) -> float:
    said = np.isfinite(certificate.ratios) & ~certificate.bound.vacuous
    said[0] = False  # where a bound on f - inf f is D0
    return float(np.max(certificate.ratios, initial=0.0, where=said))


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

"""The commands on the theory: the kernels, certificates of runs, and the noise of a stochastic gradient."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from npgm import kernels, problems, references
from npgm._common import validate
from npgm.lab import figures
from npgm.lab.certificate import plot as draw_certificate
from npgm.lab.data import DataError
from npgm.lab.experiments import certification
from npgm.lab.experiments.certification import ESTIMATED, METHODS, Certified
from npgm.lab.terminal import console, guarded, new_table, show

_FLAGS = {"2-subh.": "two_subhomogeneous", "(N)": "noise_inequality", "A 1.2": "strongly_convex_c2"}
_LEGEND = (
    "2-subh.: 2-subhomogeneous (Theorem 2.4); (N): the noise inequality (Theorem 3.4); A 1.2: strongly convex and C²\n"
    "(Assumption 1.2). Each kernel KEY is a reference function as "
    f"{', '.join(f'{lift}-KEY' for lift in references.lifts)}."
)


def show_kernels(
    plot: Annotated[
        Path | None, typer.Option(help="Draw h and the preconditioners, and save the figure in this file.")
    ] = None,
) -> None:
    """List the kernels with their properties."""
    if plot is not None:
        guarded(lambda: figures.kernels(plot))
    table = new_table("key", "h(x)", "h*'(y)", "domain", "μ", *_FLAGS, wrapped=("h(x)", "h*'(y)"))
    for key, cls in sorted(kernels.registry.items()):
        kernel = cls()
        domain = "ℝ" if kernel.full_domain else f"|x| < {kernel.radius:.4g}"
        flags = ["yes" if getattr(kernel, flag) else "no" for flag in _FLAGS.values()]
        table.add_row(key, kernel.formula, kernel.preconditioner_formula, domain, f"{kernel.mu:g}", *flags)
    console.print(table)
    console.print(_LEGEND, highlight=False, markup=False, soft_wrap=True)
    if plot is not None:
        show([plot])


def certify(
    problem: Annotated[
        str,
        typer.Argument(
            help=f"One of: {', '.join([*sorted(problems.registry), *ESTIMATED])}.",
            autocompletion=lambda: [*sorted(problems.registry), *ESTIMATED],
        ),
    ],
    reference: Annotated[str | None, typer.Option(help="The reference function, such as isotropic-cosh.")] = None,
    method: Annotated[str, typer.Option(help=f"One of: {', '.join(METHODS)}.")] = "npgm",
    lr: Annotated[float | None, typer.Option(help="γ; by default the largest that a theorem allows.")] = None,
    momentum: Annotated[float | None, typer.Option(help="β; by default the method's own.")] = None,
    momentum_order: Annotated[
        str,
        typer.Option(help="Momentum after or before the preconditioner; before is checked against Theorems A and A'."),
    ] = "after",
    scale: Annotated[float, typer.Option(help="λ of the reference function.")] = 1.0,
    maxiter: Annotated[int, typer.Option(help="The number of iterations.")] = 200,
    stochastic: Annotated[
        bool,
        typer.Option(help="Check the stochastic method against Theorems 3.1, 3.4, 3.5, and with momentum A and A'."),
    ] = False,
    deviation: Annotated[float, typer.Option(help="σ of the normal noise of --stochastic.")] = 1.0,
    seeds: Annotated[int, typer.Option(help="How many runs --stochastic makes.")] = 20,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the bounds and the run, and save the figure in this file.")
    ] = None,
) -> None:
    """Run a method on a problem, and check the run against the theorems.

    The constants of the paper's own problems, matrix-factorization and phase-retrieval, are not known. They are
    estimated along the run, and the certificates are empirical. The exit code is 1 if a bound fails, or none applies.
    """

    def work() -> Certified:
        order = validate.choice("momentum_order", momentum_order, ("after", "before"))
        name = reference or ("isotropic-cosh" if method == "npgm" else "isotropic-quad")
        phi = references.reference(name, scale=scale)
        if problem in ESTIMATED:
            if stochastic or lr is not None or method != "npgm" or order == "before":
                raise ValueError(f"for {problem}, only the method npgm at the estimated γ can be certified")
            try:
                done = certification.certify_paper(problem, phi, momentum=momentum or 0.0, maxiter=maxiter)
            except DataError as error:
                raise ValueError(error) from None
        else:
            cls: Any = problems.registry[validate.choice("problem", problem, [*problems.registry, *ESTIMATED])]
            instance = cls(reference=phi) if "reference" in getattr(cls, "__dataclass_fields__", ()) else cls()
            if stochastic:
                if momentum and order == "after":
                    raise ValueError("no stochastic theorem is about momentum after it; use --momentum-order before")
                done = certification.certify_stochastic(
                    instance, phi, lr=lr, momentum=momentum or 0.0, deviation=deviation, maxiter=maxiter, seeds=seeds
                )
            else:
                done = certification.certify_problem(
                    instance, phi, method=method, lr=lr, momentum=momentum, momentum_order=order, maxiter=maxiter
                )
        if plot is not None:
            draw_certificate(done.report, plot)
        return done

    done = guarded(work)
    table = new_table(
        "theorem", "source", "quantity", "bound", "run", "ratio", "verdict", wrapped=("theorem", "quantity")
    )
    for certificate in done.report.certificates:
        bound = certificate.bound
        at_end = f"{bound.values[-1]:.4g}{' (vacuous)' if bound.vacuous[-1] else ''}"
        observed, ratio = f"{certificate.observed[-1]:.4g}", f"{certificate.ratio:.3g}"
        table.add_row(bound.theorem, bound.provenance, bound.quantity, at_end, observed, ratio, certificate.verdict)
    estimated = ", estimated along the run: the certificates are empirical" if done.estimated else ""
    console.print(
        f"γ = {done.lr:g}, L = {done.constants.smoothness:g}{estimated}, {done.iterations} iterations", highlight=False
    )
    if done.report.certificates:
        console.print(table)
    console.print(f"{done.report.verdict}: {done.report.reason}", highlight=False, soft_wrap=True)
    for reason in (done.report.undecided | done.report.refused).values():
        console.print(f"• {reason}", highlight=False)
    descends = not done.descent < -1e-9
    if not math.isnan(done.descent):
        console.print(f"Descent inequality (4) along the run: {'holds' if descends else 'FAILS'}", highlight=False)
    if not (done.report.holds and descends):
        raise typer.Exit(1)


def noise(
    problem: Annotated[str, typer.Argument(help="A problem in one variable that has a stochastic gradient.")],
    reference: Annotated[str, typer.Option(help="The reference function.")] = "isotropic-cosh",
    scale: Annotated[float, typer.Option(help="λ of the reference function.")] = 1.0,
    reach: Annotated[float, typer.Option(help="How far from 0 to look.")] = 100.0,
    plot: Annotated[Path | None, typer.Option(help="Draw both, and save the figure in this file.")] = None,
) -> None:
    """Compare the noise of Theorem 3.1 with the variance of a stochastic gradient, as in Example 3.3 of the paper."""

    def work() -> list[tuple[float, float, float]]:
        phi = references.reference(reference, scale=scale)
        accepted = [key for key, cls in problems.registry.items() if issubclass(cls, problems.StochasticProblem)]
        instance: Any = problems.registry[validate.choice("problem", problem, accepted)]()
        x, dual, variance = certification.noise_conditions(instance, phi, reach)
        if plot is not None:
            figures.noise(x, dual, variance, plot)
        within = [abs(x) <= reach * share for share in (0.01, 0.1, 1.0)]
        return [(float(x[near].max()), float(dual[near].max()), float(variance[near].max())) for near in within]

    table = new_table("|x| up to", "largest E φ(∇φ*(f') - ∇φ*(g))", "largest E|g - f'|²", wrapped=())
    for row in guarded(work):
        table.add_row(*(f"{value:.4g}" for value in row))
    console.print(table)

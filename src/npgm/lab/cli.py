"""The command line: each command is a few lines over a function that anyone can call."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markdown import Markdown

from npgm import __version__, kernels, problems, references
from npgm._common import validate
from npgm.lab import bench_command, experiments, figures
from npgm.lab.certificate import plot as draw_certificate
from npgm.lab.data import DataError, cache_dir, registry
from npgm.lab.data import load as load_data
from npgm.lab.experiments import certification, ranks, tuning
from npgm.lab.experiments.certification import ESTIMATED, METHODS, Certified
from npgm.lab.experiments.report import FIGURES, readings
from npgm.lab.terminal import complain, console, guarded, new_table, show

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Nonlinearly preconditioned gradient methods: the paper's experiments, certificates, benchmarks and data.",
)
data = typer.Typer(no_args_is_help=True, help="List and fetch the data sets.")
app.add_typer(data, name="data")
app.add_typer(bench_command.app, name="bench")

_FLAGS = {"2-subh.": "two_subhomogeneous", "(N)": "noise_inequality", "A 1.2": "strongly_convex_c2"}
_LEGEND = (
    "2-subh.: 2-subhomogeneous (Theorem 2.4); (N): the noise inequality (Theorem 3.4); A 1.2: strongly convex and C²\n"
    "(Assumption 1.2). Each kernel KEY is a reference function as "
    f"{', '.join(f'{lift}-KEY' for lift in references.lifts)}."
)

ExperimentName = Annotated[
    str,
    typer.Argument(
        help=f"One of: {', '.join(experiments.names())}; a TOML file of your own, such as ./my.toml; "
        "a family, such as char for all that begin with char-; or all.",
        autocompletion=lambda: [*experiments.names(), "all"],
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        help="How much to run: smoke (seconds), cpu (minutes), or paper (the paper's sizes). "
        "By default cpu, or the only preset of an experiment."
    ),
]
Output = Annotated[Path, typer.Option(help="The folder of the results.")]
Jobs = Annotated[int, typer.Option(help="How many processes; -1 for one per core.")]
Device = Annotated[str, typer.Option(help="Where networks are trained: cpu, cuda, cuda:1, ...")]


def _version(wanted: bool) -> None:
    if wanted:
        console.print(f"npgm {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def start(
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", help="Your module that registers kernels, methods or problems; repeatable."),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Import the modules that a user names, from the current folder or wherever Python finds them."""
    if modules and (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    for module in modules or ():
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            complain(f"--import {module}: {error}")
            raise typer.Exit(2) from None


@app.command()
def reproduce(
    experiment: ExperimentName,
    preset: Preset = None,
    jobs: Jobs = -1,
    output: Output = Path("results"),
    methods: Annotated[list[str] | None, typer.Option(help="Run only the method with this label; repeatable.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Run only the first N seeds of each setting.")] = None,
    device: Device = "cpu",
    engine: Annotated[str, typer.Option(help="local, for this machine's processes, or dask, for a cluster.")] = "local",
    scheduler: Annotated[str | None, typer.Option(help="The cluster's scheduler, such as tcp://host:8786.")] = None,
    parallel: Annotated[
        str | None, typer.Option(help="How ranks of torchrun train a network: ddp (the default) or fsdp.")
    ] = None,
) -> None:
    """Run an experiment and write its report; stored runs are not repeated.

    "all" skips experiments whose data cannot be fetched, and ends with one page of the verdicts on all claims.
    """

    def work(name: str) -> list[Path]:
        spec = experiments.load(name)
        chosen = preset or spec.usual_preset
        try:
            store = experiments.run(
                spec, chosen, output, jobs=jobs, methods=methods, seeds=seeds, device=device, engine=engine,
                scheduler=scheduler, parallel=parallel,
            )  # fmt: skip
        except DataError:
            if ranks.leads():  # the report says why there are no runs
                experiments.write_report(spec, chosen, experiments.Store.of(spec, output))
            raise
        return _reported(spec, chosen, store) if ranks.leads() else []

    console.quiet = not ranks.leads()
    _each(experiment, work, overview=output if ranks.leads() else None)


@app.command()
def tune(
    experiment: ExperimentName,
    preset: Preset = None,
    jobs: Jobs = -1,
    output: Output = Path("results"),
    methods: Annotated[list[str] | None, typer.Option(help="Tune only the method with this label; repeatable.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Check only the first N seeds of each setting.")] = None,
    trials: Annotated[int, typer.Option(help="The most stepsizes to try for each method and setting.")] = 16,
    device: Device = "cpu",
) -> None:
    """Tune the stepsizes of an experiment as the paper did, and write them beside the paper's.

    It searches an adaptive grid on one seed, then lowers the stepsize if the seeds disagree.
    """

    def work(name: str) -> list[Path]:
        spec = experiments.load(name)
        chosen = preset or spec.usual_preset
        tuned = tuning.tune(spec, chosen, output, methods=methods, seeds=seeds, trials=trials, jobs=jobs, device=device)
        paths = tuning.write_table(spec, chosen, output, tuned)
        console.print(Markdown(paths[0].read_text(encoding="utf-8")))
        return paths

    _each(experiment, work)


@app.command()
def report(
    experiment: ExperimentName,
    preset: Annotated[str | None, typer.Option(help="The preset; by default every preset with runs.")] = None,
    output: Output = Path("results"),
) -> None:
    """Write the report of an experiment from its stored runs; "all" also writes one page of all verdicts."""

    def work() -> None:
        specs = [experiments.load(name) for name in experiments.chosen(experiment)]
        if preset is not None:
            for spec in specs:
                spec.preset(preset)  # refuses one that there is not, before anything is looked for
        stores = [experiments.Store.of(spec, output) for spec in specs]
        if not any(store.begun for store in stores):
            raise FileNotFoundError(f"{output} has no results of {experiment}; reproduce it first")
        for spec, store in zip(specs, stores, strict=True):
            if store.begun:
                presets = [done.preset for done in experiments.recorded(spec, store)] if preset is None else [preset]
                for chosen in presets:
                    show(_reported(spec, chosen, store))
        if experiment == "all":
            show(experiments.write_overview(output))

    guarded(work)


@app.command("figures")
def draw_figures(
    folder: Annotated[Path, typer.Argument(help="A folder of reports.")] = Path("results"),
) -> None:
    """Draw the figures of all reports in a folder again, from the points beside the reports."""

    def work() -> None:
        files = sorted(folder.rglob(FIGURES))
        if not files:
            raise FileNotFoundError(f"no report in {folder} has a {FIGURES}")
        for path in files:
            show(experiments.draw_figures(path))

    guarded(work)


@app.command("kernels")
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


@app.command()
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


@app.command()
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


@data.command("list")
def list_data() -> None:
    """List the data sets, and which of them are in the cache."""
    table = new_table("name", "in the cache", "what it is", wrapped=("what it is",))
    for key, dataset in sorted(registry.items()):
        cached = (cache_dir() / f"{key}.npz").is_file()
        what = (dataset.__doc__ or "").partition("\n")[0].replace("`", "")
        table.add_row(key, "yes" if cached else "no", what)
    console.print(table)


@data.command()
def fetch(
    name: Annotated[str, typer.Argument(help="The data set.", autocompletion=lambda: [*registry])],
    folder: Annotated[Path | None, typer.Option(help="A folder that holds the data set's files.")] = None,
) -> None:
    """Fetch a data set into the cache and verify it."""
    try:
        arrays = guarded(lambda: load_data(name, folder))
    except DataError as error:
        complain(error)
        raise typer.Exit(2) from None
    for key, array in arrays.items():
        console.print(f"{key}: {array.dtype} {array.shape}")


def _each(experiment: str, work: Callable[[str], list[Path]], overview: Path | None = None) -> None:
    """Do the work of an experiment or of all, of which some may lack their data, and show what it writes.

    After all of them the ``overview`` of the results in a folder is written, if one is given.
    """
    without_data = []
    try:
        for name in experiments.chosen(experiment):
            try:
                show(guarded(partial(work, name)))
            except DataError as error:
                complain(f"{name}: {error}")
                without_data.append(name)
        if experiment == "all" and overview is not None:
            show(guarded(partial(experiments.write_overview, overview)))
    except KeyboardInterrupt:
        console.print("\ninterrupted; finished runs are kept, and the same command continues")
        raise typer.Exit(130) from None
    ranks.leave()
    if without_data:
        complain(f"not run, for want of data: {', '.join(without_data)}")
        raise typer.Exit(2)


def _reported(spec: experiments.Experiment, preset: str, store: experiments.Store) -> list[Path]:
    """Write a report, print the verdicts, and return the report's files."""
    results = experiments.Results(spec, preset, store)
    paths = experiments.write_report(spec, preset, store)
    console.print(f"{spec.title} ({results.extent})", style="bold", highlight=False)
    says = "the paper says" if spec.source else "claim"
    table = new_table("verdict", "of", says, wrapped=("of", says))
    for claim in spec.claims:
        for of, verdict in readings(results, claim):
            table.add_row(verdict.holds, of, results.experiment.quoted(claim))
    if spec.claims:
        console.print(table)
    return paths

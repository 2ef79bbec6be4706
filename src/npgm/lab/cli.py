"""The command line: each command is a few lines over a function that anyone can call."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.markdown import Markdown

from npgm import __version__
from npgm.lab import bench_command, experiments, theory_commands
from npgm.lab.data import DataError, cache_dir, registry
from npgm.lab.data import load as load_data
from npgm.lab.experiments import ranks, tuning
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


app.command("kernels")(theory_commands.show_kernels)
app.command()(theory_commands.certify)
app.command()(theory_commands.noise)


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

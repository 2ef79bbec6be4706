"""The results as tables of 80 columns."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from npgm.lab.bench.steps.contenders import GROWTH
from npgm.lab.bench.steps.results import Result, Results


def show_layout(result: Result, console: Console) -> None:
    """Print the ratios of a case against what is aimed at."""
    console.print(result.case.title, style="bold", highlight=False)
    table = _table("time of a step / of", "median", "quartiles", "aim", "met")
    for ratio in result.ratios():
        low, middle, high = ratio.quartiles
        aim = "" if ratio.aim is None else f"{ratio.aim:.2f}"
        met = {None: "", True: "yes", False: "NO"}[ratio.met]
        table.add_row(f"{ratio.step} / {ratio.against}", f"{middle:.3f}", f"{low:.3f} – {high:.3f}", aim, met)
    console.print(table)


def show_end(results: Results, console: Console) -> None:
    """Print the ratios as the number of parameters grows, who could not take part, and how many of the aims are met."""
    against, *others = GROWTH
    for device in dict.fromkeys(result.case.device for result in results.growth):
        cases = [result for result in results.growth if result.case.device == device]
        title = f"one tensor, {cases[0].case.setting}: time of a step / of {against}"
        console.print(title, style="bold", highlight=False)
        table = _table("parameters", *others)
        for result in cases:
            ratios = [result.ratio(name, against) for name in others]
            cells = ["" if ratio is None else f"{ratio.quartiles[1]:.2f}" for ratio in ratios]
            table.add_row(f"{result.case.layout.size:,}", *cells)
        console.print(table)
    left_out = {item: None for r in (*results.layouts, *results.growth) for item in r.left_out.items()}
    for reason in dict.fromkeys(reason for _, reason in left_out):
        names = "; ".join(name for name, why in left_out if why == reason)
        console.print(f"• {names}: left out, since {reason}", highlight=False, markup=False)
    met = [ratio.met for result in results.layouts for ratio in result.ratios() if ratio.met is not None]
    if met:
        console.print(f"{sum(met)} of {len(met)} ratios meet their aims", highlight=False)


def _table(first: str, *numbers: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table

"""How the command line speaks: tables, the files that it wrote, and errors that a user can mend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import typer
from rich import box
from rich.console import Console
from rich.table import Table

T = TypeVar("T")

console = Console()


def new_table(*headings: str, wrapped: tuple[str, ...]) -> Table:
    """Return a table that loses no text: the columns ``wrapped`` give way, on less than 80 columns all of them."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=heading not in wrapped and console.width >= 80)
    return table


def guarded(work: Callable[[], T]) -> T:
    """Do the work; an error that a user can mend becomes a line and exit code 2."""
    try:
        return work()
    except (ValueError, TypeError, OSError) as error:
        complain(error)
        raise typer.Exit(2) from None


def complain(error: object) -> None:
    """Print what is wrong."""
    if isinstance(error, OSError) and error.strerror is not None:
        error = (
            error.strerror if error.filename is None else f"{error.strerror}: {error.filename}"
        )  # without the number
    Console(stderr=True).print(f"npgm: {error}", style="red", markup=False, highlight=False, soft_wrap=True)


def show(paths: list[Path]) -> None:
    """Print the paths of files."""
    for path in paths:
        console.print(str(path), soft_wrap=True, markup=False, highlight=False)

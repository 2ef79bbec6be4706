"""The command line in this process, and in one of its own."""

from __future__ import annotations

import os
import re
import sys
import warnings
from pathlib import Path
from unittest import mock

from typer.testing import CliRunner

from npgm.__main__ import main
from npgm.lab import cli, terminal


def npgm(*arguments: object, status: int = 0, columns: int = 200) -> str:
    """Run a command, check its exit status, and return what it printed."""
    with mock.patch.object(terminal.console, "_width", columns):  # read from COLUMNS once, which pytest-xdist sets
        done = CliRunner(env={"COLUMNS": str(columns)}).invoke(cli.app, [str(argument) for argument in arguments])
    assert done.exit_code == status, (done.output, done.exception)
    return done.output


def refused(*arguments: object) -> str:
    """Return, on one line, what a command says that a user can mend: it exits with 2, and without a traceback."""
    done = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    assert done.exit_code == 2, (done.output, done.exception)
    assert isinstance(done.exception, SystemExit)
    return re.sub(r"\s+", " ", done.stderr)


def program(*arguments: str) -> None:
    """Do what the installed program does with these arguments; ends this process."""
    sys.argv = ["npgm", *arguments]
    main()


def script(code: str, folder: Path) -> None:
    """Run a program in a folder, with warnings as errors."""
    os.chdir(folder)
    warnings.simplefilter("error")
    exec(compile(code, "<script>", "exec"), {"__name__": "__main__"})

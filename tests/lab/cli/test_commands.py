import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

import commands
from npgm import __version__
from npgm.lab import terminal
from npgm.lab.data import registry


def test_a_report_of_nothing_is_refused_and_makes_no_folder(tmp_path):
    assert "has no results of mnist" in commands.refused("report", "mnist", "--output", tmp_path / "typo")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["-h"], ["report", "-h"], ["data", "-h"]])
def test_help_has_a_short_name(arguments):
    assert "Usage" in commands.npgm(*arguments)


def test_the_version_and_the_data_sets_are_told():
    assert commands.npgm("--version") == f"npgm {__version__}\n"
    told = commands.npgm("data", "list")
    assert all(name in told for name in registry)


@pytest.mark.slow
def test_names_are_completed():
    asked = {"_NPGM_COMPLETE": "complete_bash", "COMP_WORDS": "npgm report matrix", "COMP_CWORD": "2"}
    command = [sys.executable, "-c", "from npgm.lab.cli import app; app(prog_name='npgm')"]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["matrix-factorization"], done.stderr


@pytest.mark.parametrize(
    ("encoding", "formulas"), [("ascii", ["1 - sqrt(1 - x^2)", "C^2"]), ("cp1252", ["1 - sqrt(1 - x²)", "C²"])]
)
def test_an_encoding_without_the_signs_gets_plain_letters(monkeypatch, encoding, formulas):
    written = io.BytesIO()
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding, write_through=True))
    with pytest.raises(SystemExit) as ended:
        commands.program("kernels")
    assert not ended.value.code
    text = written.getvalue().decode(encoding)
    assert all(formula in text for formula in formulas)


class FullDisk(io.RawIOBase):
    def writable(self):
        return True

    def write(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("command", ["--version", "kernels", "data list", "noise two-quadratics"])
def test_a_full_disk_of_the_output_is_one_line(monkeypatch, capfd, command):
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(FullDisk(), "utf-8", write_through=True))
    with pytest.raises(SystemExit) as ended:
        commands.program(*command.split())
    assert ended.value.code == 1
    assert capfd.readouterr().err.split("\n") == ["npgm: No space left on device", ""]
    monkeypatch.undo()
    with terminal.console.capture():
        pass  # drops what the console could not write and has kept, which the next test would print


@pytest.mark.parametrize("command", ["kernels", "noise two-quadratics", "certify double-well"])
def test_a_plot_on_a_full_disk_is_one_line(monkeypatch, tmp_path, command):
    def full(path, target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    said = commands.refused(*command.split(), "--plot", tmp_path / "plot.svg")
    assert said.strip() == f"npgm: No space left on device: {tmp_path / 'plot.svg'}"
    assert not list(tmp_path.iterdir())

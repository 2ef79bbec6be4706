"""The numbers of a report come back from the commands that it names."""

import re
import shutil

import pytest

import commands


def without_times(report):
    """Return the text but for run times: those of claims, and the last column of the results."""
    report = re.sub(r"[-+.e\d]+ hours", "hours", report)
    before, results, after = re.fullmatch(r"(.*## Results\n\n)(.*?)(\n\n.*)", report, re.DOTALL).groups()
    heading, *rows = (line.rpartition(" | ") for line in results.splitlines() if not line.startswith("| ---"))
    assert re.fullmatch(r"(ms an iteration|seconds an epoch) \|", heading[2])
    return before + "\n".join(row[0] for row in rows) + after


@pytest.mark.slow
def test_the_commands_of_a_report_regenerate_it(tmp_path):
    name, first, second = "phase-retrieval", tmp_path / "first", tmp_path / "second"
    commands.npgm("reproduce", name, "--preset", "smoke", "--jobs", 1, "--output", first)
    folder = first / name / "smoke"
    text = (folder / "report.md").read_text()
    reproduce, report = (command.split() for command in re.findall(r"`npgm (re\w+ [^`]*)`", text))

    commands.npgm(*reproduce, "--jobs", 1, "--output", second)
    assert without_times((second / name / "smoke" / "report.md").read_text()) == without_times(text)

    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {"report.md", "report.html", "convergence.svg"} <= set(files)
    shutil.rmtree(folder)
    commands.npgm(*report, "--output", first)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files

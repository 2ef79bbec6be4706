"""docs/coverage.md names every numbered statement of the paper, and nothing that is not there."""

import re

import pytest
import typer.main

import npgm
from npgm.lab import experiments
from npgm.lab.cli import app
from npgm.lab.experiments.certification import ESTIMATED
from pages import ROOT, resolve

ROWS = re.findall(r"^\| (?!the paper|---)(.*) \|$", (ROOT / "docs" / "coverage.md").read_text(), re.MULTILINE)

STATEMENTS = (
    [
        "Definition 1.1",
        "Assumption 1.2",
        "Assumption 1.3",
        "Remark 1.4",
        "Remark 2.1",
        "Definition 2.3",
        "Assumption 2.5",
    ]
    + [f"Theorem {number}" for number in ("2.2", "2.4", "2.7", "3.1", "3.4", "3.5")]
    + [f"Proposition {number}" for number in ("2.6", "3.2", "B.2", "B.3", "C.1", "E.1", "E.3")]
    + ["Example 3.3", "Example E.2", "Lemma B.1", "Definitions A.1 to A.3", "Algorithm 1", "Table 1", "Table 2"]
    + [f"Figure {i}" for i in range(1, 5)]
    + ["Section 4.1", "Section 4.2", "Appendix F.1", "Appendix F.2.1", "Appendix F.2.2"]
    + [f"({i})" for i in (1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)]
)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_every_statement_has_a_row(statement):
    assert any(statement in row.split(" | ")[0] for row in ROWS)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split(" | ")[0])
def test_what_a_row_names_is_there(row):
    _, package, tests, command = row.split(" | ")
    for name in re.findall(r"`(npgm[\w.]*)`", package):
        resolve(name)
    for name in re.findall(r"the spec `([\w-]+)`", package):
        assert name in experiments.names()
    for path in re.findall(r"`(tests/[\w/.]+)`", tests):
        assert (ROOT / path).is_file()
    for words in (match.split() for match in re.findall(r"`npgm ([^`]+)`", command)):
        accepted = {
            "certify": [*npgm.problems.registry, *ESTIMATED],
            "noise": list(npgm.problems.registry),
            "kernels": [],
        }.get(words[0], experiments.names())
        typer.main.get_command(app).commands[words[0]].make_context(words[0], words[1:])  # raises if it does not parse
        if len(words) > 1:
            assert words[1] in accepted

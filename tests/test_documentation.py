"""The code of the README and of the pages runs, their commands exist, their links lead somewhere, and the site builds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial

import pytest
import typer.main

import commands
import processes
from npgm.lab.cli import app
from pages import ROOT, blocks

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def with_code():
    """The pages whose blocks are whole."""
    for page in PAGES:
        if page.name != "CONTRIBUTING.md" and blocks(page, "python"):
            yield pytest.param(page, id=str(page.relative_to(ROOT)))


@pytest.mark.slow
@pytest.mark.parametrize("page", [*with_code()])
def test_the_examples_of_a_page_run_one_after_the_other(page, tmp_path):
    output = tmp_path / "output"
    process = processes.start(partial(commands.script, "\n".join(blocks(page, "python")), tmp_path), output)
    process.join()
    assert process.exitcode == 0, output.read_text()


@each_page
def test_commands_and_their_options_exist(page):
    text = page.read_text(encoding="utf-8")
    commands = typer.main.get_command(app).commands
    for line in re.findall(r"`npgm ([^`\n]+)`", text) + re.findall(r"^(?:    )?npgm (.+)$", text, re.MULTILINE):
        words = line.split("#")[0].split()
        command = commands.get(words[0])
        if words[0].startswith("-"):
            continue
        assert command is not None, line
        if hasattr(command, "commands") and len(words) > 1:
            command = command.commands[words[1]]
        options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for word in words[1:]:
            if word.startswith("--"):
                assert word.split("=")[0] in options, line


@each_page
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    api = (tmp_path / "api" / "torch" / "index.html").read_text(encoding="utf-8")
    assert "npgm.torch.IHGD" in api
    assert "decoupled_weight_decay" in api  # one of the options, which come from their table

"""The code of the README and of the pages runs, their commands exist, their links lead somewhere, and the site builds."""

import os
import re
import subprocess
import sys
from contextlib import suppress
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import quote, unquote, urlsplit

import pytest
import typer.main
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.support.wait import WebDriverWait

import commands
import processes
from npgm.lab.cli import app
from pages import ROOT, blocks, resolve, tutorial

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


TUTORIALS = ROOT / "docs" / "tutorials"


def with_code():
    """The pages whose blocks are whole."""
    for page in PAGES:
        if page.name != "CONTRIBUTING.md" and blocks(page, "python"):
            yield pytest.param(page, id=str(page.relative_to(ROOT)))


@pytest.mark.slow
@pytest.mark.parametrize("page", [*with_code()])
def test_the_examples_of_a_page_run_one_after_the_other(page, tmp_path):
    output = tmp_path / "output"
    code = tutorial(page) if page.parent == TUTORIALS else "\n".join(blocks(page, "python"))
    process = processes.start(partial(commands.script, code, tmp_path), output)
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
        if hasattr(command, "commands") and len(words) > 1 and not words[1].startswith("-"):
            command = command.get_command(None, words[1])
            assert command is not None, line
        options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for word in words[1:]:
            if word.startswith("--"):
                assert word.split("=")[0] in options, line


@each_page
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


TREE = [f"/{path.relative_to(ROOT)}" for room in ("src", "tests", "docs", "conda") for path in (ROOT / room).rglob("*")]
TREE += [f"/{path.name}" for path in ROOT.iterdir()]
WRITTEN = {"mine.py", "steep.toml", "valley-descent.toml", "my.toml", "solvers/npgm.py"}
"""The files that readers write."""


@each_page
def test_named_files_exist(page):
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w./<-])(?:\.{1,2}/)*([\w./-]+\.(?:py|hpp|cpp|css|toml|yaml|txt))\b", text)) - WRITTEN
    named |= set(re.findall(r"`((?:src|tests|docs|conda)/[\w./-]+)`", text))
    assert not [name for name in named if not any(path.endswith(f"/{name}".rstrip("/")) for path in TREE)]


OPTIONAL = ("npgm.keras", "npgm.solvers.benchopt", "npgm.solvers.optimagic")  # whose packages not every environment has


@pytest.mark.slow
@each_page
def test_named_objects_exist(page):
    for name in re.findall(r"`(npgm(?:\.[A-Za-z_]\w*)+)", page.read_text(encoding="utf-8")):
        if not name.startswith(OPTIONAL):
            resolve(name)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_api_shows_options_examples_and_every_asterisk(site):
    api = (site / "api" / "torch" / "index.html").read_text(encoding="utf-8")
    assert "npgm.torch.IHGD" in api
    assert api.count("<code>decoupled_weight_decay</code>") >= 6  # an option that every class has, from their table
    for page in (site / "api").rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r"[φψh]<em>.*", text), page  # a conjugate's, as in φ*, does not begin emphasis
        assert "<blockquote>" not in text, page  # as which >>> of an example would be read


@pytest.mark.slow
def test_verdicts_are_coloured(site):
    claims = (site / "reports" / "report" / "index.html").read_text(encoding="utf-8")
    rows = (ROOT / "docs" / "reports" / "report.md").read_text(encoding="utf-8").count(" | It ")
    assert claims.count('<td class="verdict ') == rows > 80


class Links(HTMLParser):
    """The names of a page's anchors, and where its links lead."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.anchors, self.targets = {""}, set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        self.targets |= {found[name] for name in ("href", "src") if found.get(name)}


@pytest.mark.slow
def test_links_of_the_site_lead_to_pages_and_anchors(site):
    pages = {page: Links(page) for page in site.rglob("*.html") if page.name != "404.html"}  # that of a server's root
    broken = []
    for page, links in pages.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            to = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            to = to / "index.html" if to.is_dir() else to
            if not to.is_file() or (to in pages and unquote(parts.fragment) not in pages[to].anchors):
                broken.append(f"{page.relative_to(site)}: {target}")
    assert len(pages) > 40
    assert not broken, broken


ANSWERS = {
    "bounds": "minimize/",
    "LBFGS": "tutorials/pinn/",
    "scheduler": "gradient-clipping/",
    "OneCycleLR": "gradient-clipping/",
    "warmup": "gradient-clipping/",
    "clip": "gradient-clipping/",
    "Muon": "spectral/",
    "learning rate": "numbers/",
}
"""What readers search for, and the page that answers."""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def first_results(driver, wanted):
    """Return the pages of the first three results, as a reader sees them, once the wanted one is among them."""
    links = "return [...document.querySelectorAll('.md-search-result__item a:first-of-type')].map(link => link.href)"
    first = []

    def answered(driver):
        first[:] = [*dict.fromkeys(re.split("[?#]", href)[0] for href in driver.execute_script(links))][:3]
        return wanted in first

    with suppress(TimeoutException):
        WebDriverWait(driver, 60).until(answered)
    return first


@pytest.mark.slow
def test_search_finds_the_pages_that_answer(driver, site):
    missed = {}
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        for words, page in ANSWERS.items():
            driver.get(f"{address}?q={quote(words)}")
            first = first_results(driver, address + page)
            if address + page not in first:
                missed[words] = first
        server.shutdown()
    assert not missed

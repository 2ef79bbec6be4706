"""Which file of the package may import which."""

import ast
import functools
import re
from pathlib import Path

from mutants import MUTANTS
from pages import ROOT

SOURCE = ROOT / "src"
TESTS = list((ROOT / "tests").rglob("test_*.py"))
ROOMS = (
    "_common",
    "kernels",
    "_native",
    "references",
    "proximal",
    "solvers",
    "problems",
    "theory",
    "torch",
    "optax",
    "jax",
    "keras",
    "lab",
)
"""The rooms of the library: a room imports those before it."""
DOOR = "npgm.__main__"  # python -m npgm, which opens the laboratory


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for path in SOURCE.rglob("*.py")}


@functools.cache
def imports() -> dict[str, set[str]]:
    """For each file those that it imports, for types alone included."""
    graph: dict[str, set[str]] = {}
    for name, path in FILES.items():
        targets: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                targets |= {i if i in FILES else node.module for i in inner}
        graph[name] = (targets & FILES.keys()) - {name, "npgm"}
    return graph


def room(name: str) -> str:
    return [*name.split("."), ""][1]


def test_nothing_imports_the_laboratory():
    upwards = {n: t for n, ts in imports().items() for t in ts if room(t) == "lab" and room(n) != "lab" and n != DOOR}
    assert not upwards


def test_the_package_has_at_most_sixteen_entries():
    assert len([path for path in (SOURCE / "npgm").iterdir() if path.name != "__pycache__"]) <= 16


def test_rooms_import_the_rooms_before_them():
    place = {name: number for number, name in enumerate(ROOMS)}
    upwards = {
        n: t for n, ts in imports().items() for t in ts if place.get(room(t), -1) > place.get(room(n), len(ROOMS))
    }
    assert not upwards


def test_no_import_runs_in_a_circle():
    graph = imports()
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name not in done:
            for target in sorted(graph[name]):
                visit(target, (*path, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


def test_the_names_of_tests_have_at_most_sixty_characters():
    named = (re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE) for path in TESTS)
    assert not [name for names in named for name in names if len(name) > 60]


def test_every_mutant_changes_a_line_and_has_its_tests():
    for file, line, instead, tests in MUTANTS:
        assert line in (SOURCE / "npgm" / file).read_text(encoding="utf-8"), (file, line)
        assert line != instead
        assert (ROOT / "tests" / tests).exists(), tests

"""The pages of the repository, and the blocks of code in them."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r'^( *)```(\w+)(?: title="(.+?)")?\n(.*?)^ *```', re.DOTALL | re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    return [code for _, name, _, code in BLOCK.findall(page.read_text(encoding="utf-8")) if name == language]


def resolve(name: str) -> Any:
    """Return what a dotted name of npgm is, or raise AttributeError."""
    parts = name.split(".")
    for i in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:i]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[i:]:
            found = getattr(found, attribute)
        return found
    raise AttributeError(name)


def tutorial(page: Path) -> str:
    """Return what a reader of a tutorial does: files are saved under their titles, Python and commands of npgm run."""
    lines = ["import commands, pathlib, sys", "sys.path.insert(0, '.')"]
    for _, name, title, code in BLOCK.findall(page.read_text(encoding="utf-8")):
        if title:
            lines.append(f"pathlib.Path({title!r}).write_text({code!r})")
        elif name == "python":
            lines.append(code)
        elif name == "sh":
            lines += [f"commands.npgm(*{shlex.split(line)[1:]})" for line in code.splitlines()]
    return "\n".join(lines)

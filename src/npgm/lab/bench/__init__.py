"""The benchmarks: each module is one, its function `run` prints it, and `steps` is the one that runs by default."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

from npgm._common import validate


def names() -> list[str]:
    """Return the names of the benchmarks: those of the modules, with dashes."""
    return [name.replace("_", "-") for _, name, _ in pkgutil.iter_modules(__path__) if not name.startswith("_")]


def load(name: str) -> ModuleType:
    """Import a benchmark.

    Raises:
        ValueError: if there is none of that name.
        ModuleNotFoundError: if it needs a package that is not installed.
    """
    return importlib.import_module(f"{__name__}.{validate.choice('benchmark', name, names()).replace('-', '_')}")


def summary(name: str) -> str:
    """Return what a benchmark measures, in a line, without importing it."""
    module = Path(__path__[0], name.replace("-", "_"))
    file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    return (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").partition("\n")[0]

"""The experiments: the TOML files of `specs`, of installed packages and of users, read and checked."""

from __future__ import annotations

import tomllib
from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, cast

from npgm._common import validate
from npgm._common.registry import discover
from npgm.lab.experiments import claims
from npgm.lab.experiments.kinds import experiment_class
from npgm.lab.experiments.spec import Claim, Experiment, MethodSpec

SPECS = Path(__file__).with_name("specs")

T = TypeVar("T")


def names() -> list[str]:
    """Return the experiments that can be loaded by name: those of npgm, and of installed packages.

    A package enters its own by naming one of its packages, in which the TOML files are, as an entry point of the group
    ``npgm.lab.experiments``.
    """
    return sorted(_paths())


def chosen(name: str) -> list[str]:
    """Return the experiments that a command names: one, ``all``, or a family, such as ``char`` for those on text.

    The names of a family's members begin with its name and a dash.
    """
    known = names()
    family = [other for other in known if name == "all" or other.startswith(f"{name}-")]
    return family if family and name not in known else [name]


def load(name: str | Path) -> Experiment:
    """Read an experiment by its name, or from a TOML file by its path.

    Raises:
        ValueError: if there is none of that name, or its file is not as it should be, with the key at fault.
        OSError: if the file cannot be read.
    """
    paths = _paths()
    if isinstance(name, Path) or name.endswith(".toml"):
        path = Path(name)
        taken = paths.get(path.stem)
        if taken is not None and path.resolve() != taken.resolve():
            raise ValueError(f"{path}: there is an experiment {path.stem!r} already; give the file another name")
        return parse(path) if taken else replace(parse(path), file=str(path))
    return parse(paths[validate.choice("experiment", name, paths)])


def _paths() -> dict[str, Path]:
    found = (*discover("npgm.experiments", lambda named: [*files(named.value).iterdir()]), SPECS.iterdir())
    paths = (Path(str(entry)) for folder in found for entry in folder)
    return {path.stem: path for path in paths if path.suffix == ".toml"}


def parse(path: Path) -> Experiment:
    """Read an experiment from a TOML file; raises as `load` does."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        experiment = experiment_class(content.get("kind"))
        content["presets"] = {
            name: _make(experiment.preset_class, p, f"presets.{name}") for name, p in content.get("presets", {}).items()
        }
        for key, cls in (("methods", MethodSpec), ("claims", Claim)):
            content[key] = [_make(cls, entry, f"{key}[{i}]") for i, entry in enumerate(content.get(key, []))]
        for i, claim in enumerate(content["claims"]):
            try:
                claims.verify(claim)
            except (TypeError, ValueError) as error:
                raise ValueError(f"claims[{i}]: {error}") from error
        return cast(Experiment, _make(experiment, {**content, "key": path.stem}))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path.name}: {error}") from error


def _make(cls: type[T], content: dict[str, Any], where: str = "") -> T:
    accepted = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    if unknown := sorted(set(content) - set(accepted)):
        raise ValueError(f"{where or 'the experiment'} has no key {unknown[0]!r}; accepted: {', '.join(accepted)}")
    try:
        return cls(**content)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}" if where else str(error)) from error

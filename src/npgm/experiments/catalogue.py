"""The experiments of the package: the TOML files of `specs`, read and checked.

What a file names decides the kind of its experiment: a ``problem`` is solved, a ``network`` is trained, on images or on
a text by what its ``dataset`` is.
"""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from npgm import _validate, data
from npgm.experiments import claims
from npgm.experiments.spec import Claim, Experiment, MethodSpec

SPECS = Path(__file__).with_name("specs")

T = TypeVar("T")


def names() -> list[str]:
    """Return the experiments that can be loaded."""
    return sorted(path.stem for path in SPECS.glob("*.toml"))


def load(name: str) -> Experiment:
    """Read an experiment of the package.

    Raises:
        ValueError: if there is none of that name, or its file is not as it should be, with the key at fault.
    """
    return parse(SPECS / f"{_validate.choice('experiment', name, names())}.toml")


def parse(path: Path) -> Experiment:
    """Read an experiment from a TOML file; raises as `load` does."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        kind = _kind(content)
        content["presets"] = {
            name: _make(kind.preset_class, p, f"presets.{name}") for name, p in content.get("presets", {}).items()
        }
        for key, cls in (("methods", MethodSpec), ("claims", Claim)):
            content[key] = [_make(cls, entry, f"{key}[{i}]") for i, entry in enumerate(content.get(key, []))]
        for i, claim in enumerate(content["claims"]):
            try:
                claims.validate(claim)
            except (TypeError, ValueError) as error:
                raise ValueError(f"claims[{i}]: {error}") from error
        return _make(kind, {**content, "key": path.stem})
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path.name}: {error}") from error


def _kind(content: dict[str, Any]) -> type[Experiment]:
    if "network" in content:
        # needs torch, which the other kind does not
        from npgm.experiments.training.experiment import ImageExperiment, TextExperiment

        of_text = isinstance(data.registry.get(str(content.get("dataset"))), data.Text)
        return TextExperiment if of_text else ImageExperiment
    from npgm.experiments.solving.experiment import SolvingExperiment

    return SolvingExperiment


def _make(cls: type[T], content: dict[str, Any], where: str = "") -> T:
    accepted = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    if unknown := sorted(set(content) - set(accepted)):
        raise ValueError(f"{where or 'the experiment'} has no key {unknown[0]!r}; accepted: {', '.join(accepted)}")
    try:
        return cls(**content)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}" if where else str(error)) from error

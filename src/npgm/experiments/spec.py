"""Experiments as data: the TOML files of `specs`, read and checked."""

from __future__ import annotations

import hashlib
import itertools
import json
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from npgm import _validate
from npgm.experiments import instances
from npgm.references import reference
from npgm.solvers.method import Method, build

SPECS = Path(__file__).with_name("specs")

QUANTITIES = {"grad_norm": "‖∇f‖", "gap": "f − min f"}
"""The quantities of a history that figures and tables show, with their symbols."""

T = TypeVar("T")
Setting = dict[str, Any]


@dataclass(frozen=True)
class MethodSpec:
    """A solver with its options, under the name that figures and tables show."""

    label: str
    method: str
    options: dict[str, Any]
    reference: dict[str, Any] | None = None
    role: str = "compared"
    """``compared`` in figures and claims, or ``check``: in tables only, for one claim or a remark."""
    note: str = ""

    def __post_init__(self) -> None:
        _validate.choice("role", self.role, ("compared", "check"))
        self.solver()

    def arguments(self) -> dict[str, Any]:
        """Return the options with the reference function built."""
        return self.options if self.reference is None else {**self.options, "reference": reference(**self.reference)}

    def solver(self) -> Method:
        """Build the solver; raises where the method, an option or the reference is not accepted."""
        return build(self.method, self.arguments())


@dataclass(frozen=True)
class Preset:
    """How much of an experiment is run: the starts for each setting, and the iterations of a run."""

    starts: list[int]
    maxiter: int

    def __post_init__(self) -> None:
        for number in self.starts:
            _validate.count("starts", number, least=1)
        _validate.count("maxiter", self.maxiter, least=1)


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper and the check that decides it; see `npgm.experiments.claims`."""

    sentence: str
    check: str
    method: str
    other: str | None = None


@dataclass(frozen=True)
class Run:
    """One run of one method on one setting from one start: the unit that is computed, kept and resumed."""

    problem: str
    options: dict[str, Any]
    setting: Setting
    method: MethodSpec
    seed: int
    maxiter: int
    sharpness_points: int

    def instance(self, threads: int) -> instances.Instance:
        """Build the problem."""
        return instances.registry[self.problem](**self.setting, **self.options, threads=threads)

    @property
    def key(self) -> str:
        """A file name that changes with everything on which the numbers depend."""
        method = [self.method.method, self.method.options, self.method.reference]
        identity = [self.problem, self.options, self.setting, method, self.seed, self.maxiter, self.sharpness_points]
        text = json.dumps(identity, sort_keys=True)
        where = "-".join(f"{name}{value}" for name, value in self.setting.items())
        return f"{self.method.method}-{where}-seed{self.seed}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Experiment:
    """An experiment of the paper, with the presets at which it can be run."""

    key: str
    title: str
    source: str
    problem: str
    converged_below: float
    settings: dict[str, list[Any]]
    presets: dict[str, Preset]
    methods: list[MethodSpec]
    claims: list[Claim] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    """What the problem takes beside a setting."""
    measure: str = "grad_norm"
    """The quantity that ``converged_below`` bounds."""
    quantities: list[str] = field(default_factory=lambda: list(QUANTITIES))
    """What the figures show."""
    sharpness_points: int = 0
    """The iterations of a run at which λ_max(∇²f) is measured."""

    def __post_init__(self) -> None:
        _validate.choice("problem", self.problem, instances.registry)
        _validate.positive("converged_below", self.converged_below)
        _validate.count("sharpness_points", self.sharpness_points)
        for quantity in (self.measure, *self.quantities):
            _validate.choice("quantity", quantity, QUANTITIES)
        labels = [method.label for method in self.methods]
        if len(set(labels)) < len(labels):
            raise ValueError(f"the labels of the methods must differ, but are {', '.join(labels)}")
        for claim in self.claims:
            for label in filter(None, (claim.method, claim.other)):
                _validate.choice("method of a claim", label, labels)
        for name, preset in self.presets.items():
            if len(preset.starts) != len(self.grid()):
                raise ValueError(f"presets.{name}.starts must have {len(self.grid())} entries, one for each setting")

    def grid(self) -> list[Setting]:
        """Return every combination of the settings' values."""
        return [dict(zip(self.settings, values, strict=True)) for values in itertools.product(*self.settings.values())]

    def compared(self) -> list[str]:
        """Return the labels of the methods that figures and claims compare."""
        return [method.label for method in self.methods if method.role == "compared"]

    def preset(self, name: str) -> Preset:
        """Return a preset by name."""
        return self.presets[_validate.choice("preset", name, self.presets)]

    def runs(self, preset: str) -> list[Run]:
        """Return all runs of a preset."""
        chosen = self.preset(preset)
        return [
            Run(self.problem, self.options, setting, method, seed, chosen.maxiter, self.sharpness_points)
            for setting, starts in zip(self.grid(), chosen.starts, strict=True)
            for method in self.methods
            for seed in range(starts)
        ]


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
        content["presets"] = {
            name: _make(Preset, p, f"presets.{name}") for name, p in content.get("presets", {}).items()
        }
        for key, cls in (("methods", MethodSpec), ("claims", Claim)):
            content[key] = [_make(cls, entry, f"{key}[{i}]") for i, entry in enumerate(content.get(key, []))]
        return _make(Experiment, {**content, "key": path.stem})
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

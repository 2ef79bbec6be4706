"""What every experiment has: settings, presets, methods, claims, and the runs that they make."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import platform
import shlex
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Self

import polars as pl

from npgm._common import validate
from npgm._common.registry import modules
from npgm.references import Blocks, reference

Setting = dict[str, Any]


@dataclass(frozen=True)
class MethodSpec:
    """A method with its options, under the name that figures and tables show."""

    label: str
    method: str
    options: dict[str, Any]
    reference: dict[str, Any] | None = None
    """Its φ: the arguments of `npgm.reference`, and ``blocks``, the shapes of the matrices that a point holds."""
    role: str = "compared"
    """``compared`` in figures and claims, or ``check``: in tables only, for one claim or a remark."""
    note: str = ""
    fixed_radius: bool = False
    """Whether tuning searches the stepsize alone, and leaves λ or the radius of clipping as it is."""

    def __post_init__(self) -> None:
        validate.choice("role", self.role, ("compared", "check"))
        self.arguments()

    def arguments(self) -> dict[str, Any]:
        """Return the options with the reference function built."""
        if self.reference is None:
            return self.options
        if "scale" in self.options:  # the method's own way to λ, for which it takes φ by name
            if further := ", ".join(name for name in self.reference if name != "name"):
                raise ValueError(f"with the option scale, a reference takes only its name, not {further}")
            return {**self.options, "reference": self.reference["name"]}
        phi = {name: value for name, value in self.reference.items() if name != "blocks"}
        built = reference(**phi)
        if "blocks" in self.reference:
            built = Blocks(built, self.reference["blocks"])
        return {**self.options, "reference": built}

    def at(self, lr: float) -> MethodSpec:
        """Return the method with another stepsize."""
        return dataclasses.replace(self, options={**self.options, "lr": lr})

    @property
    def radius(self) -> float | None:
        """The norm from which gradients are large: λ, absolute or relative, or the radius of clipping; None without."""
        name = self._radius_option
        radius = (self.reference or {}).get("scale", 1.0) if name is None else self.options.get(name)
        return None if isinstance(radius, str) else radius  # a rule of clipping finds it by itself

    def at_radius(self, radius: float) -> MethodSpec:
        """Return the method with another λ or radius of clipping."""
        if (name := self._radius_option) is not None:
            return dataclasses.replace(self, options={**self.options, name: radius})
        return dataclasses.replace(self, reference={**(self.reference or {}), "scale": radius})

    @property
    def _radius_option(self) -> str | None:
        """The option that is the radius, None if that is the scale of φ."""
        if self.reference is None:
            return "clip"
        return "relative_scale" if "relative_scale" in self.options else None

    @property
    def identity(self) -> list[Any]:
        """All on which the method's numbers depend."""
        return [self.method, self.options, self.reference]


@dataclass(frozen=True)
class Quantity:
    """What a history has, and how figures and tables show it."""

    symbol: str
    form: str = "{:.2g}"
    """The form of a number in a table."""
    linear: bool = False
    """Whether its axis is linear, and not logarithmic."""
    lowest: float | None = None
    highest: float | None = None
    """The values beyond which it means nothing, and is shown as these."""


@dataclass(frozen=True, kw_only=True)
class Preset:
    """How much of an experiment is run."""

    starts: list[int]
    """The starts for each setting, seeds 0, 1, ..."""
    inconclusive: str = ""
    """Why no claim can be decided on it, in words; empty if claims can be."""

    def __post_init__(self) -> None:
        for number in self.starts:
            validate.count("starts", number, least=1)


@dataclass(frozen=True)
class Claim:
    """A sentence, of the paper unless its experiment is beyond it, and the check that decides it.

    See `npgm.lab.experiments.claims`.
    """

    sentence: str
    check: str
    method: str
    other: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    """What the check takes beside these."""


@dataclass(frozen=True, kw_only=True)
class Run(ABC):
    """One run of one method on one setting from one start: what is kept."""

    setting: Setting
    method: MethodSpec
    seed: int

    @property
    @abstractmethod
    def identity(self) -> list[Any]:
        """All on which the run's numbers depend, as JSON knows it."""

    @property
    def key(self) -> str:
        """A file name that changes with everything on which the numbers depend."""
        digest = hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:12]
        where = (f"{name}{value}" for name, value in self.setting.items())
        return "-".join((self.method.method, *where, f"seed{self.seed}", digest))


@dataclass(frozen=True)
class Resources:
    """What the computation of some runs may use: threads, a torch device, and a folder for files of its own."""

    threads: int
    device: str
    folder: Path
    parallel: str | None = None
    """How ranks of torchrun train a network together, ``ddp`` or ``fsdp``; None for one process by itself."""


@dataclass(frozen=True, kw_only=True)
class Experiment(ABC):
    """An experiment, with the presets at which it can be run.

    The kinds of experiments are its subclasses; see `npgm.lab.experiments.kinds`.
    """

    key: str
    """Its name, and that of the folder of its results."""
    file: str | None = None
    """The file that it was read from, if it was not found by its name."""
    title: str
    kind: str
    """A name of `npgm.lab.experiments.kinds.KINDS`."""
    source: str = ""
    """The place in the paper; empty if it has no such experiment."""
    measure: str
    """The quantity that ``converged_below`` bounds."""
    converged_below: float
    presets: dict[str, Any]
    """By name, the smallest first."""
    methods: list[MethodSpec]
    claims: list[Claim] = field(default_factory=list)
    settings: dict[str, list[Any]] = field(default_factory=dict)
    readings: dict[str, list[str]] = field(default_factory=dict)
    """Those settings that are readings of what the paper leaves open, with each value in words: a claim has a verdict
    for each of them, where other settings are what it is about."""
    quantities: list[str]
    """What figures and tables show."""
    marks: list[int] = field(default_factory=list)
    """Iterations or epochs at which tables show the measure, beside the last ones."""
    sweep: list[float] = field(default_factory=list)
    """The stepsizes that tuning tries; empty for an adaptive grid about that of each method."""
    tuning_seed: int | None = None
    """The seed with which stepsizes, λ and radii of clipping are tuned on grids that are the same for all methods, none
    of those that are reported; None for the paper's tuning. See `npgm.lab.experiments.tuning.tune`."""

    preset_class: ClassVar[type[Preset]]
    known: ClassVar[dict[str, Quantity]]
    """The quantities of a history that can be shown."""
    clock: ClassVar[str]
    """What the rows of a history count."""
    starts_are: ClassVar[str]
    """What differs between the runs of a method on a setting."""
    packages: ClassVar[tuple[str, ...]]
    """The packages that compute the numbers."""
    average: ClassVar[str]
    """How the starts are summed up: ``median``, with their range, or ``mean``, with a confidence interval."""
    data_parallel: ClassVar[bool] = False
    """Whether the ranks of torchrun compute a run together; if not, the first one computes it alone."""

    def __post_init__(self) -> None:
        validate.positive("converged_below", self.converged_below)
        for mark in self.marks:
            validate.count("marks", mark, least=1)
        for lr in self.sweep:
            validate.positive("sweep", lr)
        if self.sweep and self.tuning_seed is not None:
            raise ValueError("sweep and tuning_seed exclude each other: a tuning seed has grids of its own")
        for quantity in (self.measure, *self.quantities):
            validate.choice("quantity", quantity, self.known)
        for i, method in enumerate(self.methods):
            try:
                self.update(method)
            except (TypeError, ValueError) as error:
                raise ValueError(f"methods[{i}]: {error}") from error
        labels = [method.label for method in self.methods]
        if len(set(labels)) < len(labels):
            raise ValueError(f"the labels of the methods must differ, but are {', '.join(labels)}")
        for claim in self.claims:
            for label in filter(None, (claim.method, claim.other)):
                validate.choice("method of a claim", label, labels)
        for name, words in self.readings.items():
            validate.choice("setting", name, self.settings)
            if len(words) != len(self.settings[name]):
                raise ValueError(f"readings.{name} must have {len(self.settings[name])} entries, one for each value")
        for name, preset in self.presets.items():
            if len(preset.starts) != len(self.grid()):
                raise ValueError(f"presets.{name}.starts must have {len(self.grid())} entries, one for each setting")
            self.runs(name)

    @abstractmethod
    def update(self, method: MethodSpec) -> str:
        """Return the step of a method as a formula.

        Raises:
            TypeError, ValueError: if the method or an option is not accepted.
        """

    @abstractmethod
    def run(self, preset: Any, setting: Setting, method: MethodSpec, seed: int) -> Run:
        """Return a run."""

    @abstractmethod
    def scope(self, preset: Any) -> str:
        """Return how much a preset runs, in words."""

    @abstractmethod
    def runs_at_once(self, run: Run) -> int:
        """Return how many runs like this one, of different seeds, to compute at once."""

    @abstractmethod
    def compute(self, runs: Sequence[Run], resources: Resources) -> list[pl.DataFrame]:
        """Return the history of each run, of which only the seeds differ; see `npgm.lab.experiments.Store`."""

    @abstractmethod
    def estimate(self, runs: Sequence[Run], resources: Resources) -> float:
        """Return about how many seconds `compute` will take, from a few steps.

        Raises:
            npgm.lab.data.DataError: if the data cannot be had.
        """

    def forget(self, runs: Sequence[Run], resources: Resources) -> None:  # noqa: B027  most keep nothing
        """Remove what `compute` has kept to go on from after an interruption; the histories are safe now."""

    @property
    def origin(self) -> str:
        """Where the experiment is from, in words."""
        return f"{self.source} of the paper" if self.source else "Beyond the paper"

    def quoted(self, claim: Claim) -> str:
        """Return the sentence of a claim, in quotation marks if it is the paper's."""
        return f"“{claim.sentence}”" if self.source else claim.sentence

    def symbol(self, quantity: str) -> str:
        """Return the symbol of a quantity."""
        return self.known[quantity].symbol

    def stepsize_sweep(self, preset: str) -> list[Run]:
        """Return runs that show in how wide a range of stepsizes the methods train, none by default."""
        return []

    def environment(self, resources: Resources) -> str:
        """Return what the numbers are computed with and on, in words."""
        packages = ", ".join(f"{name} {version(name)}" for name in ("npgm", *self.packages))
        system = f"{platform.system()} {platform.machine()} with {os.cpu_count()} cores"
        return f"Python {platform.python_version()}, {packages} on {system}"

    def command(self, name: str, preset: str) -> str:
        """Return a command on this experiment, with the modules that it needs."""
        references = (str((method.reference or {}).get("name", "")) for method in self.methods)
        used = {
            *(method.method for method in self.methods),
            *(phi.partition("-")[2] for phi in references),
            *self.names,
        }
        imports = [f"--import {shlex.quote(module)} " for module in modules(used)]
        found_by = self.key if self.file is None else shlex.quote(self.file)
        return f"npgm {''.join(imports)}{name} {found_by} --preset {preset}"

    @property
    def names(self) -> set[str]:
        """The entries of registries that the experiment names beside its methods and their reference functions."""
        return set()

    @property
    def usual_preset(self) -> str:
        """The preset that is run where none is named: ``cpu``, or the only one."""
        return next(iter(self.presets)) if len(self.presets) == 1 else "cpu"

    def grid(self) -> list[Setting]:
        """Return every combination of the settings' values."""
        return [dict(zip(self.settings, values, strict=True)) for values in itertools.product(*self.settings.values())]

    def by_reading(self) -> list[tuple[str, Setting, Self]]:
        """Return each reading of what the paper leaves open: in words, as a setting, and the experiment of it alone.

        There is one without words and setting if the paper leaves no setting open.
        """
        parts = []
        for values in itertools.product(*(range(len(words)) for words in self.readings.values())):
            chosen = dict(zip(self.readings, values, strict=True))
            words = ", ".join(self.readings[name][i] for name, i in chosen.items())
            setting = {name: self.settings[name][i] for name, i in chosen.items()}
            numbers = [i for i, other in enumerate(self.grid()) if setting.items() <= other.items()]
            alone = dataclasses.replace(
                self,
                settings={**self.settings, **{name: [value] for name, value in setting.items()}},
                readings={},
                presets={
                    name: dataclasses.replace(preset, starts=[preset.starts[i] for i in numbers])
                    for name, preset in self.presets.items()
                },
            )
            parts.append((words, setting, alone))
        return parts

    def compared(self) -> list[str]:
        """Return the labels of the methods that figures and claims compare."""
        return [method.label for method in self.methods if method.role == "compared"]

    def preset(self, name: str) -> Any:
        """Return a preset by name."""
        return self.presets[validate.choice("preset", name, self.presets)]

    def runs(self, preset: str, methods: Sequence[str] | None = None, seeds: int | None = None) -> list[Run]:
        """Return the runs of a preset: all, or those of the methods of some labels, or of the first ``seeds`` seeds."""
        chosen = self.preset(preset)
        labels = [method.label for method in self.methods]
        for label in methods or ():
            validate.choice("method", label, labels)
        if seeds is not None:
            validate.count("seeds", seeds, least=1)
        return [
            self.run(chosen, setting, method, seed)
            for setting, starts in zip(self.grid(), chosen.starts, strict=True)
            for method in self.methods
            if not methods or method.label in methods
            for seed in range(starts if seeds is None else min(starts, seeds))
        ]

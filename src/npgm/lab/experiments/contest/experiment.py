"""The experiment in which every method runs on every problem of some suites."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import polars as pl
from threadpoolctl import threadpool_limits

from npgm._common import validate
from npgm.lab.experiments.contest.contender import SCALES, TRIALS, contend, formula
from npgm.lab.experiments.contest.problems import OUTSIDE, SUITES, ContestProblem, suite
from npgm.lab.experiments.spec import Experiment, MethodSpec, Preset, Quantity, Resources, Run, Setting


@dataclass(frozen=True, kw_only=True)
class ContestPreset(Preset):
    """How much of a contest is run: of each suite the first so many problems, its ``starts``."""

    evaluations: int
    """Those of f and ∇f after which a run has failed."""
    trial: int
    """Those after which a stepsize that is tried is judged."""

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.count("evaluations", self.evaluations, least=1)
        validate.count("trial", self.trial, least=1)


@dataclass(frozen=True, kw_only=True)
class ContestRun(Run):
    """One method on one problem, of which the seed is the number in its suite."""

    evaluations: int
    trial: int
    tol: float

    @property
    def problem(self) -> ContestProblem:
        """The problem."""
        return suite(self.setting["suite"])[self.seed]

    @property
    def identity(self) -> list[Any]:
        """All on which the run's numbers depend."""
        ends = [self.evaluations, self.trial, self.tol]
        problem = self.seed if self.setting["suite"] in OUTSIDE else self.problem.name
        return [self.setting, problem, self.method.identity, *ends, SCALES, TRIALS]


@dataclass(frozen=True, kw_only=True)
class ContestExperiment(Experiment):
    """A contest of methods; its one setting is the suite, and its seeds are the suite's problems."""

    measure: str = "relative_norm"
    quantities: list[str] = field(default_factory=lambda: ["relative_norm"])

    preset_class: ClassVar[type[Preset]] = ContestPreset
    known: ClassVar[dict[str, Quantity]] = {"relative_norm": Quantity("‖∇f‖/‖∇f(x⁰)‖")}
    clock: ClassVar[str] = "evaluation"
    starts_are: ClassVar[str] = "problems"
    packages: ClassVar[tuple[str, ...]] = ("numpy", "scipy")
    average: ClassVar[str] = "median"

    def __post_init__(self) -> None:
        if list(self.settings) != ["suite"]:
            raise ValueError(f"a contest has only the setting suite, not {', '.join(self.settings)}")
        for name in self.settings["suite"]:
            validate.choice("suite", name, SUITES)
        super().__post_init__()
        for preset in self.presets.values():
            for name, number in zip(self.settings["suite"], preset.starts, strict=True):
                if number > SUITES[name]:
                    raise ValueError(f"starts must be at most {SUITES[name]} for the suite {name!r}, not {number}")

    def update(self, method: MethodSpec) -> str:
        """Return the step of a method as a formula."""
        return formula(method.method, method.arguments())

    def run(self, preset: ContestPreset, setting: Setting, method: MethodSpec, seed: int) -> ContestRun:
        """Return a run."""
        return ContestRun(
            setting=setting, method=method, seed=seed, evaluations=preset.evaluations, trial=preset.trial,
            tol=self.converged_below,
        )  # fmt: skip

    def scope(self, preset: ContestPreset) -> str:
        """Return the problems and the evaluations in words."""
        numbers = (f"{n} {s['suite']}" for s, n in zip(self.grid(), preset.starts, strict=True))
        return f"problems: {', '.join(numbers)}; at most {preset.evaluations} evaluations a run"

    def runs_at_once(self, run: Run) -> int:
        """Return one: each problem is by itself."""
        return 1

    def estimate(self, runs: Sequence[ContestRun], resources: Resources) -> float:  # type: ignore[override]
        """Return about how many seconds `compute` will take: those of a tenth of the evaluations of a run."""
        problem = runs[0].problem
        clock = time.perf_counter()
        for _ in range(10):
            problem.fun(problem.start)
        return (time.perf_counter() - clock) / 100 * runs[0].evaluations * len(runs)

    def compute(self, runs: Sequence[ContestRun], resources: Resources) -> list[pl.DataFrame]:  # type: ignore[override]
        """Run a method on each problem."""
        with threadpool_limits(1):
            return [_history(run) for run in runs]


def _history(run: ContestRun) -> pl.DataFrame:
    record = contend(
        run.method.method, run.method.arguments(), run.problem, limit=run.evaluations, trial=run.trial, tol=run.tol
    )
    return pl.DataFrame({
        "k": pl.int_range(1, len(record.fun) + 1, dtype=pl.Int32, eager=True),
        "seconds": record.seconds,
        "fun": record.fun,
        "relative_norm": record.relative,
        "status": [record.status] * len(record.fun),
        "lr": pl.Series([record.lr] * len(record.fun), dtype=pl.Float64),
        "scale": pl.Series([record.scale] * len(record.fun), dtype=pl.Float64),
        "tuning": pl.Series([record.tuning] * len(record.fun), dtype=pl.Int64),
    })  # fmt: skip

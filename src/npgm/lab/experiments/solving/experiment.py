"""The experiments in which solvers minimise a problem."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

from npgm._common import validate
from npgm._common.array import Floats
from npgm.lab.experiments.solving import instances
from npgm.lab.experiments.spec import Experiment, MethodSpec, Preset, Quantity, Resources, Run, Setting
from npgm.lab.experiments.summary import setting_name
from npgm.proximal import Nonnegative, Proximable
from npgm.solvers import Status, minimize
from npgm.solvers.method import Method, build
from npgm.theory import sharpness

BATCH = 5
"""Starts that share one batch: more are hardly faster, and an interruption would lose more."""


@dataclass(frozen=True, kw_only=True)
class SolvingPreset(Preset):
    """How much of an experiment is run: the starts for each setting, and the iterations of a run."""

    maxiter: int
    sharpness_points: int | None = None
    """In place of the experiment's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.count("maxiter", self.maxiter, least=1)
        if self.sharpness_points is not None:
            validate.count("sharpness_points", self.sharpness_points)


@dataclass(frozen=True, kw_only=True)
class SolvingRun(Run):
    """One run of a solver."""

    problem: str
    options: dict[str, Any]
    maxiter: int
    stops_below: float
    sharpness_points: int

    def instance(self, threads: int) -> instances.Instance:
        """Build the problem."""
        return instances.registry[self.problem](**self.setting, **self.options, threads=threads)

    @property
    def identity(self) -> list[Any]:
        """All on which the run's numbers depend."""
        ends = [self.maxiter, self.stops_below]
        return [self.problem, self.options, self.setting, self.method.identity, self.seed, *ends, self.sharpness_points]


@dataclass(frozen=True, kw_only=True)
class SolvingExperiment(Experiment):
    """An experiment in which solvers minimise a problem from several starts."""

    problem: str
    measure: str = "grad_norm"
    quantities: list[str] = field(default_factory=lambda: ["grad_norm", "gap"])
    options: dict[str, Any] = field(default_factory=dict)
    """What the problem takes beside a setting."""
    stops_below: float = 0.0
    """‖∇f‖ at which a run ends before its last iteration."""
    sharpness_points: int = 0
    """The iterations of a run at which λ_max(∇²f) is measured."""

    preset_class: ClassVar[type[Preset]] = SolvingPreset
    # f is of the order of 1e5 in the matrix factorisation: what its difference to min f is below this is rounding
    known: ClassVar[dict[str, Quantity]] = {
        "grad_norm": Quantity("‖∇f‖"), "gap": Quantity("f − min f", lowest=1e-9), "sharpness": Quantity("λ_max(∇²f)"),
    }  # fmt: skip
    clock: ClassVar[str] = "iteration"
    starts_are: ClassVar[str] = "starts"
    packages: ClassVar[tuple[str, ...]] = ("numpy", "scipy")
    average: ClassVar[str] = "median"
    composite: ClassVar[bool] = False
    """Whether the problem is f + g."""

    def __post_init__(self) -> None:
        built = instances.registry[validate.choice("problem", self.problem, instances.registry)]
        if (isinstance(built, type) and issubclass(built, instances.Composite)) != self.composite:
            other = "solving" if self.composite else "composite"
            raise ValueError(
                f"an experiment on the problem {self.problem!r} is of the kind {other!r}, not {self.kind!r}"
            )
        validate.count("sharpness_points", self.sharpness_points)
        validate.nonnegative("stops_below", self.stops_below)
        super().__post_init__()

    @property
    def names(self) -> set[str]:
        """The problem."""
        return {self.problem}

    def update(self, method: MethodSpec) -> str:
        """Return the step of a solver as a formula."""
        return solver(method).update

    def run(self, preset: SolvingPreset, setting: Setting, method: MethodSpec, seed: int) -> SolvingRun:
        """Return a run."""
        points = self.sharpness_points if preset.sharpness_points is None else preset.sharpness_points
        return SolvingRun(
            setting=setting, method=method, seed=seed, problem=self.problem, options=self.options,
            maxiter=preset.maxiter, stops_below=self.stops_below, sharpness_points=points,
        )  # fmt: skip

    def scope(self, preset: SolvingPreset) -> str:
        """Return the iterations and the starts in words."""
        starts = ", ".join(f"{n} for {setting_name(s)}" for s, n in zip(self.grid(), preset.starts, strict=True))
        symbol = self.symbol("grad_norm")
        ends = f", until {symbol} ≤ {self.stops_below:g}; its curves are level from there" if self.stops_below else ""
        return f"{preset.maxiter} iterations a run{ends}; starts: {starts}"

    def runs_at_once(self, run: Run) -> int:
        """Return the starts that share a batch."""
        return BATCH

    def estimate(self, runs: Sequence[SolvingRun], resources: Resources) -> float:  # type: ignore[override]
        """Return about how many seconds `compute` takes if no run ends early, without measuring the sharpness."""
        first, seeds = runs[0], [run.seed for run in runs]
        instance = first.instance(resources.threads)
        starts, objective, iterations = instance.starts(seeds), instance.objective(seeds), min(20, first.maxiter)
        method = _solver(first, instance)
        _minimize(first, method, objective, starts, maxiter=1)  # what is slow the first time
        clock = time.perf_counter()
        _minimize(first, method, objective, starts, maxiter=iterations)
        return (time.perf_counter() - clock) / iterations * first.maxiter

    def compute(self, runs: Sequence[SolvingRun], resources: Resources) -> list[pl.DataFrame]:  # type: ignore[override]
        """Minimise from all starts at once."""
        first, seeds = runs[0], [run.seed for run in runs]
        instance = first.instance(resources.threads)
        probes = _probes(first.maxiter, first.sharpness_points)
        points = {0: instance.starts(seeds)}
        k = 0

        def keep(x: Floats) -> None:
            nonlocal k
            k += 1
            if k in probes:
                points[k] = x

        with threadpool_limits(1):  # the matrices are small; BLAS threads would only wait for each other
            method, objective = _solver(first, instance), instance.objective(seeds)
            result = _minimize(first, method, objective, points[0], maxiter=first.maxiter, callback=keep)
            measured = [{k: points[k][i] for k in probes if k <= last} for i, last in enumerate(result.nit)]
            return [
                _frame(result, i, optimum, _sharpness(instance, measured[i]))
                for i, optimum in enumerate(instance.optima(seeds))
            ]


@dataclass(frozen=True, kw_only=True)
class CompositeExperiment(SolvingExperiment):
    """An experiment in which solvers minimise f + g, of whose least value nothing is known."""

    quantities: list[str] = field(default_factory=lambda: ["grad_norm", "fun"])

    known: ClassVar[dict[str, Quantity]] = {"grad_norm": Quantity("‖v‖"), "fun": Quantity("f + g")}
    composite: ClassVar[bool] = True

    def update(self, method: MethodSpec) -> str:
        """Return the step of a solver as a formula."""
        return solver(method, Nonnegative()).update


def solver(method: MethodSpec, prox: Proximable | None = None) -> Method:
    """Build a solver, for f + g if there is a g; raises where the method or an option is not accepted."""
    if method.method != "torch":
        return build(method.method, method.arguments() | ({} if prox is None else {"prox": prox}))
    from npgm.lab.experiments.solving.torch_optimizer import TorchOptimizer  # needs torch, which solvers do not

    return TorchOptimizer(**method.arguments())


def _solver(run: SolvingRun, instance: instances.Instance) -> Method:
    return solver(run.method, instance.problem.prox if isinstance(instance, instances.Composite) else None)


def _minimize(run: SolvingRun, method: Method, objective: instances.Objective, starts: Floats, **options: Any) -> Any:
    with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges is a result
        return minimize(objective, starts, method=method, tol=run.stops_below, batch=True, history=True, **options)


def _probes(maxiter: int, number: int) -> set[int]:
    """Return iterations at which to measure: 0, and a geometric sequence to ``maxiter``."""
    return {0, *np.geomspace(1, maxiter, max(number - 1, 0)).round().astype(int).tolist()} if number else set()


def _sharpness(instance: instances.Instance, points: dict[int, Floats]) -> dict[int, float]:
    values: dict[int, float] = {}
    start = None
    for k, x in sorted(points.items()):
        values[k], start = sharpness(instance.hvp, x, start=start)
    return values


def _frame(result: Any, i: int, optimum: float, sharp: dict[int, float]) -> pl.DataFrame:
    length = int(result.nit[i]) + 1
    history = {name: values if values.ndim == 1 else values[:, i] for name, values in result.history.items()}
    return pl.DataFrame({
        "k": np.arange(length, dtype=np.int32),
        "seconds": history["seconds"][:length] / len(result.nit),
        **{name: history[name][:length] for name in ("fun", "grad_norm", "stationarity")},
        "gap": history["fun"][:length] - optimum,
        "sharpness": pl.Series([sharp.get(k) for k in range(length)], dtype=pl.Float64),
        "status": [Status(int(result.status[i])).name] * length,
    })  # fmt: skip

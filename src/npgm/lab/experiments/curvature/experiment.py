"""Experiments in which the curvature of the loss is measured along the training of a network on text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import polars as pl
import torch
from torch.nn.functional import cross_entropy

from npgm._common import validate
from npgm.lab.experiments.spec import MethodSpec, Quantity, Resources, Run, Setting
from npgm.lab.experiments.training.experiment import TextExperiment, TextPreset, TrainingRun, trainer_of
from npgm.lab.experiments.training.trainer import Trainer
from npgm.lab.threads import with_threads
from npgm.references import reference
from npgm.theory import anisotropic_smoothness, hessian_norm
from npgm.theory.oracles import from_torch


@dataclass(frozen=True, kw_only=True)
class Curvature:
    """What is measured, and where.

    Args:
        points: about how many steps of a run, with the same ratio, up to the last, beside the first few.
        windows: the sequences of the validation part, evenly spread, of which the loss is the mean.
        reference: the reference function of L_a, as arguments of `npgm.reference`.
        products: the most Hessian-vector products for each number.
    """

    points: int
    windows: int
    reference: dict[str, Any]
    products: int = 30

    def __post_init__(self) -> None:
        validate.count("points", self.points, least=1)
        validate.count("windows", self.windows, least=1)
        validate.count("products", self.products, least=10)
        reference(**self.reference)

    def steps(self, first: int, last: int) -> set[int]:
        """Return the steps after which to measure."""
        spread = np.geomspace(1, last, self.points).round().astype(int).tolist()
        return {k for k in (*range(1, first + 1), *spread) if k <= last}


@dataclass(frozen=True, kw_only=True)
class CurvatureRun(TrainingRun):
    """The training of one network, with its curvature."""

    curvature: dict[str, Any]

    @property
    def identity(self) -> list[Any]:
        """All on which the run's numbers depend."""
        return [*super().identity, self.curvature]


@dataclass(frozen=True, kw_only=True)
class CurvatureExperiment(TextExperiment):
    """An experiment in which ‖∇f‖, ‖∇²f‖ and L_a are measured along the training of a network on text.

    The function f is the mean loss of sequences that stay the same. L_a is λ_max(∇²φ*(∇f) ∇²f), by
    `npgm.theory.anisotropic_smoothness`. An interrupted run begins anew.
    """

    curvature: dict[str, Any]
    measure: str = "gradient_norm"
    quantities: list[str] = field(default_factory=lambda: ["gradient_norm", "hessian_norm", "smoothness"])

    average: ClassVar[str] = "median"
    first_steps: ClassVar[int] = 10
    """The first steps are all measured, and figures show them apart."""
    known: ClassVar[dict[str, Quantity]] = {
        "gradient_norm": Quantity("‖∇f‖"), "hessian_norm": Quantity("‖∇²f‖"), "smoothness": Quantity("L_a"),
    }  # fmt: skip

    def __post_init__(self) -> None:
        Curvature(**self.curvature)
        super().__post_init__()

    def run(self, preset: TextPreset, setting: Setting, method: MethodSpec, seed: int) -> CurvatureRun:  # type: ignore[override]
        """Return a run."""
        what = self._training(preset, setting)
        return CurvatureRun(setting=setting, method=method, seed=seed, training=what, curvature=self.curvature)

    def runs_at_once(self, run: Run) -> int:
        """Return 1: each network is measured by itself."""
        return 1

    def compute(self, runs: Sequence[CurvatureRun], resources: Resources) -> list[pl.DataFrame]:  # type: ignore[override]
        """Train, and measure on the way."""
        curvature = Curvature(**runs[0].curvature)
        with with_threads(resources.threads):
            trainer = trainer_of(runs, resources)
            steps, rows = curvature.steps(self.first_steps, trainer.total), []
            while trainer.steps < trainer.total:
                trainer.step()
                if trainer.steps in steps:
                    rows.append({"k": trainer.steps, "seconds": trainer.seconds, **_measured(trainer, curvature)})
        return [pl.DataFrame(rows, schema_overrides={"k": pl.Int32}).with_columns(status=pl.lit("MAXITER"))]


def _measured(trainer: Trainer, curvature: Curvature) -> dict[str, float]:
    """Return the numbers at the present parameters."""
    number = trainer.examples.held_out["validation"]
    chosen = slice(None, None, max(1, number // curvature.windows))
    characters, following = trainer.examples.held_out_batch("validation", chosen)

    def loss() -> torch.Tensor:
        logits = trainer.ensemble(characters[None])
        return cross_entropy(logits.flatten(0, -2), following.flatten())

    oracle, point = from_torch(loss, trainer.ensemble.members[0])
    phi, limit = reference(**curvature.reference), curvature.products
    return {
        "gradient_norm": float(np.linalg.norm(oracle.gradient(point))),
        "hessian_norm": hessian_norm(oracle, point, max_products=limit).value,
        "smoothness": anisotropic_smoothness(oracle, phi, point, max_products=limit).value,
    }

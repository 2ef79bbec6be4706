"""The experiments in which networks are trained."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import torch

from npgm import _validate, data
from npgm.experiments.spec import Experiment, MethodSpec, Preset, Resources, Run, Setting
from npgm.experiments.training import checkpoint, optimizers, parallel
from npgm.experiments.training.ensemble import stackable
from npgm.experiments.training.trainer import QUANTITIES, Trainer, Training

BATCH = 5
"""Seeds that are trained together at most: the paper's number."""
INTERVAL = 30.0
"""Seconds between checkpoints."""


@dataclass(frozen=True, kw_only=True)
class TrainingPreset(Preset):
    """How much of an experiment is run: the seeds for each setting, and what a seed's training goes through."""

    epochs: int
    examples: int | None = None
    """The training images, the first ones, and at most as many test images; all by default."""
    network: dict[str, Any] | None = None
    """A network in place of the experiment's own, for machines on which that takes too long."""


@dataclass(frozen=True, kw_only=True)
class TrainingRun(Run):
    """The training of one network."""

    training: Training

    @property
    def identity(self) -> list[Any]:
        """All on which the run's numbers depend."""
        return [asdict(self.training), self.method.identity, self.seed]


@dataclass(frozen=True, kw_only=True)
class TrainingExperiment(Experiment):
    """An experiment in which a network is trained, from several seeds."""

    network: dict[str, Any]
    dataset: str
    options: dict[str, Any]
    """What `Training` takes beside the network, the data set, a setting, and a preset."""
    measure: str = "train_loss"
    quantities: list[str] = field(default_factory=lambda: ["train_loss", "test_accuracy"])

    preset_class: ClassVar[type[Preset]] = TrainingPreset
    symbols: ClassVar[dict[str, str]] = {
        "train_loss": "training loss", "test_loss": "test loss", "test_accuracy": "test accuracy",
    }  # fmt: skip
    clock: ClassVar[str] = "epoch"
    starts_are: ClassVar[str] = "seeds"
    packages: ClassVar[tuple[str, ...]] = ("numpy", "torch")
    average: ClassVar[str] = "mean"
    data_parallel: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _validate.choice("data set", self.dataset, data.registry)
        super().__post_init__()

    def update(self, method: MethodSpec) -> str:
        """Return the step of an optimizer as a formula."""
        optimizers.build(method.method, [torch.zeros(1)], method.arguments())
        return optimizers.registry[method.method].update

    def run(self, preset: TrainingPreset, setting: Setting, method: MethodSpec, seed: int) -> TrainingRun:
        """Return a run."""
        return TrainingRun(setting=setting, method=method, seed=seed, training=self._training(preset, setting))

    def scope(self, preset: TrainingPreset) -> str:
        """Return what is trained, in words."""
        training = asdict(self._training(preset, self.grid()[0]))
        network = training.pop("network")
        training["examples"] = training["examples"] or "all"
        name = ", ".join([network.pop("name"), *(f"{key} = {value}" for key, value in network.items())])
        options = ", ".join(f"{key} = {value}" for key, value in training.items() if key not in self.settings)
        return f"network {name}; {options}; seeds: {', '.join(map(str, preset.starts))}"

    def together(self, run: TrainingRun) -> int:  # type: ignore[override]
        """Return how many seeds are one batched model: one, if the network has buffers."""
        return BATCH if stackable(partial(run.training.build, 10)) else 1

    def estimate(self, runs: Sequence[TrainingRun], resources: Resources) -> float:  # type: ignore[override]
        """Return about how many seconds `compute` will take, with an evaluation at a third of a training step."""
        with _threads(resources.threads):
            trainer = _trainer(runs, resources)
            trainer.step()
            clock = time.perf_counter()
            steps = 2
            for _ in range(steps):
                trainer.step()
            _wait(trainer.device)
            step = (time.perf_counter() - clock) / steps
        evaluation = math.ceil(len(trainer.images.test) / trainer.training.batch_size) * step / 3.0
        return trainer.total * step + trainer.training.epochs * evaluation

    def compute(self, runs: Sequence[TrainingRun], resources: Resources) -> list[pl.DataFrame]:  # type: ignore[override]
        """Train, with checkpoints at intervals, from the last one if there is one."""
        path = _checkpoint(runs, resources)
        with _threads(resources.threads):
            trainer = _trainer(runs, resources)
            checkpoint.restore(trainer, path)
            written = time.monotonic()
            while not trainer.done:
                trainer.step()
                if trainer.ranks.agreed(time.monotonic() - written > INTERVAL):
                    checkpoint.save(trainer, path)
                    written = time.monotonic()
        return [_frame(trainer.history, i, len(runs)) for i in range(len(runs))]

    def forget(self, runs: Sequence[TrainingRun], resources: Resources) -> None:  # type: ignore[override]
        """Remove the checkpoint."""
        _checkpoint(runs, resources).unlink(missing_ok=True)

    def environment(self, resources: Resources) -> str:
        """Return what the numbers are computed with and on, in words."""
        device = torch.device(resources.device)
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        return f"{super().environment(resources)}, networks on {name}{parallel.ranks(resources).in_words}"

    def _training(self, preset: TrainingPreset, setting: Setting) -> Training:
        return Training(
            network=preset.network or self.network, dataset=self.dataset, epochs=preset.epochs,
            examples=preset.examples, **self.options, **setting,
        )  # fmt: skip


def _checkpoint(runs: Sequence[TrainingRun], resources: Resources) -> Path:
    return resources.folder / f"{runs[0].key}-{len(runs)}.checkpoint"


def _trainer(runs: Sequence[TrainingRun], resources: Resources) -> Trainer:
    method = runs[0].method
    seeds = [run.seed for run in runs]
    try:
        torch.empty(1, device=resources.device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {resources.device!r} cannot be used: {error}") from error
    ranks = parallel.ranks(resources)
    return Trainer(runs[0].training, method.method, method.arguments(), seeds, resources.device, ranks)


def _frame(history: list[dict[str, Any]], i: int, seeds: int) -> pl.DataFrame:
    """Return a seed's rows up to the first one whose training loss is not finite."""
    rows = []
    for k, row in enumerate(history, 1):
        rows.append({"k": k, "seconds": row["seconds"] / seeds, **{name: row[name][i] for name in QUANTITIES}})
        if not math.isfinite(row["train_loss"][i]):
            break
    status = "MAXITER" if math.isfinite(rows[-1]["train_loss"]) else "DIVERGED"
    return pl.DataFrame(rows, schema_overrides={"k": pl.Int32}).with_columns(pl.lit(status).alias("status"))


@contextlib.contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)

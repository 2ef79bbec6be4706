"""The experiments in which networks are trained."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import torch

from npgm._common import validate
from npgm.lab import data
from npgm.lab.experiments.spec import Experiment, MethodSpec, Preset, Quantity, Resources, Run, Setting
from npgm.lab.experiments.training import checkpoint, optimizers, parallel
from npgm.lab.experiments.training.ensemble import stackable
from npgm.lab.experiments.training.images import ImageTraining
from npgm.lab.experiments.training.task import Training
from npgm.lab.experiments.training.text import TextTraining
from npgm.lab.experiments.training.trainer import LAST_STEPS, Trainer
from npgm.lab.threads import with_threads

BATCH = 5
"""Seeds that are trained together at most: the paper's number."""
INTERVAL = 30.0
"""Seconds between checkpoints."""
_TRAIN_LOSS = Quantity("training loss", "{:.3g}")
_TEST_LOSS = Quantity("test loss", "{:.4g}", linear=True)


@dataclass(frozen=True, kw_only=True)
class TrainingPreset(Preset):
    """How much of an experiment is run: the seeds for each setting, and what a seed's training goes through."""

    network: dict[str, Any] | None = None
    """A network in place of the experiment's own, for machines on which that takes too long."""
    stepsize_sweep: int = 3
    """log₂ of the largest multiple of a stepsize at which its neighbourhood is shown; 0 not to show it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.count("stepsize_sweep", self.stepsize_sweep, least=0)


@dataclass(frozen=True, kw_only=True)
class ImagePreset(TrainingPreset):
    """How much of an experiment on images is run."""

    epochs: int
    examples: int | None = None
    """The training images, the first ones, and at most as many test images; all by default."""


@dataclass(frozen=True, kw_only=True)
class TextPreset(TrainingPreset):
    """How much of an experiment on text is run; see `TextTraining`."""

    steps: int
    every: int
    windows: int = 256


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
    """What the training takes beside the network, the data set, a setting, and a preset."""

    training_class: ClassVar[type[Training]]
    of_text: ClassVar[bool]
    """Whether the data set is a text, and not images."""
    starts_are: ClassVar[str] = "seeds"
    packages: ClassVar[tuple[str, ...]] = ("numpy", "torch")
    average: ClassVar[str] = "mean"
    data_parallel: ClassVar[bool] = True

    def __post_init__(self) -> None:
        dataset = data.registry[validate.choice("data set", self.dataset, data.registry)]
        if isinstance(dataset, data.Text) != self.of_text:
            what = "a text" if self.of_text else "images"
            raise ValueError(f"an experiment of the kind {self.kind!r} needs {what}, which {self.dataset!r} is not")
        super().__post_init__()

    def update(self, method: MethodSpec) -> str:
        """Return the step of an optimizer as a formula."""
        return optimizers.update(method.method, method.arguments())

    def run(self, preset: TrainingPreset, setting: Setting, method: MethodSpec, seed: int) -> TrainingRun:
        """Return a run."""
        return TrainingRun(setting=setting, method=method, seed=seed, training=self._training(preset, setting))

    def scope(self, preset: TrainingPreset) -> str:
        """Return what is trained, in words."""
        training = asdict(self._training(preset, self.grid()[0]))
        network = training.pop("network")
        if "examples" in training:
            training["examples"] = training["examples"] or "all"
        name = ", ".join([network.pop("name"), *(f"{key} = {value}" for key, value in network.items())])
        options = ", ".join(f"{key} = {value}" for key, value in training.items() if key not in self.settings)
        return f"network {name}; {options}; seeds: {', '.join(map(str, preset.starts))}"

    def stepsize_sweep(self, preset: str) -> list[Run]:
        """Return the runs of each method that is compared at multiples of its stepsize, from the tuning seed.

        There are none for a preset from which nothing can be concluded.
        """
        chosen, (setting, *_) = self.preset(preset), self.grid()
        shown = chosen.stepsize_sweep and self.tuning_seed is not None and not chosen.inconclusive
        multiples = [2.0**k for k in range(-chosen.stepsize_sweep, chosen.stepsize_sweep + 1)] if shown else []
        return [
            self.run(chosen, setting, method.at(float(f"{times * method.options['lr']:.3g}")), self.tuning_seed or 0)
            for method in self.methods
            if method.role == "compared" and "lr" in method.options
            for times in multiples
        ]

    def runs_at_once(self, run: TrainingRun) -> int:  # type: ignore[override]
        """Return how many seeds are one batched model: one, if the network has buffers."""
        return BATCH if stackable(partial(run.training.build, 10)) else 1

    def estimate(self, runs: Sequence[TrainingRun], resources: Resources) -> float:  # type: ignore[override]
        """Return about how many seconds `compute` will take, with an evaluation at a third of a training step."""
        with with_threads(resources.threads):
            trainer = trainer_of(runs, resources)
            trainer.step()
            clock = time.perf_counter()
            steps = 2
            for _ in range(steps):
                trainer.step()
            _wait(trainer.device)
            step = (time.perf_counter() - clock) / steps
        evaluation = sum(trainer.examples.held_out.values()) / trainer.training.batch_size * step / 3.0
        return trainer.total * step + trainer.training.rounds * evaluation

    def compute(self, runs: Sequence[TrainingRun], resources: Resources) -> list[pl.DataFrame]:  # type: ignore[override]
        """Train, with checkpoints at intervals, from the last one if there is one."""
        path = _checkpoint(runs, resources)
        with with_threads(resources.threads):
            trainer = trainer_of(runs, resources)
            checkpoint.restore(trainer, path)
            written = time.monotonic()
            while not trainer.done:
                trainer.step()
                if trainer.ranks.agreed(time.monotonic() - written > INTERVAL):
                    checkpoint.save(trainer, path)
                    written = time.monotonic()
        return [self._frame(trainer, i) for i in range(len(runs))]

    def forget(self, runs: Sequence[TrainingRun], resources: Resources) -> None:  # type: ignore[override]
        """Remove the checkpoint."""
        _checkpoint(runs, resources).unlink(missing_ok=True)

    def environment(self, resources: Resources) -> str:
        """Return what the numbers are computed with and on, in words."""
        device = torch.device(resources.device)
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        return f"{super().environment(resources)}, networks on {name}{parallel.ranks(resources).in_words}"

    @abstractmethod
    def ticks(self, trainer: Trainer) -> int:
        """Return how far the clock goes in a round."""

    def _training(self, preset: TrainingPreset, setting: Setting) -> Training:
        """Return what is trained: what the preset of a kind of experiment has of its own is an argument."""
        shared = {f.name for f in fields(TrainingPreset)}
        of_preset = {f.name: getattr(preset, f.name) for f in fields(preset) if f.name not in shared}
        return self.training_class(
            network=preset.network or self.network, dataset=self.dataset, **of_preset, **self.options, **setting
        )

    def _frame(self, trainer: Trainer, i: int) -> pl.DataFrame:
        """Return a seed's rows up to the first one whose training loss is not finite."""
        rows = []
        for number, row in enumerate(trainer.history, 1):
            values = {name: column[i] for name, column in row.items() if name != "seconds"}
            seconds = row["seconds"] / len(trainer.generators)
            rows.append({"k": number * self.ticks(trainer), "seconds": seconds, **values})
            if not math.isfinite(values["train_loss"]):
                break
        status = "MAXITER" if math.isfinite(rows[-1]["train_loss"]) else "DIVERGED"
        return pl.DataFrame(rows, schema_overrides={"k": pl.Int32}).with_columns(pl.lit(status).alias("status"))


@dataclass(frozen=True, kw_only=True)
class ImageExperiment(TrainingExperiment):
    """An experiment in which a network learns to classify images."""

    measure: str = "train_loss"
    quantities: list[str] = field(default_factory=lambda: ["train_loss", "test_accuracy"])

    preset_class: ClassVar[type[Preset]] = ImagePreset
    training_class: ClassVar[type[Training]] = ImageTraining
    of_text: ClassVar[bool] = False
    known: ClassVar[dict[str, Quantity]] = {
        "train_loss": _TRAIN_LOSS,
        "late_loss": Quantity(f"loss of the last {LAST_STEPS} steps", "{:.3g}"),
        "test_loss": _TEST_LOSS,
        "test_accuracy": Quantity("test accuracy", "{:.2%}", linear=True, lowest=0.0, highest=1.0),
    }
    clock: ClassVar[str] = "epoch"

    def ticks(self, trainer: Trainer) -> int:
        """Return 1: a round is an epoch."""
        return 1


@dataclass(frozen=True, kw_only=True)
class TextExperiment(TrainingExperiment):
    """An experiment in which a network learns to predict characters."""

    measure: str = "validation_loss"
    quantities: list[str] = field(default_factory=lambda: ["validation_loss", "test_loss"])

    preset_class: ClassVar[type[Preset]] = TextPreset
    training_class: ClassVar[type[Training]] = TextTraining
    of_text: ClassVar[bool] = True
    known: ClassVar[dict[str, Quantity]] = {
        "train_loss": _TRAIN_LOSS,
        "validation_loss": Quantity("validation loss", "{:.4g}", linear=True),
        "test_loss": _TEST_LOSS,
    }
    clock: ClassVar[str] = "iteration"

    def ticks(self, trainer: Trainer) -> int:
        """Return the steps of a round."""
        return trainer.steps_per_round


def _checkpoint(runs: Sequence[TrainingRun], resources: Resources) -> Path:
    return resources.folder / f"{runs[0].key}-{len(runs)}.checkpoint"


def trainer_of(runs: Sequence[TrainingRun], resources: Resources) -> Trainer:
    """Return the trainer of some runs, of which only the seeds differ."""
    method = runs[0].method
    seeds = [run.seed for run in runs]
    try:
        torch.empty(1, device=resources.device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {resources.device!r} cannot be used: {error}") from error
    ranks = parallel.ranks(resources)
    return Trainer(runs[0].training, method.method, method.arguments(), seeds, resources.device, ranks)


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)

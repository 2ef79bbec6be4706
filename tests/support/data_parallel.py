"""Small networks trained on the ranks of torchrun; test_ranks.py compares with one process."""

from __future__ import annotations

import dataclasses
import os
import signal
from pathlib import Path
from typing import Any

import torch
from torch.distributed.elastic.multiprocessing.errors import record

import dying
import processes
from npgm.lab import cli, experiments
from npgm.lab.experiments import ranks
from npgm.lab.experiments.spec import Resources
from npgm.lab.experiments.training import checkpoint, parallel
from npgm.lab.experiments.training import experiment as training
from npgm.lab.experiments.training.experiment import ImageExperiment, ImagePreset
from npgm.lab.experiments.training.images import ImageTraining
from npgm.lab.experiments.training.trainer import Trainer

# neither minibatches nor layers divide evenly
MLP = ImageTraining({"name": "mlp", "widths": [784, 17]}, "mnist", batch_size=51, epochs=2, examples=120)
RESNET = ImageTraining({"name": "resnet-cifar", "blocks": 1, "width": 8}, "cifar10", batch_size=16, epochs=1, examples=32, augment=True,
                  preprocessing="standardised")  # fmt: skip
IHGDM = ("npgm", {"lr": 0.5, "momentum": 0.9})
CASES: dict[str, tuple[ImageTraining, tuple[str, dict[str, Any]], list[int]]] = {
    "ddp-ensemble": (MLP, IHGDM, [0, 3, 1]),
    "ddp-resnet": (RESNET, ("npgm", {"lr": 0.1, "momentum": 0.9}), [0]),
    "fsdp-mlp": (MLP, IHGDM, [3]),
    "fsdp-separable": (MLP, ("npgm", {"lr": 0.1, "reference": "separable-cosh"}), [3]),
    "fsdp-sgd": (MLP, ("sgd", {"lr": 0.5, "momentum": 0.9}), [3]),
    "fsdp-adam": (MLP, ("adam", {"lr": 0.01}), [3]),
    "fsdp-resnet": (RESNET, ("npgm", {"lr": 0.1, "momentum": 0.9}), [0]),
}


def trainer(case: str, among: parallel.Single) -> Trainer:
    what, (method, arguments), seeds = CASES[case]
    return Trainer(what, method, arguments, seeds, "cpu", among)


def finished(one: Trainer) -> Trainer:
    while not one.done:
        one.step()
    return one


def experiment(epochs: int = 2) -> ImageExperiment:
    """The real MNIST experiment with a small network on few images."""
    preset = ImagePreset(starts=[2, 1], epochs=epochs, examples=300)
    widths = {"name": "mlp", "widths": [784, 8]}
    return dataclasses.replace(experiments.load("mnist"), network=widths, presets={"smoke": preset})


@record
def train(folder: Path) -> None:
    """Write what each rank ends at to FOLDER/RANK.pt, and fail on the second rank in the end."""
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    ranks.join("cpu")
    results: dict[str, Any] = {}
    for case in CASES:
        among = parallel.ranks(Resources(1, "cpu", folder, case.partition("-")[0]))
        one = finished(trainer(case, among))
        parameters = one.ensemble.state_dict() if CASES[case][0] is MLP else {}
        results[case] = {"history": one.history, "parameters": parameters}
        if case in ("fsdp-mlp", "fsdp-adam"):
            stopped, resumed = trainer(case, among), trainer(case, among)
            for _ in range(one.steps_per_round + 1):
                stopped.step()
            checkpoint.save(stopped, folder / f"{case}.checkpoint")
            assert checkpoint.restore(resumed, folder / (f"{case}.checkpoint" if rank == 0 else "not there"))
            results[case]["resumed"] = finished(resumed).history
    torch.save(results, folder / f"{rank}.pt")
    parallel.Replicated().agreed(None)
    if rank == 1:
        raise RuntimeError("the second rank fails")
    parallel.Replicated().agreed(None)
    parallel.Replicated().sum(torch.ones(1))


def run_with_checkpoints(folder: Path, **options: Any) -> None:
    """Train in an experiment, with a checkpoint after every step."""
    training.INTERVAL = 0.0
    experiments.run(experiment(epochs=3), "smoke", folder, methods=["iHGD", "Adam"], **options)


@record
def run(*folders: Path) -> None:
    """Train in each folder, and then solve in another experiment; alone in one, the first rank is killed in the middle."""
    torch.set_num_threads(1)
    if len(folders) == 1 and os.environ["RANK"] == "0":
        dying.soon(signal.SIGKILL, folders[0] / "mnist" / "runs", {"checkpoint": 1, "parquet": 1})
    with processes.whole_program():
        for folder in folders:
            run_with_checkpoints(folder)
        experiments.run(experiments.load("phase-retrieval"), "smoke", folders[-1])
        ranks.leave()


@record
def command(*arguments: str) -> None:
    """Do what the installed program does with these arguments."""
    torch.set_num_threads(1)
    os.environ["COLUMNS"] = "250"
    with processes.whole_program():
        cli.app(arguments, standalone_mode=False)

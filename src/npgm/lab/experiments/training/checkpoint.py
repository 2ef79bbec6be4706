"""Checkpoints of a training that is under way."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch

from npgm.lab.experiments.training.trainer import Trainer
from npgm.lab.files import replacing


def save(trainer: Trainer, path: Path) -> None:
    """Write the state of a training, whole or not at all; called on all ranks, and written by the first."""
    state = trainer.state_dict()
    if trainer.ranks.rank == 0:
        with replacing(path) as file:
            torch.save(state, file)


def restore(trainer: Trainer, path: Path) -> bool:
    """Let a training go on from a checkpoint, and return whether there was one; a damaged one counts as none.

    It is called on all ranks, and read by the first.
    """
    state = trainer.ranks.agreed(_read(path) if trainer.ranks.rank == 0 else None)
    if state is None or set(state) != set(trainer.state_dict()):
        return False
    trainer.load_state_dict(state)
    return True


def _read(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError):
        return None

"""Checkpoints of a training that is under way."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch

from npgm._files import replacing
from npgm.experiments.training.trainer import Trainer


def save(trainer: Trainer, path: Path) -> None:
    """Write the state of a training, whole or not at all."""
    with replacing(path) as file:
        torch.save(trainer.state_dict(), file)


def restore(trainer: Trainer, path: Path) -> bool:
    """Let a training go on from a checkpoint, and return whether there was one; a damaged one counts as none."""
    try:
        state = torch.load(path, map_location=trainer.device, weights_only=True)
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError):
        return False
    if set(state) != set(trainer.state_dict()):
        return False
    trainer.load_state_dict(state)
    return True

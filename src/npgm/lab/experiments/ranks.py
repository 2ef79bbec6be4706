"""The ranks of torchrun: processes that run the same command, of which the first alone prints and writes."""

from __future__ import annotations

import os
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")

TIMEOUT = timedelta(minutes=10)
"""After so long in a collective, ranks take it that another one is stuck, and fail."""
PATIENCE = timedelta(days=365)
"""The same where ranks wait for what the first one does alone."""


def launched() -> bool:
    """Return whether torchrun has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def leads() -> bool:
    """Return whether this process prints and writes: it is the first rank, or the only process."""
    return not launched() or os.environ["RANK"] == "0"


def join(device: str) -> str:
    """Connect this rank with the others until `leave`, and return the device that it has for itself.

    Args:
        device: ``"cpu"``, or a kind of device of which each rank of a machine has one, such as ``"cuda"``.

    Raises:
        ValueError: if that is not what it is.
    """
    import torch.distributed as dist
    from torch import accelerator

    if not device.isalpha():
        raise ValueError(f"device must be a kind of device, such as cpu or cuda, under torchrun, not {device!r}")
    backend = "gloo"
    if device != "cpu":
        place = int(os.environ["LOCAL_RANK"])
        if place >= accelerator.device_count():
            raise ValueError(f"device {device!r} cannot be used: this machine has {accelerator.device_count()} of them")
        accelerator.set_device_index(place)
        backend = f"cpu:gloo,{device}:{dist.get_default_backend_for_device(device)}"
        device = f"{device}:{place}"
    if not dist.is_initialized():
        dist.init_process_group(backend, timeout=TIMEOUT)
    return device


def leave() -> None:
    """Disconnect this rank, if it is connected, at the end of a process in which nothing has failed."""
    if launched():
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()
            _patient.cache_clear()


def agreed(value: T) -> T:
    """Return the value of the first rank on all ranks, which wait for it."""
    if not launched():
        return value
    import torch.distributed as dist

    values = [value]
    dist.broadcast_object_list(values, src=0, group=_patient())
    return values[0]


@cache
def _patient() -> Any:
    import torch.distributed as dist

    return dist.new_group(backend="gloo", timeout=PATIENCE)

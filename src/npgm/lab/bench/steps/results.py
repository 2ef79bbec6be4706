"""What a case yields: the seconds of each step, and their ratios with what is aimed at."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

import npgm
from npgm import _native
from npgm.lab.bench.steps.cases import Case, Layout
from npgm.lab.files import replacing

MANY = 1000
"""Tensors from which on the cost of each tensor decides, and not that of its entries."""

_AIMS = {
    ("sHGD", "memory"): 1.25,
    ("sHGDm", "memory, momentum"): 1.25,
    ("iHGD", "clip + SGD"): 0.60,
    ("iHGDm", "clip + SGDm"): 0.60,
    ("sHGDm", "Adam"): 0.90,
    ("iHGDm", "Adam"): 0.90,
    ("sHGDm", "sHGDm, loop"): 0.05,
}
_AIMS_OF_MANY = {("sHGDm", "SGDm"): 0.70, ("iHGDm", "SGDm"): 0.70}
"""Aims on the CPU, in addition to the others where there are many tensors."""

SMALL, TINY = 4_000_000, 10_000
"""Entries up to which the caches, and the cost of a call, decide."""
_AIMS_OF_SMALL = {("iHGDm", "clip + SGDm"): 0.80, ("iHGDm", "clip + SGDm, foreach"): 0.80, ("sHGDm", "AdamW"): 0.80}
_AIMS_OF_TINY = {("iHGDm", "clip + SGDm"): 0.50, ("iHGDm", "clip + SGDm, foreach"): 0.50}
"""Aims on the CPU, in place of the others."""

PAIRS = (
    *_AIMS,
    *_AIMS_OF_MANY,
    ("sHGDm", "AdamW"),
    ("iHGDm", "clip + SGDm, foreach"),
    ("SGDm", "memory, momentum"),
    ("sHGDm", "SGDm, foreach"),
    ("iHGDm", "Adam, foreach"),
    ("sHGDm", "sHGDm, foreach"),
    ("sHGDm", "sHGDm, compiled"),
    ("iHGDm", "iHGDm, foreach"),
    ("sHGDm, foreach", "SGDm, foreach"),
    ("iHGDm, foreach", "clip + SGDm"),
    ("spectral", "Muon"),
    ("spectral", "Muon, float32"),
    ("spectral, λ = 1e-3", "Muon"),
    ("spectral, λ = 1e-3", "Muon, float32"),
)
"""The ratios that are shown: of the time of the first to that of the second."""


def _aims(layout: Layout) -> dict[tuple[str, str], float]:
    if len(layout.shapes) >= MANY:
        return _AIMS | _AIMS_OF_MANY
    if layout.size > SMALL:
        return _AIMS
    return _AIMS_OF_SMALL | _AIMS_OF_TINY if layout.size <= TINY else _AIMS_OF_SMALL


@dataclass(frozen=True)
class Ratio:
    """The ratio of two contenders' times in each round.

    Args:
        step: the contender.
        against: the other one.
        values: one for each round.
        aim: what the median should not exceed, or None.
    """

    step: str
    against: str
    values: tuple[float, ...]
    aim: float | None = None

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """The lower quartile, the median and the upper quartile."""
        low, middle, high = np.quantile(self.values, [0.25, 0.5, 0.75])
        return float(low), float(middle), float(high)

    @property
    def met(self) -> bool | None:
        """Whether the median is as it is aimed to be; None without an aim."""
        return None if self.aim is None else self.quartiles[1] <= self.aim


@dataclass(frozen=True)
class Result:
    """A case that was measured.

    Args:
        case: what was measured.
        seconds: those of a step in each round, for each contender; the slowest has fewer rounds.
        left_out: the contenders that could not take part, with the reason.
    """

    case: Case
    seconds: dict[str, list[float]]
    left_out: dict[str, str] = field(default_factory=dict)

    def ratio(self, step: str, against: str) -> Ratio | None:
        """Return a ratio, or None if one of the two did not take part."""
        if not (self.seconds.get(step) and self.seconds.get(against)):
            return None
        aim = None
        if self.case.device == "cpu":
            aim = _aims(self.case.layout).get((step, against))
        values = tuple(a / b for a, b in zip(self.seconds[step], self.seconds[against], strict=False))
        return Ratio(step, against, values, aim)

    def ratios(self) -> Iterator[Ratio]:
        """Yield those of `PAIRS` of which both took part."""
        for pair in PAIRS:
            if (ratio := self.ratio(*pair)) is not None:
                yield ratio


@dataclass(frozen=True)
class Results:
    """All that was measured.

    Args:
        layouts: the cases of the networks.
        growth: the cases of one tensor each, of growing size.
        skipped: the titles of the cases that were not measured, with the reason.
        interrupted: whether some were not come to.
    """

    layouts: Sequence[Result]
    growth: Sequence[Result]
    skipped: dict[str, str]
    interrupted: bool = False

    def save(self, path: Path) -> None:
        """Write all rounds of all cases as JSON, with what they were measured on."""
        content = {
            "environment": environment(),
            "layouts": [_plain(result) for result in self.layouts],
            "growth": [_plain(result) for result in self.growth],
            "skipped": self.skipped,
            "interrupted": self.interrupted,
        }
        with replacing(path) as file:
            file.write(json.dumps(content, indent=1).encode())


def environment() -> dict[str, Any]:
    """Return on what and with what the numbers are measured."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "npgm": npgm.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "load": psutil.getloadavg()[0],
        "instruction_set": _native.core().instruction_sets()[0] if _native.available() else None,
        "torch_instruction_set": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")  # of Linux, where the platform module does not know the name
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _plain(result: Result) -> dict[str, Any]:
    case = result.case
    return {
        "layout": case.layout.title,
        "tensors": len(case.layout.shapes),
        "parameters": case.layout.size,
        "dtype": case.dtype,
        "device": case.device,
        "threads": case.threads,
        "rounds": case.rounds,
        "gradient_std": case.size,
        "ratios": [
            {
                "step": ratio.step,
                "against": ratio.against,
                "aim": ratio.aim,
                "median": ratio.quartiles[1],
                "quartiles": ratio.quartiles[::2],
                "met": ratio.met,
            }
            for ratio in result.ratios()
        ],
        "seconds": result.seconds,
        "left_out": result.left_out,
    }

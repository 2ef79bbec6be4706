"""What several benchmarks have in common: options, and a spread in words."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Annotated

from typer import Option

Rounds = Annotated[int, Option(min=2, help="How often each is timed.")]
Seeds = Annotated[int, Option(min=1, help="How many seeds.")]
Threads = Annotated[int, Option(min=1, help="Threads of torch.")]


def spread(values: Iterable[float], digits: int = 2) -> str:
    """Return the median of values and their quartiles."""
    low, median, high = statistics.quantiles(values, n=4)
    return f"{median:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"

"""The time of `import npgm` and of `import scipy.optimize`, and what the first `npgm.minimize` adds.

Each is a fresh interpreter; the rounds alternate, and the medians of the processor's seconds are compared.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

from npgm.lab.bench._shared import Rounds

CODE = {
    "python": "pass",
    "numpy": "import numpy",
    "scipy.optimize": "import scipy.optimize",
    "npgm": "import npgm",
    "npgm.minimize": "import npgm; npgm.minimize",
    "npgm.theory": "import npgm; npgm.theory",
}


def run(rounds: Rounds = 11) -> None:
    """Print a line for each import."""
    taken: dict[str, list[float]] = {name: [] for name in CODE}
    for _ in range(rounds + 1):
        for name, code in CODE.items():
            taken[name].append(_seconds(code))
    medians = {name: statistics.median(values[1:]) for name, values in taken.items()}  # the first reads the disk
    for name, median in medians.items():
        print(f"{name:15} {1e3 * median:6.0f} ms   {median / medians['scipy.optimize']:.2f} of scipy.optimize")


def _seconds(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

"""Run the tests as on other machines: `make test-machines`, with ARGS for pytest.

Each kind of OpenBLAS's kernels that this processor can run, by turns with 1 and with 4 threads, each in a random order of
its own; and once more with 4 beside two processes that keep two cores busy. A line for each run follows at the end; the
exit status says whether all passed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

CORES = {"SkylakeX": "avx512f", "Haswell": "avx2", "Prescott": "sse3"}
"""OpenBLAS's names of processors, and a feature that each needs, as NumPy names it."""

SPIN = "while True: pass"
ARCHITECTURE = "import numpy, threadpoolctl; print(*{i['architecture'] for i in threadpoolctl.threadpool_info() if 'architecture' in i})"


def runnable() -> list[str]:
    from numpy._core._multiarray_umath import __cpu_features__ as features

    return [core for core, feature in CORES.items() if features.get(feature.upper(), False)]


@contextmanager
def busy(number: int) -> Iterator[None]:
    spinning = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(number)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def main(arguments: list[str]) -> int:
    cores = runnable()
    settings = [(core, (1, 4)[i % 2], 0) for i, core in enumerate(cores)] + [(cores[0], 4, 2)]
    lines, failed = [], False
    for core, threads, beside in settings:
        environment = os.environ | {"OPENBLAS_CORETYPE": core, "OMP_NUM_THREADS": str(threads)}
        ask = [sys.executable, "-c", ARCHITECTURE]
        taken = subprocess.run(ask, env=environment, capture_output=True, text=True, check=True).stdout.strip()
        seed = int.from_bytes(os.urandom(4))
        start = time.perf_counter()
        with busy(beside):
            command = [sys.executable, "-m", "pytest", f"--randomly-seed={seed}", *arguments]
            status = subprocess.run(command, env=environment, check=False).returncode
        failed |= status != 0
        lines.append(
            f"{core} (taken: {taken}), {threads} threads, beside {beside} busy processes, seed {seed}: "
            f"{'passed' if status == 0 else f'exit status {status}'} in {time.perf_counter() - start:.0f} s"
        )
        print(lines[-1], flush=True)
    print("", *lines, sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

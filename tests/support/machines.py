"""Run the tests as on other machines: `make test-machines`, with ARGS for pytest.

Each kind of kernels that this processor can run, in OpenBLAS, MKL, oneDNN and PyTorch alike, by turns with 1 and with 4
threads; and once more with those that the libraries choose themselves and 4 threads, beside two processes that keep two
cores busy. Each run has a random order of its own. A line for each follows at the end; the exit status says whether all
passed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLES = ("OPENBLAS_CORETYPE", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY")
"""What says which kernels OpenBLAS, MKL, oneDNN and PyTorch take."""
KINDS = {
    "avx512f": ("SkylakeX", "AVX512", "AVX512_CORE", "avx512"),
    "avx2": ("Haswell", "AVX2", "AVX2", "avx2"),
    "sse3": ("Prescott", "SSE4_2", "SSE41", "default"),
}
"""The values for each kind, under the feature of a processor that it needs, as NumPy names it."""

SPIN = "while True: pass"
TAKEN = (
    "import numpy, threadpoolctl, torch; "
    "print(*{i['architecture'] for i in threadpoolctl.threadpool_info() if 'architecture' in i}, "
    "torch.backends.cpu.get_cpu_capability())"
)


def runnable() -> list[str]:
    from numpy._core._multiarray_umath import __cpu_features__ as features

    return [kind for kind in KINDS if features.get(kind.upper(), False)]


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
    settings = [(kind, (1, 4)[i % 2], 0) for i, kind in enumerate(runnable())] + [("own", 4, 2)]
    lines, failed = [], False
    for kind, threads, beside in settings:
        environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        environment["OMP_NUM_THREADS"] = str(threads)
        if kind in KINDS:
            environment |= zip(VARIABLES, KINDS[kind], strict=True)
        ask = [sys.executable, "-c", TAKEN]
        taken = subprocess.run(ask, env=environment, capture_output=True, text=True, check=True).stdout.strip()
        seed = int.from_bytes(os.urandom(4))
        start = time.perf_counter()
        # what Inductor compiled for other kernels does not compile with these, and its cache does not tell them apart
        with busy(beside), tempfile.TemporaryDirectory() as environment["TORCHINDUCTOR_CACHE_DIR"]:
            command = [sys.executable, "-m", "pytest", f"--randomly-seed={seed}", *arguments]
            status = subprocess.run(command, env=environment, check=False).returncode
        failed |= status != 0
        lines.append(
            f"{kind} (taken: {taken}), {threads} threads, beside {beside} busy processes, seed {seed}: "
            f"{'passed' if status == 0 else f'exit status {status}'} in {time.perf_counter() - start:.0f} s"
        )
        print(lines[-1], flush=True)
    print("", *lines, sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

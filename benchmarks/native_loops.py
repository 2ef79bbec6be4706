"""Time of the native loops by themselves: in the caches, where they compute, and on 11 M entries, where memory counts.

Float32 with one thread in the caches, in CPU time, and with all threads beyond them; the least of many repetitions.
"sum" is torch's in-place sum, of the traffic of a step without momentum.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import torch

from npgm import _native

core = _native.core()


def least(call: Callable[[], object], clock: Callable[[], float], seconds: float = 1.0) -> float:
    times = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = clock()
        call()
        times.append(clock() - start)
    return min(times)


def tensors(size: int, times: int, deviation: float, momentum: bool) -> tuple[object, list[torch.Tensor]]:
    arrays = [torch.randn(size), torch.randn(size).mul_(deviation), torch.zeros(size)]
    x, g, m = (times * [a.data_ptr()] for a in arrays)
    dtypes = {"dtype": "float32", "momentum_dtype": "float32" if momentum else ""}
    return core.Tensors(x, g, m if momentum else [], times * [size], **dtypes), arrays


def calls(size: int, times: int, deviation: float, momentum: bool, threads: int) -> dict[str, Callable[[], object]]:
    given, arrays = tensors(size, times, deviation, momentum)

    def rule(kernel: str) -> object:  # as npgm.torch has it; isotropic without a kernel
        return core.Rule(kernel, [not kernel, False, False, 1.0, 0.9 if momentum else 0.0, 0.0, 0.0, 1.0])

    rules = {kernel: rule(kernel) for kernel in ("", "cosh")}

    def update(kernel: str) -> None:
        core.move(given, rules[kernel], factors=() if kernel else (0.5,), lr=1e-9, grad_scale=1.0, threads=threads)

    def isotropic() -> None:
        core.measure(given, rules[""], threads=threads)
        update("")

    return {
        "norm": lambda: core.measure(given, rules[""], threads=threads),
        "update": lambda: update(""),
        "norm and update": isotropic,
        "Cosh": lambda: update("cosh"),
        "sum": lambda: [arrays[0].add_(arrays[1]) for _ in range(times)],
    }


def main() -> None:
    torch.manual_seed(0)
    size, times = 16384, 50  # the same memory many times over
    for instructions in core.instruction_sets():
        core.use_instruction_set(instructions)
        for deviation, momentum in itertools.product((0.01, 1.0, 4.0, 1e5), (False, True)):
            steps = calls(size, times, deviation, momentum, 1)
            found = {name: least(step, time.thread_time, 0.2) / (times * size) * 1e9 for name, step in steps.items()}
            title = f"{instructions}, deviation {deviation:g}, {'with' if momentum else 'without'} momentum:"
            print(title, ", ".join(f"{k} {v:.3f} ns" for k, v in found.items()))
    core.use_instruction_set(core.instruction_sets()[0])
    size, threads = 11_000_000, torch.get_num_threads()
    for momentum in (False, True):
        steps = calls(size, 1, 1.0, momentum, threads)
        found = {name: least(step, time.perf_counter) for name, step in steps.items()}
        title = f"{size} entries, {threads} threads, {'with' if momentum else 'without'} momentum:"
        print(title, ", ".join(f"{k} {v * 1e3:.2f} ms" for k, v in found.items()))


if __name__ == "__main__":
    main()

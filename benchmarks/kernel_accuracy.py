"""The errors of the fused kernels, over all numbers of float32 or every so many of them.

For each kernel and instruction set, the largest distance of the native preconditioner from the one in float64, in units
in the last place of float32. All numbers are 2³¹ for each of them: hours. What is negative follows from oddness.
"""

from __future__ import annotations

import argparse

import numpy as np

from npgm import _native, kernels

INFINITY = 0xFF << 23
CHUNK = 1 << 19


def largest_errors(kernel: kernels.Kernel, every: int) -> dict[str, float]:
    core = _native.core()
    own, parameters = _native.kernel_arguments(kernel)
    errors = dict.fromkeys(core.instruction_sets(), 0.0)
    for start in range(0, INFINITY, every * CHUNK):
        y = np.arange(start, min(start + every * CHUNK, INFINITY), every).astype(np.int32).view(np.float32)
        with np.errstate(over="ignore"):
            want = kernel.precondition(y.astype(np.float64))
        kept = want <= np.finfo(np.float32).max
        _, exponents = np.frexp(want[kept])
        unit = np.ldexp(1.0, np.maximum(exponents - 24, -149))
        for name in errors:
            core.use_instruction_set(name)
            u = np.zeros_like(y)
            tensors = core.Tensors([u.ctypes.data], [y.ctypes.data], [], [y.size], dtype="float32")
            rule = core.Rule(own, [False, False, False, 1.0, 0.0, 0.0, 0.0, 1.0, *parameters])  # as npgm.torch has it
            core.move(tensors, rule, factors=(), lr=-1.0, grad_scale=1.0, threads=1)
            errors[name] = max(errors[name], float(np.max(np.abs(u[kept] - want[kept]) / unit)))
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=509, help="take each number so many places after the last")
    every = parser.parse_args().every
    names = _native.core().instruction_sets()
    print("| kernel |" + "".join(f" {name} |" for name in names))
    print("| --- |" + " --- |" * len(names))
    for name in _native.core().kernels:
        errors = largest_errors(kernels.registry[name](), every)
        print(f"| {name} |" + "".join(f" {errors[each]:.2f} |" for each in names), flush=True)


if __name__ == "__main__":
    main()

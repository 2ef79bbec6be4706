"""The largest errors of the fused kernels, over all numbers of float32 or every so many of them.

For each kernel and instruction set, the largest distance of the native preconditioner from the one in float64, in units
in the last place of float32. All numbers are 2³¹ for each of them: hours. What is negative follows from oddness.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from typer import Option

from npgm import _native, kernels
from npgm._common.array import Array
from npgm.lab.bench import _loops

if TYPE_CHECKING:
    from npgm._native import _core

INFINITY = 0xFF << 23
CHUNK = 1 << 19


def run(every: Annotated[int, Option(min=1, help="Take each number so many places after the last.")] = 509) -> None:
    """Print a table in Markdown: rows of kernels, columns of instruction sets."""
    names = _native.core().instruction_sets()
    print("| kernel |" + "".join(f" {name} |" for name in names))
    print("| --- |" + " --- |" * len(names))
    for name in _native.core().kernels:
        errors = _largest_errors(kernels.registry[name](), every)
        print(f"| {name} |" + "".join(f" {errors[each]:.2f} |" for each in names), flush=True)


def _largest_errors(kernel: kernels.Kernel, every: int) -> dict[str, float]:
    errors = dict.fromkeys(_native.core().instruction_sets(), 0.0)
    rule = _loops.rule(*_native.kernel_arguments(kernel))
    for start in range(0, INFINITY, every * CHUNK):
        y = np.arange(start, min(start + every * CHUNK, INFINITY), every).astype(np.int32).view(np.float32)
        with np.errstate(over="ignore"):
            want = kernel.precondition(y.astype(np.float64))
        kept = want <= np.finfo(np.float32).max
        _, exponents = np.frexp(want[kept])
        unit = np.ldexp(1.0, np.maximum(exponents - 24, -149))
        for name in _loops.instruction_sets():
            distances = np.abs(_preconditioned(rule, y)[kept] - want[kept]) / unit
            errors[name] = max(errors[name], float(np.max(distances, initial=0.0)))
    return errors


def _preconditioned(rule: _core.Rule, y: Array) -> Array:
    core, u = _native.core(), np.zeros_like(y)
    tensors = core.Tensors([u.ctypes.data], [y.ctypes.data], [], [y.size], dtype="float32")
    core.apply_step(tensors, rule, factors=(), lr=-1.0, threads=1)
    return u

"""Compile what `npgm.torch.triton` launches, for a device that need not be there; test_triton.py looks at the result.

    python tests/support/compile_triton.py

Prints a list of JSON, of one entry for each binary: its function, what it is for, and what it is made of.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import JITFunction, driver

from npgm.torch.rule import Rule
from npgm.torch.triton import driver as steps

TARGET = GPUTarget("cuda", 80, 32)


class Absent:
    """A driver for which there are binaries and no device."""

    def get_current_target(self) -> GPUTarget:
        return TARGET

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


compiled: dict[str, dict[str, object]] = {}
case = ""
launch = JITFunction.run


def compile_only(function: JITFunction, *args: object, grid: object, warmup: bool, **options: object) -> object:
    kernel = launch(function, *args, grid=grid, warmup=True, **options)
    compiled.setdefault(kernel.hash, {"function": function.__name__, "case": case} | inspect(kernel.asm))
    return kernel


def inspect(asm: dict[str, object]) -> dict[str, object]:
    ptx = asm["ptx"]
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(asm["cubin"])
        file.flush()
        tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
        usage = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", usage.stdout).groups()
    return {
        "registers": int(registers),
        "stack": int(stack),
        "vector_loads": len(re.findall(r"ld\.global\.v", ptx)),
        "vector_stores": len(re.findall(r"st\.global\.v", ptx)),
    }


def told(kernel: str, **changes: object) -> dict[str, object]:
    rule = Rule(kernel, (), kernel == "", False, False, 2.0, 0.9, 0.0, 0.1, True)._replace(**changes)
    return rule.arguments()


def move(
    kernel: str,
    dtype: torch.dtype,
    momentum: torch.dtype | None = None,
    before: bool = False,
    plain: bool = False,
    scales: int = 0,
) -> None:
    """Move a tensor; with ``scales`` λ follows, for so many tensors, each with a grad_scale."""
    n = max(scales, 1)
    xs, gs = ([torch.zeros(10, dtype=dtype) for _ in range(n)] for _ in range(2))
    factors = torch.ones(n, dtype=torch.float64) if scales or not kernel else None
    scale, keep = (None, None) if plain else (torch.ones(n), torch.ones((), dtype=torch.bool))
    ms = [] if momentum is None else [torch.zeros(10, dtype=momentum) for _ in range(n)]
    lr = torch.ones((), dtype=torch.float64)
    rule = told(kernel, coupled_decay=0.0 if plain else 0.1, before=before)
    steps.apply_step(xs, gs, ms, factors, lr, scale, keep, **rule)


def measure(dtype: torch.dtype, plain: bool = False) -> None:
    """Take the norms with every option, or with none."""
    x = torch.zeros(10, dtype=dtype)
    options = {} if plain else {"coupled_decay": 0.1, "per_tensor": True, "before": True}
    steps.measure([x], [x], [] if plain else [x], None if plain else torch.ones(()), **told("", **options))


def main() -> None:
    global case
    driver.set_active(Absent())
    JITFunction.run = compile_only
    for kernel in sorted(steps.KERNELS):
        case = kernel
        move(kernel, torch.float32, torch.float32)
    # the longest formula in the wider dtype; then each dtype, with every option on one side or the other
    f32, f64, bf16, f16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
    case = "float64"
    move("expsq", f64, f64, before=True)
    move("", f64, f64)
    measure(f64)
    case = "float32"
    move("cosh", f32, plain=True, scales=1)
    move("", f32, f32, before=True, scales=2)
    measure(f32)
    measure(f32, plain=True)
    case = "bfloat16"
    move("cosh", bf16, f32, scales=1)
    move("", bf16, bf16)
    measure(bf16)
    case = "float16"
    move("cosh", f16, f16, before=True)
    move("", f16, f32)
    measure(f16)
    json.dump(list(compiled.values()), sys.stdout, indent=1)


if __name__ == "__main__":
    main()

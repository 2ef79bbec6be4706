"""Compile what `npgm.torch.triton` launches, for a device that need not be there; test_triton.py looks at the result.

    python tests/compile_triton.py

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

from npgm.torch.options import Rule
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
    return dict(zip(("phi", "rule"), rule.encode(), strict=True))


def move(
    kernel: str,
    dtype: torch.dtype,
    momentum: torch.dtype | None = None,
    before: bool = False,
    plain: bool = False,
    scales: int = 0,
) -> None:
    """Move two tensors; with ``scales``, λ follows: one for both, or one for each."""
    n = max(scales, 1)
    xs, gs = ([torch.zeros(10, dtype=dtype) for _ in range(n)] for _ in range(2))
    factors = torch.ones(n, dtype=torch.float64) if scales or not kernel else None
    scale, keep = (None, None) if plain else (torch.ones(()), torch.ones((), dtype=torch.bool))
    ms = [] if momentum is None else [torch.zeros(10, dtype=momentum) for _ in range(n)]
    lr = torch.ones((), dtype=torch.float64)
    rule = told(kernel, coupled_decay=0.0 if plain else 0.1, before=before)
    steps.move(xs, gs, ms, factors, lr, scale, keep, **rule)


def main() -> None:
    global case
    driver.set_active(Absent())
    JITFunction.run = compile_only
    kernels = sorted(steps.KERNELS)
    for dtype in (torch.float32, torch.float64):
        for kernel in kernels:
            case = f"{kernel} {str(dtype).removeprefix('torch.')}"
            move(kernel, dtype, dtype, before=dtype == torch.float64)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        case = f"norms {str(dtype).removeprefix('torch.')}"
        x = torch.zeros(10, dtype=dtype)
        steps.measure([x], [x], [], None, **told(""))
        steps.measure([x], [x], [x], torch.ones(()), **told("", coupled_decay=0.1, per_tensor=True, before=True))
        case = f"isotropic {str(dtype).removeprefix('torch.')}"
        move("", dtype, dtype)
        move("", dtype, torch.promote_types(dtype, torch.float32), before=True)
        case = f"a λ that follows {str(dtype).removeprefix('torch.')}"
        move("cosh", dtype, torch.promote_types(dtype, torch.float32), scales=1)
        move("cosh", dtype, plain=True, scales=2)
    move("", torch.float32, plain=True)
    move("", torch.float32, scales=2)
    json.dump(list(compiled.values()), sys.stdout, indent=1)


if __name__ == "__main__":
    main()

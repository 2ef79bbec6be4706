"""How a case is measured: every contender in turn, round after round, so that other load meets all of them."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable

import psutil
import torch
from torch.utils.benchmark import Timer

from npgm.lab.bench.steps.cases import Case
from npgm.lab.bench.steps.contenders import LOOP, Step, Workload, contenders
from npgm.lab.bench.steps.results import Result
from npgm.lab.threads import with_threads

LOOP_ROUNDS = 3
"""Those in which the slowest contender takes part, which would take most of the time."""
SHORTEST = 1e-3
"""Seconds of a timing: shorter steps are repeated."""
WARM = 2
"""Steps that torch's timer takes before it counts, which bring a contender's own state into the caches."""

_SHARE = 0.8
"""Of the memory that is free, to be used at most."""


def memory(case: Case) -> int:
    """Return about how many bytes a case takes.

    They are those of the parameters, their gradients and three states, and of the copies that the foreach paths make in
    the working precision.
    """
    stored: int = getattr(torch, case.dtype).itemsize
    return case.layout.size * (5 * stored + 4 * max(stored, 4))


def shortage(case: Case) -> str | None:
    """Say why a case does not fit into the memory that is free, or return None."""
    free = psutil.virtual_memory().available if case.device == "cpu" else torch.cuda.mem_get_info(case.device)[0]
    if (needed := memory(case)) <= _SHARE * free:
        return None
    return f"needs about {needed / 2**30:.1f} GiB, of {free / 2**30:.1f} GiB that are free"


def measure(case: Case, after_round: Callable[[], object] = lambda: None) -> Result:
    """Time the step of each contender in each round, after one round that is not counted.

    A contender that cannot take part is left out, with what it raised.

    Args:
        case: what to measure.
        after_round: called after each round.
    """
    try:
        with with_threads(case.threads):
            return _measure(case, after_round)
    finally:
        gc.collect()  # optimizers refer to themselves, and the next case needs the memory
        torch.cuda.empty_cache()


def _measure(case: Case, after_round: Callable[[], object]) -> Result:
    work = Workload(case)
    steps: dict[str, Step] = {}
    left_out = {}
    for name in case.contenders:
        try:
            steps[name] = contenders[name](work)
        except (RuntimeError, ValueError) as error:  # also those of torch.compile
            left_out[name] = str(error).strip().partition("\n")[0]
    timers = {name: Timer("step()", globals={"step": step}, num_threads=case.threads) for name, step in steps.items()}
    repeats = {name: math.ceil(SHORTEST / timer.timeit(1).mean) for name, timer in timers.items()}
    after_round()
    seconds: dict[str, list[float]] = {name: [] for name in timers}
    for i in range(case.rounds):
        for name, timer in timers.items():
            if name != LOOP or i < LOOP_ROUNDS:
                seconds[name].append(timer.timeit(repeats[name]).mean)
        after_round()
    return Result(case, seconds, left_out)

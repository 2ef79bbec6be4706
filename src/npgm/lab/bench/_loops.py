"""The native module's loops, called without `npgm.torch`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from npgm import _native

if TYPE_CHECKING:
    from npgm._native import _core


def rule(kernel: str, parameters: Sequence[float] = (), momentum: float = 0.0) -> _core.Rule:
    """Return the rule of plain steps with a separable φ; with an isotropic one if there is no kernel."""
    made: Any = _native.core().Rule(
        kernel=kernel, parameters=parameters, isotropic=not kernel, per_tensor=False, before=False, scale=1.0,
        momentum=momentum, coupled_decay=0.0, decoupled_decay=0.0, maximize=False,
    )  # fmt: skip
    return made  # type: ignore[no-any-return]


def instruction_sets() -> Iterator[str]:
    """Yield each instruction set of this machine while the loops use it; in the end they use the first again."""
    core = _native.core()
    names: list[str] = core.instruction_sets()
    try:
        for name in names:
            core.use_instruction_set(name)
            yield name
    finally:
        core.use_instruction_set(names[0])

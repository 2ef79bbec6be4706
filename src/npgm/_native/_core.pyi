from collections.abc import Sequence

kernels: list[str]
"""The names of the classes in `npgm.kernels` that have a separable step."""
dtypes: list[str]

def instruction_sets() -> list[str]:
    """Return those of this machine for which there are loops, the one used by default first."""

def use_instruction_set(name: str) -> None:
    """Use another one of `instruction_sets` from now on, for tests and comparisons."""

def update(
    parameters: Sequence[int],
    gradients: Sequence[int],
    momentum: Sequence[int],
    sizes: Sequence[int],
    *,
    dtype: str,
    momentum_dtype: str,
    kernel: str,
    kernel_parameters: Sequence[float],
    factors: Sequence[float],
    gradient_factor: float,
    coupled_decay: float,
    scale: float,
    weight: float,
    shrink: float,
    lr: float,
    threads: int,
) -> None:
    """Take one step of dense arrays, in place.

    With y = gradient_factor ∇f + coupled_decay x and u = ∇φ*(y): m ← m + weight (u - m), x ← shrink x - lr m.

    Args:
        parameters: the addresses of the arrays; those of the gradients are of the same dtype and order of entries.
        gradients: as above.
        momentum: as above, empty for none: then u takes the place of m.
        sizes: the numbers of entries.
        dtype: one of `dtypes`; bfloat16 and float16 are computed with in float32.
        momentum_dtype: ``dtype``, or ``"float32"`` where that is what is computed with; empty for none.
        kernel: one of `kernels` for a separable φ; empty for an isotropic one.
        kernel_parameters: those of the kernel, in the order of the fields of its class.
        factors: what an isotropic φ multiplies y by, one number for all arrays or one for each.
        gradient_factor, coupled_decay, scale, weight, shrink, lr: as above; ``scale`` is that of a separable φ.
        threads: the most threads to use. The result does not depend on it.

    Raises:
        ValueError: if there is no such step, the kernel has another number of parameters, or an array shares memory
            with its gradient or momentum. What it shares with others is written in the order of the arrays.
    """

def measure(
    parameters: Sequence[int],
    gradients: Sequence[int],
    sizes: Sequence[int],
    *,
    dtype: str,
    gradient_factor: float,
    coupled_decay: float,
    per_tensor: bool,
    threads: int,
) -> tuple[list[float], list[float]]:
    """Return max|y| and ‖y‖ / max|y| for y of `update`, of all arrays together or of each.

    The second number is ‖y‖ where the first is zero or not finite. Neither overflows.
    """

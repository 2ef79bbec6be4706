from collections.abc import Sequence
from typing import Any

kernels: dict[str, int]
"""The kernels of `npgm.kernels` that have a separable step, by key, with the numbers of their parameters."""
dtypes: list[str]

def apply_sqrt(z: int, u: int, *, rows: int, columns: int, q: Sequence[float], threads: int) -> None:
    """Write ∇φ* of the spectral φ of the kernel sqrt of matrices of float32.

    Args:
        z: the address of the matrices, one after another, row by row, with no more rows than columns; all are finite.
        u: that of the result, of the same size.
        rows, columns: of each matrix.
        q: what singular values are multiplied by, of each matrix; times its norm at most 1e6.
        threads: to use at most.
    """

def instruction_sets() -> list[str]:
    """Return those of this machine for which there are loops, the one used by default first."""

def use_instruction_set(name: str) -> None:
    """Use another one of `instruction_sets` from now on, for tests and comparisons."""

class Tensors:
    """Dense arrays that are gone through together. Holds addresses only: it is of use while the memory is there."""

    def __init__(
        self,
        parameters: Sequence[int],
        gradients: Sequence[int],
        momentum: Sequence[int],
        sizes: Sequence[int],
        *,
        dtype: str,
        momentum_dtype: str = "",
    ) -> None:
        """Take them by the addresses of their entries.

        Args:
            parameters: the addresses of the arrays; those of the gradients are of the same dtype and order of entries.
            gradients: as above.
            momentum: as above, empty for none.
            sizes: the numbers of entries.
            dtype: one of `dtypes`; bfloat16 and float16 are computed with in float32.
            momentum_dtype: ``dtype``, or ``"float32"`` where that is what is computed with; empty for none.

        Raises:
            ValueError: if there is no such dtype.
        """

class Exchange:
    """Takes the tensors of another library by its functions in C, in some tens of nanoseconds for each."""

    @staticmethod
    def of(table: object, types: tuple[type, ...]) -> Exchange | None:
        """Return one for objects of exactly these types, or None if the table is of an unknown version.

        Args:
            table: the ``__dlpack_c_exchange_api__`` that the types have in common.
            types: what its functions are given; a subclass may keep something else in the memory.

        Raises:
            ValueError: if ``table`` is another capsule, or there are no types.
        """

    def tensors(self, parameters: list[Any], gradients: list[Any], momentum: list[Any]) -> Tensors | None:
        """Return the tensors, or None if they cannot be gone through together.

        That needs objects of the types with dense memory on the CPU and no negation that is still to be done, gradients
        and momentum that are laid out as their parameters are, and dtypes that are the same for all of them.
        """

class Rule:
    """What the options of a group make of its step."""

    def __init__(
        self,
        *,
        kernel: str,
        parameters: Sequence[float],
        isotropic: bool,
        per_tensor: bool,
        before: bool,
        scale: float,
        momentum: float,
        coupled_decay: float,
        decoupled_decay: float,
        maximize: bool,
    ) -> None:
        """Take what `npgm.torch.options.Rule` says; an isotropic one may do without a kernel, "".

        Raises:
            ValueError: if there is no such kernel, or it has another number of parameters.
        """

Norms = tuple[list[float], list[float]]
"""max|y| and ‖y‖ / max|y| of all arrays together, or of each; the second is ‖y‖ where the first is 0 or not finite."""

def measure(tensors: Tensors, rule: Rule, *, grad_scales: Sequence[float] = (1.0,), threads: int) -> Norms:
    """Return the norms of what φ is given: of y = sign ∇f / grad_scale + coupled_decay x, or of the next momentum.

    There is one grad_scale for all arrays, or one for each.

    They do not overflow, and do not depend on the number of threads.
    """

def apply_step(
    tensors: Tensors,
    rule: Rule,
    *,
    factors: Sequence[float],
    lr: float,
    grad_scales: Sequence[float] = (1.0,),
    threads: int,
    track: bool = False,
) -> Norms:
    """Take one step of dense arrays, in place.

    With y of `measure` and u = ∇φ*(y): m ← β m + (1-β) u, x ← (1 - lr decoupled_decay) x - lr m, with u in the place of
    m where there is no momentum; or m ← β m + (1-β) y, and ∇φ*(m) in the place of m in the second.

    Args:
        tensors: the parameters x with their gradients and momentum.
        rule: the rest.
        factors: what an isotropic φ multiplies by, one number for all arrays or one for each.
        lr: as above.
        grad_scales: as in `measure`.
        threads: the most threads to use. The result does not depend on it.
        track: whether to return ‖y‖ and ‖u‖ of each array, of a separable φ; else there are none. With momentum before
            the preconditioner they are those of m and ∇φ*(m). A norm of float32 beyond 1e19 may be infinite.

    Raises:
        ValueError: if there is no such step, or an array shares memory with its gradient or momentum. What it shares
            with others is written in the order of the arrays.
    """

def step(parts: list[tuple[Tensors, Rule, float, int, bool]], *, grad_scale: float = 1.0, threads: int) -> float | None:
    """Measure and move several groups, whose rules have a kernel each.

    Args:
        parts: of each group its arrays, its rule, its stepsize, a number that those groups have in common whose
            gradients have one norm, and whether nothing at all moves if a gradient of the group is not finite.
        grad_scale: as in `measure`.
        threads: the most threads to use.

    Returns:
        the norm of all that isotropic φ are given; None if there is no such φ.
    """

def step_tracked(
    parts: list[tuple[Tensors, Rule, float, int, bool]], *, grad_scale: float = 1.0, threads: int
) -> tuple[float | None, list[tuple[float, float]]]:
    """Take a `step`, and return with its norm ‖y‖ and ‖u‖ of each group, NaN if nothing moved; see `apply_step`."""

class Stepper:
    """The steps of a method of `npgm.solvers` from all runs' points to the next ones, and what it remembers of them.

    The arrays are given by the addresses of their entries: points and gradients of shape (runs, size) in the dtype of
    the stepper, the others of shape (runs,), in float64 if nothing else is said.
    """

    def step(
        self,
        x: int,
        gradient: int,
        last_x: int,
        last_gradient: int,
        following: int,
        norms: int,
        f: int,
        running: int,
        lr: int,
    ) -> None:
        """Write the next points.

        Args:
            x: the points.
            gradient: the gradients there.
            last_x: the points before; anything in the first step.
            last_gradient: the gradients there.
            following: where the next points go; it may be the same as ``last_x``.
            norms: those of ``gradient``.
            f: the values at ``x``.
            running: which runs take the step, as bools; 0 for all. The others stay where they are.
            lr: where the γ of the step of those goes.
        """

    def judge(
        self,
        gradient: int,
        next_gradient: int,
        f: int,
        next_f: int,
        norms: int,
        next_norms: int,
        taken: int,
    ) -> bool:
        """Say which of the last steps are taken.

        Args:
            gradient, f, norms: as they were for the step.
            next_gradient, next_f, next_norms: those at the points that it wrote, finite or not.
            taken: where the answers go, as bools.

        Returns:
            whether all are taken.
        """

    def write_norms(self, gradient: int, f: int, norms: int) -> float:
        """Write the norms of the gradients.

        Returns:
            the smallest, or NaN if one of them, or of the values ``f``, is not finite.
        """

def heavy_ball(
    runs: int,
    size: int,
    dtype: str,
    *,
    lr: float,
    momentum: float,
    kernel: str,
    kernel_parameters: Sequence[float],
    scale: float,
    isotropic: bool,
) -> Stepper:
    """Return the steps of `npgm`, for one of `kernels`, and of `gd` and `gdm`, for ``"Quadratic"``.

    Raises, as the functions below:
        ValueError: if ``dtype`` is neither float32 nor float64, or there is no such kernel.
    """

class NewtonOptions:
    """The numbers of quasi-Newton steps and of their lengths, by the names of `npgm.solvers.methods.auto`."""

    memory: int
    first: float
    curved: float
    kept: float
    straight: float
    fade: float
    gain: float
    spread: float
    clear: float
    flatter: float
    steeper: float
    armijo: float
    steep: float
    longer: float
    last: float
    shortest: float
    longest: float
    stretch: float

class AutoOptions(NewtonOptions):
    """Those of `npgm.solvers.methods.auto`, and of the stepsize rule "auto", by the same names."""

    momentum: float
    safety: float
    discount: float
    decrease: float
    calm: float
    saturated: float
    scale: float
    relative_scale: float
    quadratic: bool
    newtons: bool
    window: int
    cosine: float
    least_degree: float
    largest_degree: float
    budget: float
    calmed: float
    sharper: float
    rejections: float

    def __init__(self) -> None: ...

def address(array: object) -> int:
    """Return where the entries of a contiguous array of NumPy are."""

def automatic(runs: int, size: int, dtype: str, options: AutoOptions) -> Stepper:
    """Return the stepper of "auto", or of its heavy ball alone."""

class CompositeOptions(NewtonOptions):
    """Those of `npgm.solvers.methods.proximal_lbfgs`, by the same names."""

    decrease: float
    trials: float
    far: float
    cosine: float
    discount: float

    def __init__(self) -> None: ...

class CompositeStepper(Stepper):
    """Steps for f + g. What is said above of gradients and values is of f."""

    def total(self, x: int, gradient: int, f: int, moved: int, subgradient: int, value: int, norms: int) -> None:
        """Write f + g at the last points, its subgradient and the norm of that, of the runs that ``moved``.

        Args:
            x: the points.
            gradient, f: those of f there.
            moved: which runs took the last step, as bools.
            subgradient, value, norms: where the results go.
        """

    def write_decreases(self, to: int) -> None:
        """Write what the last step takes at least off a bound of f + g, over γ."""

def composite(
    runs: int,
    size: int,
    dtype: str,
    options: CompositeOptions,
    *,
    l1: int = 0,
    l2: int = 0,
    lower: int = 0,
    upper: int = 0,
) -> CompositeStepper:
    """Return the stepper of "proximal_lbfgs", for g(z) = Σ τ|z| + μz²/2 between bounds.

    Args:
        l1: where τ of each entry is, in float64; 0 for none, as below. The numbers are copied.
        l2: where μ is.
        lower, upper: where the bounds are, both or none.
    """

def clipped(runs: int, size: int, dtype: str, *, lr: float, max_step: float, momentum: float, nu: float) -> Stepper: ...
def adgd(runs: int, size: int, dtype: str, *, lr: float) -> Stepper: ...
def adgd_accel(runs: int, size: int, dtype: str, *, lr: float) -> Stepper: ...

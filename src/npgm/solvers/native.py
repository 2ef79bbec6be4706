"""Where all runs of a call of `minimize` are, as NumPy arrays between which the native module steps.

It has the steps of npgm's own methods in float32 and float64; `npgm.solvers.iterate` defines what they do.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from npgm import _native
from npgm._common.array import Array, Bools, Floats
from npgm.kernels import Cosh, Quadratic
from npgm.proximal import L1, Box, ElasticNet, Nonnegative, Proximable
from npgm.references import Isotropic, Separable
from npgm.solvers.composite import CompositeIterate
from npgm.solvers.composite_method import CompositeMethod
from npgm.solvers.iterate import not_finite, unbounded
from npgm.solvers.method import Method
from npgm.solvers.methods import proximal_lbfgs
from npgm.solvers.methods.adgd import AdGD
from npgm.solvers.methods.adgd_accel import AdGDAccel
from npgm.solvers.methods.auto import Auto
from npgm.solvers.methods.auto import method as auto
from npgm.solvers.methods.clipped_gd import ClippedGD
from npgm.solvers.methods.gd import GD
from npgm.solvers.methods.gdm import GDM
from npgm.solvers.methods.npgm import NPGM
from npgm.solvers.methods.proximal_lbfgs import ProximalLBFGS
from npgm.solvers.objective import NotFiniteError, Objective
from npgm.solvers.preconditioned import RELATIVE_SCALE
from npgm.solvers.stepsizes.edge_of_stability import CALM, FIRST, SATURATED, EdgeOfStability

_RULES: dict[type[Method], str] = {
    GD: "heavy_ball",
    GDM: "heavy_ball",
    NPGM: "heavy_ball",
    Auto: "auto",
    ProximalLBFGS: "composite",
    ClippedGD: "clipped",
    AdGD: "adgd",
    AdGDAccel: "adgd_accel",
}
"""The native module's name for the step of a class. A subclass may take another one, so it is not meant."""

_BOUNDS = {"lower": "lower", "upper": "upper"}
_ENTRYWISE: dict[type[Proximable], dict[str, str]] = {
    L1: {"l1": "weight"},
    ElasticNet: {"l1": "l1", "l2": "l2"},
    Box: _BOUNDS,
    Nonnegative: _BOUNDS,
}
"""The native module's names for the numbers of a g, with the g's own."""


class NativeIterate:
    """An `npgm.solvers.iterate.Iterate` that allocates nothing once it is made.

    The points take turns in two arrays. One to which somebody else holds a reference by then, such as a function that
    keeps the points it was called with, is left alone, and another takes its place.
    """

    decrease: Floats | None = None
    least: float

    def __init__(self, objective: Objective, method: Method, stepper: Any) -> None:
        self.objective, self.stepper = objective, stepper
        self.stepsize, self.taken = (
            np.empty(objective.runs),
            np.ones(objective.runs, np.bool_) if method.judges else None,
        )
        self.stepsize_address = _address(self.stepsize)
        self.taken_address = 0 if self.taken is None else _address(self.taken)
        self.here, self.there = _Place(objective), _Place(objective)
        self.here.x[...] = objective.unflatten(objective.x0)
        self._arrive(self.here)
        if math.isnan(self.least):
            raise NotFiniteError.at_start()

    @property
    def x(self) -> Array:
        return self.here.x.reshape(self.objective.runs, -1)

    @property
    def last_x(self) -> Array:
        return self.there.x.reshape(self.objective.runs, -1)

    @property
    def grad(self) -> Array:
        return self.here.grad.reshape(self.objective.runs, -1)

    @property
    def smooth_grad(self) -> Array:
        return self.grad

    @property
    def f(self) -> Floats:
        return self.here.f

    @property
    def grad_norm(self) -> Floats:
        return self.here.grad_norm

    def advance(self, running: Bools | None) -> Bools | None:
        here, there = self.here, self.there
        last_address = there.x_address
        if there.is_referenced:
            last = there.x  # noqa: F841  the step reads it
            there.renew_x()
        self.stepper.step(
            here.x_address,
            here.grad_address,
            last_address,
            there.grad_address,
            there.x_address,
            here.grad_norm_address,
            here.f_address,
            0 if running is None else _address(running),
            self.stepsize_address,
        )
        least = self.least
        self._arrive(there)
        if self.taken is not None and not self._judge(self.taken, here, there, running):
            self._stay(self.taken, here, there, least)
            return None
        self.here, self.there = there, here
        if not math.isnan(self.least):
            return None
        failed = not_finite(self)
        if (back := failed & ~unbounded(self)).any():
            self.here = there.replaced(here, back)
        return failed

    def _judge(self, taken: Bools, here: _Place, there: _Place, running: Bools | None) -> bool:
        """Ask which steps are taken; return whether all are of the runs that go on."""
        all_taken: bool = self.stepper.judge(
            here.grad_address,
            there.grad_address,
            here.f_address,
            there.f_address,
            here.grad_norm_address,
            there.grad_norm_address,
            self.taken_address,
        )
        if all_taken:
            return True
        taken |= there.f == -math.inf
        if running is not None:
            taken |= ~running
        return bool(taken.all())

    def _stay(self, taken: Bools, here: _Place, there: _Place, least: float) -> None:
        """Take those of the steps that are taken, which are not all."""
        if taken.any():
            self.here, self.there = there.replaced(here, ~taken), here
            self.least = math.nan if not_finite(self).any() else float(self.here.grad_norm.min())
        else:
            self.least = least

    def _arrive(self, place: _Place) -> None:
        value, grad = self.objective(place.x)
        place.f[...] = value
        place.grad[...] = grad
        self.least = self.stepper.write_norms(place.grad_address, place.f_address, place.grad_norm_address)


class NativeComposite(CompositeIterate):
    """The `CompositeIterate` beside a `NativeIterate`; it allocates nothing of the size of a point either."""

    smooth: NativeIterate

    def __init__(self, smooth: NativeIterate, method: CompositeMethod) -> None:
        super().__init__(smooth, method.value_at_start(smooth.objective.xp, smooth.x)[:, 0].astype(np.float64))
        self.grad = np.full_like(smooth.x, math.nan)
        self.addresses = tuple(_address(array) for array in (self.grad, self.f, self.grad_norm))

    @property
    def decrease(self) -> Floats:
        decrease = np.empty(self.f.size)
        self.smooth.stepper.write_decreases(_address(decrease))
        return decrease

    def arrive(self, moved: Bools) -> None:
        here = self.smooth.here
        self.smooth.stepper.total(here.x_address, here.grad_address, here.f_address, _address(moved), *self.addresses)


class _Place:
    """The arrays for one point of each run, in the shape that the user's function sees, and their addresses."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.grad = np.empty(objective.shape, objective.x0.dtype)
        self.f, self.grad_norm = np.empty(objective.runs), np.empty(objective.runs)
        self.grad_address = _address(self.grad)
        self.f_address, self.grad_norm_address = _address(self.f), _address(self.grad_norm)
        self.renew_x()

    def renew_x(self) -> None:
        """Take another array for the points."""
        self.x = np.empty_like(self.grad)
        self.x_address = _address(self.x)
        self.references = sys.getrefcount(self.x)

    @property
    def is_referenced(self) -> bool:
        """Whether somebody else refers to the array of the points."""
        return sys.getrefcount(self.x) > self.references

    def replaced(self, other: _Place, runs: Bools) -> _Place:
        """Return a copy with the entries of ``other`` where ``runs`` holds."""
        copy = _Place(self.objective)
        rows = np.reshape(runs, (-1,) + (1,) * (self.x.ndim - 1)) if self.objective.batch else runs[0]
        for name, where in (("x", rows), ("grad", rows), ("f", runs), ("grad_norm", runs)):
            getattr(copy, name)[...] = np.where(where, getattr(other, name), getattr(self, name))
        return copy


def _address(array: Array) -> int:
    """Return where the entries of an array of NumPy are, in a fraction of the time of its `ctypes`."""
    address: int = _native.core().address(array)
    return address


def stepper(objective: Objective, method: Method) -> Any:
    """Return the native module's stepper for the method on the arrays of the objective, or None if it has none."""
    rule, x0 = _RULES.get(type(method)), objective.x0
    if rule is None or not _native.available() or not isinstance(x0, np.ndarray):
        return None
    if x0.dtype not in (np.float32, np.float64):
        return None
    arguments = objective.runs, x0.size // objective.runs, x0.dtype.name
    if rule == "composite":
        return _composite(method, objective, arguments)
    if rule == "auto" or not isinstance(method.lr, float):
        numbers = _auto_options(method, arguments[1])
        return None if numbers is None else _native.core().automatic(*arguments, _filled("AutoOptions", numbers))
    if rule == "heavy_ball":
        options = _heavy_ball_options(method)
    else:
        options = {name: getattr(method, name) for name in method.options()}
    return None if options is None else getattr(_native.core(), rule)(*arguments, **options)


def _filled(kind: str, numbers: dict[str, Any]) -> Any:
    """Return the native module's options of a kind with these numbers."""
    options = getattr(_native.core(), kind)()
    for name, number in numbers.items():
        setattr(options, name, number)
    return options


def _heavy_ball_options(method: Any) -> dict[str, Any] | None:
    """Return the options as the native module takes them; None if it lacks the kernel, or takes no such step."""
    phi = method.stationarity_reference
    if method.as_npgm is None:  # λ of each run's own, or momentum before the preconditioner
        return None
    name, parameters = _native.kernel_arguments(phi.kernel)
    if name not in _native.kernels() or type(phi) not in (Isotropic, Separable):
        return None
    return {
        "lr": method.lr,
        "momentum": method.momentum,
        "kernel": name,
        "kernel_parameters": parameters,
        "scale": phi.scale,
        # the isotropic quadratic is the separable one, which needs no norm: that of large gradients may overflow
        "isotropic": type(phi) is Isotropic and type(phi.kernel) is not Quadratic,
    }


def _auto_options(method: Any, n: int) -> dict[str, float] | None:
    """Return the numbers of the stepsize rule "auto", and of the method; None for another rule, φ, or part."""
    newtons, rule = type(method) is Auto, method.lr
    phi = method.stationarity_reference
    if type(rule) is not EdgeOfStability or type(phi) is not Isotropic or type(phi.kernel) not in (Cosh, Quadratic):
        return None
    numbers = {
        "momentum": method.momentum,
        "safety": rule.safety,
        "discount": rule.discount,
        "window": rule.window,
        "decrease": rule.decrease,
        "calm": CALM,
        "saturated": SATURATED,
        "first": FIRST,
        "scale": 0.0 if method.scale_follows else phi.scale,
        "relative_scale": RELATIVE_SCALE,
        "quadratic": type(phi.kernel) is Quadratic,
        "newtons": newtons,
    }
    return numbers | auto.numbers() | {"memory": method.newton.pairs(n)} if newtons else numbers


def _composite(method: Any, objective: Objective, arguments: tuple[int, int, str]) -> Any:
    """Return the stepper for f + g; None for a g that the native module does not have."""
    names = _ENTRYWISE.get(type(method.prox))
    if names is None:
        return None
    numbers = proximal_lbfgs.numbers() | {"memory": method.newton.pairs(arguments[1]), "first": FIRST}
    entries = {
        name: np.array(np.broadcast_to(getattr(method.prox, ours), objective.point_shape), np.float64, order="C")
        for name, ours in names.items()
    }
    addresses = {name: _address(array) for name, array in entries.items()}
    return _native.core().composite(*arguments, _filled("CompositeOptions", numbers), **addresses)

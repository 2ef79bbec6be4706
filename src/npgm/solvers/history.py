"""What `minimize` records of every iteration."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import array_api_compat
import numpy as np

from npgm._common.array import Array, Bools, Floats, Namespace, to_host
from npgm.references import Isotropic
from npgm.solvers.heavy_ball import HeavyBall
from npgm.solvers.iterate import Iterate
from npgm.solvers.method import Method
from npgm.solvers.preconditioned import Preconditioned
from npgm.solvers.stepsizes.backtracking import Backtracking

_ENTRIES = 65536
"""Stationarity has many operations: it is taken of so many iterates at once as have up to so many entries."""


class History(dict[str, Any]):
    """What `minimize` returns as ``history``: arrays over k = 0, ..., nit by name, and the method that made the run.

    Args:
        arrays: "fun", "grad_norm", "stationarity", "conjugate", which is φ*(∇f), and "seconds" at each iterate; "lr",
            the γ of the step from there, and "taken", whether the step was taken. It is not where a rule for the
            stepsize rejected it, or f or its gradient was not finite. After the end of a run these are NaN and False.
            With momentum, and γ a number or found by backtracking, also "momentum": φ of the last step taken, divided
            by its γ, and 0 at the start. This is φ(m^{k-1}), or φ(∇φ*(m^{k-1})) with momentum before the
            preconditioner. With ``prox`` and a rule for the stepsize also "decrease", Δ/γ at each iterate with the γ of
            the step from there (docs/theory.md).
        method: the method with all its options: its key, γ, β and φ.
        eps: the machine epsilon of the dtype of the run.
        size: the number of entries of a point; None if not known.
    """

    def __init__(
        self,
        arrays: Mapping[str, Any],
        method: Method,
        eps: float = float(np.finfo(np.float64).eps),
        size: int | None = None,
    ):
        super().__init__(arrays)
        self.method, self.eps, self.size = method, eps, size


class Recorder:
    """The records of a call of `minimize`, with the measures of the method's own φ."""

    def __init__(self, xp: Namespace, method: Method, phi: Preconditioned) -> None:
        self.xp, self.method, self.phi = xp, method, phi
        self.isotropic = isinstance(phi.reference, Isotropic)
        self.records: defaultdict[str, list[Floats]] = defaultdict(list)
        self.taken: list[Bools | None] = []
        self.seconds: list[float] = []
        self.gradients: list[Array] = []
        self.size: int | None = None
        averages = isinstance(method, HeavyBall) and isinstance(method.lr, float | Backtracking)
        self.averages = averages and method.momentum > 0.0  # type: ignore[attr-defined]
        self.x: Array | None = None

    def append(self, iterate: Iterate, seconds: float) -> None:
        """Record the present iterate."""
        self.records["fun"].append(iterate.f.copy())
        self.records["grad_norm"].append(iterate.grad_norm.copy())
        self.seconds.append(seconds)
        self.size = iterate.x.shape[-1]
        if self.averages:
            self._append_momentum(iterate)
        if len(self.seconds) > 1:
            self.records["lr"].append(np.array(iterate.stepsize))
            self.taken.append(None if iterate.taken is None else iterate.taken.copy())
            if (decrease := iterate.decrease) is not None:
                self.records["decrease"].append(decrease)
        if not self.isotropic:
            self.gradients.append(self.xp.asarray(iterate.grad, copy=True))
            if len(self.gradients) * math.prod(iterate.grad.shape) >= _ENTRIES:
                self._reduce()

    def history(self, batch: bool, eps: float, nit: Any, diverged: Bools) -> History:
        """Return what `minimize` returns as ``history``, for runs that ended after ``nit`` iterations.

        Args:
            batch: whether there may be several runs.
            eps: the machine epsilon of their dtype.
            nit: how many iterations each had.
            diverged: those whose last step led to where f or its gradient is not finite.
        """
        records, shape = self.records, (len(self.seconds), *self.records["fun"][0].shape)
        runs: dict[str, Any] = {name: np.array(records[name]) for name in ("fun", "grad_norm")}
        if self.isotropic:
            runs["stationarity"] = self.phi.stationarity_of_norms(runs["grad_norm"])
            runs["conjugate"] = self.phi.conjugate_of_norms(runs["grad_norm"])
        else:
            self._reduce()
            runs |= {name: np.reshape(np.concatenate(records[name]), shape) for name in ("stationarity", "conjugate")}
        for name in ("lr", *({"decrease"} & records.keys())):  # of the step from each iterate
            runs[name] = np.full(shape, np.nan)
            for k, values in enumerate(records[name]):
                runs[name][k] = np.where(nit > k, values, np.nan)
        runs["taken"] = np.zeros(shape, dtype=np.bool_)
        for k, step in enumerate(self.taken):
            runs["taken"][k] = (nit > k + diverged) & (True if step is None else step)
        if self.averages:
            runs["momentum"] = np.array(records["momentum"])
        if not batch:
            runs = {name: values[:, 0] for name, values in runs.items()}
        return History(runs | {"seconds": np.array(self.seconds)}, self.method, eps, self.size)

    def _append_momentum(self, iterate: Iterate) -> None:
        xp, last = self.xp, self.x
        self.x = x = xp.asarray(iterate.x, copy=True)
        if last is None:
            self.records["momentum"].append(np.zeros_like(iterate.f))
            return
        lr = np.broadcast_to(np.asarray(iterate.stepsize), iterate.f.shape)
        m = (last - x) / xp.asarray(lr[:, None].copy(), dtype=x.dtype, device=array_api_compat.device(x))
        value = self.phi.value(m)
        if self.phi.reference.radius < math.inf:
            # rounding of x may carry m out of a bounded domain, at whose boundary it is
            value = xp.where(xp.isfinite(value), value, self.phi.value((1.0 - 1e-6) * m))
        taken = True if iterate.taken is None else iterate.taken
        self.records["momentum"].append(np.where(taken, to_host(value), self.records["momentum"][-1]))

    def _reduce(self) -> None:
        if self.gradients:
            gradients = self.xp.stack(self.gradients)
            for name, of in (("stationarity", self.phi.stationarity), ("conjugate", self.phi.conjugate)):
                self.records[name].append(to_host(self.xp.reshape(of(gradients), (-1,))))
            self.gradients.clear()

"""What `minimize` records of every iteration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from npgm._common.array import Array, Bools, Floats, Namespace, to_host
from npgm.references import Isotropic
from npgm.solvers.iterate import Iterate
from npgm.solvers.method import Method
from npgm.solvers.preconditioned import Preconditioned

_ENTRIES = 65536
"""Stationarity has many operations: it is taken of so many iterates at once as have up to so many entries."""


class History(dict[str, Any]):
    """What `minimize` returns as ``history``: arrays over k = 0, ..., nit by name, and the method that made the run.

    Args:
        arrays: "fun", "grad_norm", "stationarity" and "seconds" at each iterate; "lr", the γ of the step from there,
            and "taken", whether it was, which is not so where a rule for the stepsize rejected it. After the end of a
            run these are NaN and False. For Algorithm 1 with momentum also "momentum", which is φ(m^{k-1}); with
            ``prox`` and a rule for the stepsize "decrease", which is Δ/γ at each iterate with the γ of the step from
            there (docs/theory.md).
        method: the method with all its options: its key, γ, β and φ.
        eps: the machine epsilon of the dtype of the run.
    """

    def __init__(self, arrays: Mapping[str, Any], method: Method, eps: float = float(np.finfo(np.float64).eps)):
        super().__init__(arrays)
        self.method, self.eps = method, eps


class Recorder:
    """The records of a call of `minimize`, with the stationarity measure of the method's own φ."""

    def __init__(self, xp: Namespace, method: Method, phi: Preconditioned) -> None:
        self.xp, self.method, self.phi = xp, method, phi
        self.isotropic = isinstance(phi.reference, Isotropic)
        self.lr: list[Floats] = []
        self.taken: list[Bools | None] = []
        self.decrease: list[Floats] = []
        self.fun: list[Floats] = []
        self.grad_norm: list[Floats] = []
        self.seconds: list[float] = []
        self.stationarity: list[Floats] = []
        self.gradients: list[Array] = []
        self.algorithm_1 = method.as_npgm if method.as_npgm and method.as_npgm.momentum else None
        self.x: Array | None = None
        self.momentum: list[Floats] = []

    def append(self, iterate: Iterate, seconds: float) -> None:
        """Record the present iterate."""
        self.fun.append(iterate.f.copy())
        self.grad_norm.append(iterate.grad_norm.copy())
        self.seconds.append(seconds)
        if self.algorithm_1 is not None:
            self._append_momentum(iterate.x, self.algorithm_1.lr)
        if len(self.fun) > 1:
            self.lr.append(np.array(iterate.stepsize))
            self.taken.append(None if iterate.taken is None else iterate.taken.copy())
            if (decrease := iterate.decrease) is not None:
                self.decrease.append(decrease)
        if not self.isotropic:
            self.gradients.append(self.xp.asarray(iterate.grad, copy=True))
            if len(self.gradients) * math.prod(iterate.grad.shape) >= _ENTRIES:
                self._reduce()

    def history(self, batch: bool, eps: float, nit: Any) -> History:
        """Return what `minimize` returns as ``history``, for runs that ended after ``nit`` iterations."""
        grad_norm = np.array(self.grad_norm)
        if self.isotropic:
            stationarity = self.phi.stationarity_of_norms(grad_norm)
        else:
            self._reduce()
            stationarity = np.reshape(np.concatenate(self.stationarity), grad_norm.shape)
        lr, taken = np.full(grad_norm.shape, np.nan), np.zeros(grad_norm.shape, dtype=np.bool_)
        for k, (gamma, step) in enumerate(zip(self.lr, self.taken, strict=True)):
            lr[k] = np.where(nit > k, gamma, np.nan)
            taken[k] = (nit > k) & (True if step is None else step)
        runs = {
            "fun": np.array(self.fun),
            "grad_norm": grad_norm,
            "stationarity": stationarity,
            "lr": lr,
            "taken": taken,
        }
        if self.decrease:
            runs["decrease"] = np.full(grad_norm.shape, np.nan)
            for k, decrease in enumerate(self.decrease):
                runs["decrease"][k] = np.where(nit > k, decrease, np.nan)
        if self.momentum:
            runs["momentum"] = np.array(self.momentum)
        if not batch:
            runs = {name: values[:, 0] for name, values in runs.items()}
        return History(runs | {"seconds": np.array(self.seconds)}, self.method, eps)

    def _append_momentum(self, x: Array, lr: float) -> None:
        last, self.x = self.x, self.xp.asarray(x, copy=True)
        m = (self.x if last is None else last) - self.x
        phi = self.phi.reference  # of one λ, as Algorithm 1 has it
        value = phi(m / lr, axis=-1)
        # rounding of x may carry m out of a bounded domain, at whose boundary it is
        inside = phi(m * ((1.0 - 1e-6) / lr), axis=-1) if phi.radius < math.inf else value
        self.momentum.append(to_host(self.xp.where(self.xp.isfinite(value), value, inside)))

    def _reduce(self) -> None:
        if self.gradients:
            stationarity = self.phi.stationarity(self.xp.stack(self.gradients))
            self.stationarity.append(to_host(self.xp.reshape(stationarity, (-1,))))
            self.gradients.clear()

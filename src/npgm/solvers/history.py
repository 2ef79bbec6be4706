"""What `minimize` records of every iteration."""

from __future__ import annotations

import math

import numpy as np

from npgm._array import Array, Floats, Namespace, to_host
from npgm.references import Isotropic, Reference
from npgm.solvers.iterate import Iterate

_ENTRIES = 65536
"""The measure of small gradients is taken of many iterates at once, up to so many entries: it has many operations."""


class History:
    """The records of a call of `minimize`, with the stationarity measure of the reference function ``phi``."""

    def __init__(self, xp: Namespace, phi: Reference) -> None:
        self.xp, self.phi = xp, phi
        self.fun: list[Floats] = []
        self.grad_norm: list[Floats] = []
        self.seconds: list[float] = []
        self.stationarity: list[Floats] = []
        self.gradients: list[Array] = []

    def append(self, iterate: Iterate, seconds: float) -> None:
        """Record the present iterate."""
        self.fun.append(iterate.f.copy())
        self.grad_norm.append(iterate.grad_norm.copy())
        self.seconds.append(seconds)
        if not isinstance(self.phi, Isotropic):
            self.gradients.append(self.xp.asarray(iterate.grad, copy=True))
            if len(self.gradients) * math.prod(iterate.grad.shape) >= _ENTRIES:
                self._measure()

    def arrays(self, batch: bool) -> dict[str, Floats]:
        """Return what `minimize` returns as ``history``."""
        grad_norm = np.array(self.grad_norm)
        if isinstance(self.phi, Isotropic):  # a function of the norm alone
            measure = self.phi.stationarity(grad_norm[..., None], axis=-1)
        else:
            self._measure()
            measure = np.reshape(np.concatenate(self.stationarity), grad_norm.shape)
        runs = {"fun": np.array(self.fun), "grad_norm": grad_norm, "stationarity": measure}
        if not batch:
            runs = {name: values[:, 0] for name, values in runs.items()}
        return runs | {"seconds": np.array(self.seconds)}

    def _measure(self) -> None:
        if self.gradients:
            measure = self.phi.stationarity(self.xp.stack(self.gradients), axis=-1)
            self.stationarity.append(to_host(self.xp.reshape(measure, (-1,))))
            self.gradients.clear()

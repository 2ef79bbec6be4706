"""Gradients until ‖∇f‖ is 1e-6 of the first, for a quadratic in 100 variables of condition 1e8."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import scipy.optimize
from typer import Option

import npgm
from npgm._common.array import Floats

METHODS: dict[str, dict[str, Any]] = {
    "gd, γ = 1/L": {"method": "gd", "lr": 1.0},
    "iHGDm, γ = 1, λ = ‖∇f(x⁰)‖/10": {"method": "npgm", "lr": 1.0, "momentum": 0.9, "scale": "auto"},
    "nesterov, γ = 1/L": {"method": "nesterov", "lr": 1.0},
    "adgd_accel": {"method": "adgd_accel", "lr": 1e-3},
    "auto": {},
}
CURVATURES = np.geomspace(1e-8, 1.0, 100)
START = np.random.default_rng(0).standard_normal(100)
TOL = 1e-6 * float(np.linalg.norm(CURVATURES * START))


def run(limit: Annotated[int, Option(min=1, help="Gradients after which a method has failed.")] = 100_000) -> None:
    """Print a line for each method of npgm and of SciPy."""
    for name, options in METHODS.items():
        res = npgm.minimize(_quadratic, START, tol=TOL, maxiter=limit, **options)
        _show(name, res.nfev, res.fun, res.success)
    for method in ("L-BFGS-B", "CG"):
        _show(f"SciPy's {method}", *_scipy(method, limit))


def _quadratic(x: Floats) -> tuple[float, Floats]:
    return 0.5 * float(x @ (CURVATURES * x)), CURVATURES * x


def _show(name: str, gradients: int, fun: float, success: bool) -> None:
    number = f"{gradients}" if success else f"not in {gradients}"
    print(f"{name:32} {number:>14} gradients, f = {fun:.1e}", flush=True)


def _scipy(method: str, limit: int) -> tuple[int, float, bool]:
    count = 0

    def counted(x: Floats) -> tuple[float, Floats]:
        nonlocal count
        f, grad = _quadratic(x)
        count += 1
        if np.linalg.norm(grad) <= TOL:
            raise StopIteration(count, f)
        return f, grad

    limits = {"maxiter": limit, "gtol": 0.0} | ({"ftol": 0.0, "maxfun": limit} if method == "L-BFGS-B" else {})
    try:
        res = scipy.optimize.minimize(counted, START, jac=True, method=method, options=limits)
    except StopIteration as done:
        return done.args[0], done.args[1], True
    return count, res.fun, False

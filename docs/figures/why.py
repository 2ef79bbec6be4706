"""Draw the two figures of the README: lengths of steps, and a factorisation of MovieLens 100K."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import npgm
from npgm.lab.data import load
from npgm.lab.data.movielens import rating_matrix
from npgm.lab.style import FAINT, STYLES, drawing, save


def main() -> None:
    """Write both beside this file."""
    for name, draw in {"steps": steps, "factorization": factorization}.items():
        figure = Figure(figsize=(4.5, 3.2), layout="constrained")
        axes = figure.subplots()
        draw(axes)
        axes.grid(color=FAINT, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        save(figure, Path(__file__).with_name(f"{name}.svg"))


def steps(axes: Axes) -> None:
    """Draw the length of a step against the norm of the gradient."""
    norms = np.geomspace(1e-2, 1e3, 200)
    lengths = {
        "GD": norms,
        "iHGD": [npgm.Isotropic(npgm.Cosh()).precondition(np.array([r]))[0] for r in norms],
        "clipping": np.minimum(norms, 1.0),
        "NGD": [npgm.Isotropic(npgm.Log()).precondition(np.array([r]))[0] for r in norms],
    }
    for (label, length), style in zip(lengths.items(), STYLES, strict=False):
        axes.plot(norms, length, label=label, color=style.color, linestyle=style.dashes)
    axes.set(xscale="log", yscale="log", ylim=(5e-3, 30.0), xlabel="‖∇f‖/λ", ylabel="length of the step/γ")


def factorization(axes: Axes) -> None:
    """Draw ‖∇f‖ along runs from one start, at the stepsizes of the paper."""
    problem = npgm.problems.MatrixFactorization(rating_matrix(load("movielens-100k")), rank=10)
    phi = npgm.reference("isotropic-cosh", scale=100.0)
    options = {
        "GD": {"method": "gd", "lr": 1e-3},
        "GDm": {"method": "gdm", "lr": 1 / 300, "momentum": 0.9},
        "iHGDm": {"method": "npgm", "lr": 2.0, "momentum": 0.9, "reference": phi},
        "auto": {},
    }
    for (label, given), style in zip(options.items(), STYLES, strict=False):
        run = npgm.minimize(problem, problem.start(seed=0), tol=1e-6, maxiter=2000, history=True, **given)
        axes.plot(run.history["grad_norm"], label=label, color=style.color, linestyle=style.dashes)
    axes.set(yscale="log", ylim=(1e-6, 1e6), xlabel="iteration", ylabel="‖∇f‖")


if __name__ == "__main__":
    with drawing():
        main()

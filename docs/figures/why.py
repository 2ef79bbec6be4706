"""Draw docs/figures/why.svg, the figure of the README: lengths of steps, and a factorisation of MovieLens 100K."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import npgm
from npgm.data import load
from npgm.data.movielens import rating_matrix
from npgm.experiments.style import FAINT, STYLES, drawing, save


def main() -> None:
    """Draw both halves and write them beside this file."""
    figure = Figure(figsize=(10.0, 3.4), layout="constrained")
    maps, runs = figure.subplots(1, 2)

    norms = np.geomspace(1e-2, 1e3, 400)
    lengths = {
        "gradient descent": norms,
        "iHGD": [npgm.Isotropic(npgm.Cosh()).precondition(np.array([r]))[0] for r in norms],
        "clipping": np.minimum(norms, 1.0),
        "NGD": [npgm.Isotropic(npgm.Log()).precondition(np.array([r]))[0] for r in norms],
    }
    for (label, length), style in zip(lengths.items(), STYLES, strict=False):
        maps.plot(norms, length, label=label, color=style.color, linestyle=style.dashes)
    maps.set(xscale="log", yscale="log", ylim=(5e-3, 30.0), xlabel="‖∇f‖/λ", ylabel="length of the step/γ")

    problem = npgm.problems.MatrixFactorization(rating_matrix(load("movielens-100k")), rank=10)
    phi = npgm.reference("isotropic-cosh", scale=100.0)
    options = {
        "GD": {"method": "gd", "lr": 1e-3},
        "GD, momentum": {"method": "gdm", "lr": 1 / 300, "momentum": 0.9},
        "iHGD, momentum": {"method": "npgm", "lr": 2.0, "momentum": 0.9, "reference": phi},
        "auto": {},
    }
    for (label, given), style in zip(options.items(), STYLES, strict=False):
        run = npgm.minimize(problem, problem.start(seed=0), tol=1e-6, maxiter=2000, history=True, **given)
        runs.plot(run.history["grad_norm"], label=label, color=style.color, linestyle=style.dashes)
    runs.set(yscale="log", ylim=(1e-6, 1e6), xlabel="iteration", ylabel="‖∇f‖")

    for axes in (maps, runs):
        axes.grid(color=FAINT, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, Path(__file__).with_suffix(".svg"))


if __name__ == "__main__":
    with drawing():
        main()

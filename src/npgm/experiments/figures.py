"""The figures of an experiment."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import matplotlib.axes
import matplotlib.figure
import numpy as np
import polars as pl

from npgm._files import replacing
from npgm.experiments.solving.experiment import SolvingExperiment, solver
from npgm.experiments.spec import Experiment
from npgm.experiments.summary import LINEAR, at, curve, setting_name
from npgm.kernels import registry

_FEW = 20
"""Points that are shown as such, for a line of one or two would not be seen."""


def convergence(experiment: Experiment, frame: pl.DataFrame, path: Path) -> None:
    """Draw the experiment's quantities against iterations and seconds.

    Each setting has a column; a single one has a column for the iterations and one for the seconds. Lines and bands are
    those of `curve`. Scales are logarithmic, but for the accuracy.
    """
    clocks = {"k": experiment.clock, "seconds": "seconds"}
    grid = experiment.grid()
    shape = (2 * len(experiment.quantities), len(grid)) if len(grid) > 1 else (len(experiment.quantities), 2)
    figure = matplotlib.figure.Figure(figsize=(4.2 * shape[1], 2.7 * shape[0]), layout="constrained")
    axes = figure.subplots(*shape, squeeze=False, sharey="row")
    for setting, column in zip(grid, axes.T if len(grid) > 1 else [axes.ravel()], strict=True):
        panels = itertools.product(experiment.quantities, clocks.items())
        for ax, (quantity, (clock, unit)) in zip(column, panels, strict=True):
            for i, method in enumerate(experiment.compared()):
                _band(ax, experiment, at(frame, setting, method), quantity, clock, method, f"C{i}")
            ax.set(yscale="linear" if quantity in LINEAR else "log", xlabel=unit)
            if ax in axes[:, 0]:
                ax.set_ylabel(experiment.symbols[quantity])
            ax.grid(alpha=0.3)
        number = at(frame, setting)["seed"].n_unique()
        starts = experiment.starts_are if number != 1 else experiment.starts_are.removesuffix("s")
        column[0].set_title(", ".join(filter(None, [setting_name(setting), f"{number} {starts}"])))
    _legend(figure)
    _save(figure, path)


def sharpness(experiment: SolvingExperiment, frame: pl.DataFrame, path: Path) -> None:
    """Draw λ_max(∇²f) along the runs, with the limit above which a minimiser repels the method as a dashed line."""
    grid = experiment.grid()
    figure = matplotlib.figure.Figure(figsize=(4.2 * len(grid), 3.2), layout="constrained")
    axes = figure.subplots(1, len(grid), squeeze=False, sharey=True)[0]
    measured = frame.filter(pl.col("sharpness").is_not_null())
    for ax, setting in zip(axes, grid, strict=True):
        for i, method in enumerate(experiment.compared()):
            _band(ax, experiment, at(measured, setting, method), "sharpness", "k", method, f"C{i}")
        for i, spec in enumerate(m for m in experiment.methods if m.role == "compared"):
            if (limit := solver(spec).sharpness_limit) is not None:
                ax.axhline(limit, color=f"C{i}", linestyle="--", linewidth=1)
        ax.set(xlabel="iteration", xscale="symlog", yscale="log", xlim=(0, None), title=setting_name(setting))
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("λ_max(∇²f); dashed: stability limit")
    _legend(figure)
    _save(figure, path)


def kernels(path: Path) -> None:
    """Draw h and the preconditioner h*' of every registered kernel, with the identity and hard clipping."""
    figure = matplotlib.figure.Figure(figsize=(9.0, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    y = np.linspace(-5.0, 5.0, 1001)
    compared = {"quad": "--", "huber": ":"}  # gradient descent and hard clipping
    for i, (key, cls) in enumerate(sorted(registry.items())):
        kernel = cls()
        color, line = ("black", compared[key]) if key in compared else (f"C{i % 10}", "-" if i < 10 else "-.")
        x = np.linspace(-1.0, 1.0, 1001) * min(kernel.radius, 3.0)
        left.plot(x, kernel(x), color=color, linestyle=line, label=key)
        right.plot(y, kernel.precondition(y), color=color, linestyle=line)
    left.set(xlabel="x", title="h(x)", ylim=(0.0, 4.0))
    right.set(xlabel="y", title="preconditioner h*'(y)", ylim=(-3.0, 3.0))
    for ax in (left, right):
        ax.grid(alpha=0.3)
    _legend(figure)
    _save(figure, path)


def _band(
    ax: matplotlib.axes.Axes,
    experiment: Experiment,
    runs: pl.DataFrame,
    quantity: str,
    clock: str,
    label: str,
    color: str,
) -> None:
    points = curve(experiment, runs, quantity)
    if points.is_empty():
        return
    x = points[clock].to_numpy()
    ax.plot(x, points["middle"].to_numpy(), color=color, label=label, linewidth=1.5,
            marker="." if len(points) <= _FEW else None)  # fmt: skip
    ax.fill_between(x, points["low"].to_numpy(), points["high"].to_numpy(), color=color, alpha=0.2, linewidth=0)


def _legend(figure: matplotlib.figure.Figure) -> None:
    labels: dict[str, Any] = {}
    for ax in figure.axes:
        labels |= {label: handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(labels.values(), labels.keys(), loc="outside upper center", ncols=int(figure.get_figwidth() / 1.4))


def _save(figure: matplotlib.figure.Figure, path: Path) -> None:
    with replacing(path) as file:
        figure.savefig(file, format=path.suffix.removeprefix(".") or "png", dpi=110)

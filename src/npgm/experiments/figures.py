"""The figures of an experiment."""

from __future__ import annotations

from pathlib import Path

import matplotlib.axes
import matplotlib.figure
import polars as pl

from npgm.experiments.spec import QUANTITIES, Experiment
from npgm.experiments.summary import at, setting_name

_CLOCKS = {"k": "iteration", "seconds": "seconds"}
_FLOOR = 1e-9
"""f - min f below this is rounding, since f itself is of the order of 1e5."""


def convergence(experiment: Experiment, frame: pl.DataFrame, path: Path) -> None:
    """Draw the experiment's quantities against iterations and seconds, a column for each setting.

    Lines are medians over the starts, bands their range.
    """
    grid = experiment.grid()
    rows = [(quantity, clock) for quantity in experiment.quantities for clock in _CLOCKS]
    figure = matplotlib.figure.Figure(figsize=(4.2 * len(grid), 2.7 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), len(grid), squeeze=False, sharey="row")
    for column, setting in enumerate(grid):
        for row, (quantity, clock) in enumerate(rows):
            ax = axes[row, column]
            for i, method in enumerate(experiment.compared()):
                _band(ax, at(frame, setting, method), quantity, clock, method, f"C{i}")
            ax.set(yscale="log", xlabel=_CLOCKS[clock], ylabel=QUANTITIES[quantity] if column == 0 else None)
            ax.grid(alpha=0.3)
        axes[0, column].set_title(f"{setting_name(setting)}, {at(frame, setting)['seed'].n_unique()} starts")
    _legend(figure, axes[0, 0])
    _save(figure, path)


def sharpness(experiment: Experiment, frame: pl.DataFrame, path: Path) -> None:
    """Draw λ_max(∇²f) along the runs, with the limit above which a minimiser repels the method as a dashed line."""
    grid = experiment.grid()
    figure = matplotlib.figure.Figure(figsize=(4.2 * len(grid), 3.2), layout="constrained")
    axes = figure.subplots(1, len(grid), squeeze=False, sharey=True)[0]
    measured = frame.filter(pl.col("sharpness").is_not_null())
    for ax, setting in zip(axes, grid, strict=True):
        for i, method in enumerate(experiment.compared()):
            _band(ax, at(measured, setting, method), "sharpness", "k", method, f"C{i}")
        for i, spec in enumerate(m for m in experiment.methods if m.role == "compared"):
            if (limit := spec.solver().sharpness_limit) is not None:
                ax.axhline(limit, color=f"C{i}", linestyle="--", linewidth=1)
        ax.set(xlabel="iteration", xscale="symlog", yscale="log", xlim=(0, None), title=setting_name(setting))
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("λ_max(∇²f); dashed: stability limit")
    _legend(figure, axes[0])
    _save(figure, path)


def _band(ax: matplotlib.axes.Axes, runs: pl.DataFrame, quantity: str, clock: str, label: str, color: str) -> None:
    statistics = (
        runs.group_by("k", maintain_order=True)
        .agg(
            pl.col("seconds").median(),
            pl.col(quantity).median().alias("median"),
            pl.col(quantity).min().alias("low"),
            pl.col(quantity).max().alias("high"),
        )
        .sort("k")
        .with_columns(pl.col("median", "low", "high").clip(lower_bound=_FLOOR if quantity == "gap" else None))
    )
    x = statistics[clock].to_numpy()
    ax.plot(x, statistics["median"].to_numpy(), color=color, label=label, linewidth=1.5)
    ax.fill_between(x, statistics["low"].to_numpy(), statistics["high"].to_numpy(), color=color, alpha=0.2, linewidth=0)


def _legend(figure: matplotlib.figure.Figure, ax: matplotlib.axes.Axes) -> None:
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=8)


def _save(figure: matplotlib.figure.Figure, path: Path) -> None:
    temporary = path.with_name(f".{path.name}")
    figure.savefig(temporary, format="png", dpi=110)
    temporary.replace(path)

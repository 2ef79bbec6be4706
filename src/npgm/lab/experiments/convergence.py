"""The figure of most reports: how the quantities of an experiment fall with iterations and seconds."""

from __future__ import annotations

import math

import numpy as np
import polars as pl

from npgm._common.array import Floats
from npgm.lab.experiments.spec import Experiment, Setting
from npgm.lab.experiments.summary import at, curve, setting_name
from npgm.lab.plot import Ends, Line, Panel, Plot, numbers

POINTS = 200
"""The points of a curve that are drawn at most, evenly spread over its length; the runs have all."""
COLUMNS = 3
"""The settings that are side by side at most."""
BEYOND = 100.0
"""By how many times a curve may exceed its start, and a band the curves, before a logarithmic axis is cut there."""


def plot(experiment: Experiment, frame: pl.DataFrame) -> Plot:
    """Return the experiment's quantities against iterations and seconds.

    Each setting has a column, with at most `COLUMNS` side by side; a single one has a column for the iterations and one
    for the seconds. Lines and bands are those of `curve`. Scales are logarithmic, but for the accuracy, for losses on a
    linear scale, on which few that failed leave at the top, and for epochs.
    """
    grid = experiment.grid()
    columns = math.ceil(len(grid) / math.ceil(len(grid) / COLUMNS))
    parts = [grid[i : i + columns] for i in range(0, len(grid), columns)]
    rows: list[list[Panel]] = []
    for quantity in experiment.quantities:
        ylim = _ends(experiment, frame, quantity)
        if len(grid) == 1:
            places = [[(grid[0], "k"), (grid[0], "seconds")]]
        else:
            places = [[(setting, clock) for setting in part] for clock in ("k", "seconds") for part in parts]
        for row in places:
            titled = not rows or len(parts) > 1
            rows.append([
                _panel(experiment, frame, setting, quantity, clock, ylim if j == 0 else None,
                       title=titled and clock == row[0][1])
                for j, (setting, clock) in enumerate(row)
            ])  # fmt: skip
    return Plot(rows=rows, height=2.7)


def band(
    experiment: Experiment, runs: pl.DataFrame, quantity: str, clock: str, label: str, *, log: bool
) -> Line | None:
    """Return the line of a method, thinned to `POINTS`, with the band of `curve`; None if there is nothing to show.

    Args:
        runs: those of the method on one setting.
        clock: the column against which it is shown, ``"k"`` or ``"seconds"``.
        log: whether that axis is logarithmic.
    """
    points = curve(experiment, runs.filter(pl.col(quantity).is_not_null()), quantity)
    if log:
        points = points.filter(pl.col(clock) > 0)
    if points.is_empty():
        return None
    chosen = _spread(points[clock].to_numpy(), logarithmic=log)
    x, y, low, high = (numbers(points[name].to_numpy()[chosen]) for name in (clock, "middle", "low", "high"))
    return Line(label=label, x=x, y=y) if low == high else Line(label=label, x=x, y=y, low=low, high=high)


def _panel(
    experiment: Experiment,
    frame: pl.DataFrame,
    setting: Setting,
    quantity: str,
    clock: str,
    ylim: Ends | None,
    *,
    title: bool,
) -> Panel:
    """Return a panel, the first of a row if it has a ``ylim``."""
    log = experiment.clock == "iteration"
    known = experiment.known[quantity]
    lines = [
        line
        for label in experiment.compared()
        if (line := band(experiment, at(frame, setting, label), quantity, clock, label, log=log)) is not None
    ]
    return Panel(
        lines=lines,
        title=_title(experiment, frame, setting) if title else "",
        xlabel=experiment.clock if clock == "k" else clock,
        ylabel=known.symbol if ylim is not None else "",
        xscale="log" if log else "linear",
        yscale="linear" if known.linear else "log",
        xlim=(1.0, None) if log and any(line.x[0] == 1.0 for line in lines) and clock == "k" else (None, None),
        ylim=ylim or (None, None),
    )


def _title(experiment: Experiment, frame: pl.DataFrame, setting: Setting) -> str:
    number = at(frame, setting)["seed"].n_unique()
    starts = experiment.starts_are if number != 1 else experiment.starts_are.removesuffix("s")
    return ", ".join(filter(None, [setting_name(setting), f"{number} {starts}"]))


def _ends(experiment: Experiment, frame: pl.DataFrame, quantity: str) -> Ends:
    """Return the ends of the axis of a quantity where single runs that failed would set them, None elsewhere."""
    runs = frame.filter(pl.col("method").is_in(experiment.compared()))
    known = experiment.known[quantity]
    if known.linear:
        return (None, None) if known.highest is not None else _without_failures(runs[quantity].to_numpy())
    curves = [
        curve(experiment, at(runs, setting, label), quantity).select("middle", "high").to_numpy()
        for setting in experiment.grid()
        for label in experiment.compared()
    ]
    return None, _without_divergence([points for points in curves if len(points)])


def _without_failures(losses: Floats) -> Ends:
    """Cut an axis above nine tenths of the losses where few others, of trainings that failed, would set its scale."""
    losses = losses[np.isfinite(losses)]
    if losses.size:
        low, high = np.quantile(losses, (0.0, 0.9))
        if losses.max() > low + 3.0 * (high - low) and high > low:
            return float(low - 0.05 * (high - low)), float(high + 0.1 * (high - low))
    return None, None


def _without_divergence(curves: list[Floats]) -> float | None:
    """Cut an axis where curves of runs that diverge exceed `BEYOND` times their start, and bands as much of the curves.

    Args:
        curves: the middle and the upper end of the band of each method.
    """
    most = max((min(np.nanmax(c[:, 0]), BEYOND * c[0, 0]) for c in curves if np.isfinite(c[0, 0])), default=np.inf)
    beyond = any((c > BEYOND * most).any() for c in curves)
    return float(BEYOND * most) if beyond and np.isfinite(most) else None


def _spread(x: Floats, *, logarithmic: bool) -> Floats:
    """Return the indices of `POINTS` ascending values, or of fewer where there are not so many, evenly spread."""
    space = np.geomspace if logarithmic else np.linspace
    return np.unique(np.searchsorted(x, space(x[0], x[-1], POINTS)).clip(0, len(x) - 1))

"""The figures of an experiment."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from npgm._common.array import Floats
from npgm.kernels import registry
from npgm.lab.experiments.solving.experiment import SolvingExperiment, solver
from npgm.lab.experiments.spec import Experiment
from npgm.lab.experiments.summary import LINEAR, at, curve, setting_name
from npgm.lab.style import FAINT, INK, STYLES, Style, blank, drawing, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 400
"""The points of a curve that are drawn at most, evenly spread over its length; the runs have all."""
_FEW = 20
"""Points that are shown as such, for a line of one or two would not be seen."""


@drawing()
def convergence(experiment: Experiment, frame: pl.DataFrame, path: Path) -> None:
    """Draw the experiment's quantities against iterations and seconds.

    Each setting has a column; a single one has a column for the iterations and one for the seconds. Lines and bands are
    those of `curve`. Scales are logarithmic, but for the accuracy, for losses on a linear scale, on which few
    that failed leave at the top, and for epochs.
    """
    clocks = {"k": experiment.clock, "seconds": "seconds"}
    grid = experiment.grid()
    shape = (2 * len(experiment.quantities), len(grid)) if len(grid) > 1 else (len(experiment.quantities), 2)
    figure = blank(4.4 * shape[1], 2.7 * shape[0])
    axes = figure.subplots(*shape, squeeze=False, sharey="row")
    for setting, column in zip(grid, axes.T if len(grid) > 1 else [axes.ravel()], strict=True):
        panels = itertools.product(experiment.quantities, clocks.items())
        for ax, (quantity, (clock, unit)) in zip(column, panels, strict=True):
            ax.set(xlabel=unit)
            _scale(ax, x=experiment.clock == "iteration", y=quantity not in LINEAR)
            for style, method in zip(STYLES, experiment.compared(), strict=False):
                _band(ax, experiment, at(frame, setting, method), quantity, clock, method, style)
            _label_few_decades(ax)
            if ax in axes[:, 0]:
                ax.set_ylabel(experiment.symbols[quantity])
        number = at(frame, setting)["seed"].n_unique()
        starts = experiment.starts_are if number != 1 else experiment.starts_are.removesuffix("s")
        column[0].set_title(", ".join(filter(None, [setting_name(setting), f"{number} {starts}"])))
    compared = frame.filter(pl.col("method").is_in(experiment.compared()))
    for quantity, row in zip(
        np.repeat(experiment.quantities, len(axes) // len(experiment.quantities)), axes, strict=True
    ):
        if quantity in LINEAR and quantity.endswith("_loss"):
            _leave_out_failures(row[0], compared[quantity].to_numpy())
    save(figure, path)


@drawing()
def sharpness(experiment: SolvingExperiment, frame: pl.DataFrame, path: Path) -> None:
    """Draw λ_max(∇²f) along the runs, with the limit above which a minimiser repels the method as a thin line."""
    grid = experiment.grid()
    figure = blank(4.4 * len(grid), 3.2)
    axes = figure.subplots(1, len(grid), squeeze=False, sharey=True)[0]
    measured = frame.filter(pl.col("sharpness").is_not_null())
    for ax, setting in zip(axes, grid, strict=True):
        ax.set(xlabel="iteration", title=setting_name(setting))
        _scale(ax, x=True, y=True)
        for style, spec in zip(STYLES, (m for m in experiment.methods if m.role == "compared"), strict=False):
            _band(ax, experiment, at(measured, setting, spec.label), "sharpness", "k", spec.label, style)
            if (limit := solver(spec).sharpness_limit) is not None:
                ax.axhline(limit, color=style.color, linestyle=style.dashes, linewidth=0.7)
    axes[0].set_ylabel("λ_max(∇²f); thin: stability limit")
    save(figure, path)


@drawing()
def curvature(experiment: Experiment, frame: pl.DataFrame, path: Path) -> None:
    """Draw ‖∇²f‖ and L_a against ‖∇f‖ at the points of the runs: of all, and of those after the first steps."""
    first = experiment.first_steps
    figure = blank(9.6, 6.4)
    axes = figure.subplots(2, 2, sharex="row")
    for row, (title, points) in zip(
        axes, {"all points": frame, f"after {first} steps": frame.filter(pl.col("k") > first)}.items(), strict=True
    ):
        for ax, quantity in zip(row, ("hessian_norm", "smoothness"), strict=True):
            ax.set(xlabel=experiment.symbols["gradient_norm"], ylabel=experiment.symbols[quantity], title=title)
            _scale(ax, x=True, y=True)
            for style, label in zip(STYLES, experiment.compared(), strict=False):
                own = points.filter((pl.col("method") == label) & (pl.col(quantity) > 0)).sort("gradient_norm")
                x, y = own["gradient_norm"].to_numpy(), own[quantity].to_numpy()
                ax.plot(x, y, color=style.color, linestyle="none", marker=".", label=label)
            _label_few_decades(ax)
    save(figure, path)


NEAR = 0.1
"""The last value, above the least, up to which a stepsize counts as one that trains."""


@drawing()
def basin(experiment: Experiment, frame: pl.DataFrame, path: Path) -> None:
    """Draw the last value of the measure against the ratio of the stepsize to the method's own; see `Results.basin`."""
    figure = blank(6.6, 4.2)
    ax = figure.subplots()
    ax.set(xlabel="γ, times that of the table", ylabel=f"last {experiment.symbols[experiment.measure]}")
    ax.set_xscale("log", base=2)
    ax.grid(color=FAINT, linewidth=0.6)
    finite = frame.filter(pl.col("last").is_finite())
    if not finite.is_empty():  # where trainings fail, the curves leave at the top
        low, high = np.quantile(finite["last"].to_numpy(), (0.0, 0.8))
        ax.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low) if high > low else None)
    for style, label in zip(STYLES, experiment.compared(), strict=False):
        runs = finite.filter(method=label).sort("times")
        x, y = runs["times"].to_numpy(), runs["last"].to_numpy()
        ax.plot(x, y, color=style.color, linestyle=style.dashes, label=label, marker=".")
    save(figure, path)


@drawing()
def kernels(path: Path) -> None:
    """Draw h and the preconditioner h*' of every registered kernel, with the identity and hard clipping in ink."""
    figure = blank(11.0, 5.6)
    left, right = figure.subplots(1, 2)
    y = np.linspace(0.0, 5.0, 501)
    styles = itertools.cycle(STYLES)
    for key, cls in sorted(registry.items()):
        kernel = cls()
        compared = {"quad": Style(INK, "-"), "huber": Style(INK, (0, (1, 1.5)))}  # gradient descent and hard clipping
        color, dashes = compared.get(key) or next(styles)
        x = np.linspace(0.0, 1.0, 1001) * min(kernel.radius, 3.0)
        with np.errstate(all="ignore"):
            h = kernel(x)
        end = np.searchsorted(h, 4.0) + 1
        left.plot(x[:end], h[:end], color=color, linestyle=dashes, label=key)
        right.plot(y, kernel.precondition(y), color=color, linestyle=dashes, label=key)
    left.set(xlabel="|x|", title="h(x)", ylim=(0.0, 4.0))
    right.set(xlabel="|y|", title="preconditioner |h*'(y)|", ylim=(0.0, 5.0))
    for ax in (left, right):
        ax.grid(color=FAINT, linewidth=0.6)
    save(figure, path)


@drawing()
def noise(x: Floats, dual: Floats, variance: Floats, path: Path) -> None:
    """Draw the noise of Theorem 3.1 and the variance of a stochastic gradient over the line, as of Example 3.3."""
    figure = blank(7.5, 3.6)
    ax = figure.subplots()
    for values, label, style in ((variance, "E|g − f′|²", STYLES[1]), (dual, "E φ(∇φ*(f′) − ∇φ*(g))", STYLES[0])):
        ax.plot(x, values, color=style.color, linestyle=style.dashes, label=label)
    ax.set(xlabel="x")
    _scale(ax, x=False, y=True)
    save(figure, path)


def _scale(ax: Axes, *, x: bool, y: bool) -> None:
    """Make axes logarithmic, with a grid line a decade or less often."""
    from matplotlib.ticker import LogLocator, NullLocator

    for logarithmic, axis, kind in ((x, ax.xaxis, "x"), (y, ax.yaxis, "y")):
        if logarithmic:
            ax.set(**{f"{kind}scale": "log"})
            axis.set_major_locator(LogLocator(numticks=7))
            axis.set_minor_locator(NullLocator())
    ax.grid(color=FAINT, linewidth=0.6)


def _leave_out_failures(ax: Axes, losses: Floats) -> None:
    """Cut an axis above nine tenths of the losses where few others, of trainings that failed, would set its scale."""
    losses = losses[np.isfinite(losses)]
    if losses.size:
        low, high = np.quantile(losses, (0.0, 0.9))
        if losses.max() > low + 3.0 * (high - low):
            ax.set_ylim(low - 0.05 * (high - low), high + 0.1 * (high - low) if high > low else None)


def _label_few_decades(ax: Axes) -> None:
    """Let logarithmic axes of less than two decades have ticks within them; called when all is drawn."""
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    for axis, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        if axis.get_scale() == "log" and high < 100.0 * low:
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))


def _band(
    ax: Axes,
    experiment: Experiment,
    runs: pl.DataFrame,
    quantity: str,
    clock: str,
    label: str,
    style: Style,
) -> None:
    points = curve(experiment, runs, quantity)
    if ax.get_xscale() == "log":
        points = points.filter(pl.col(clock) > 0)
    if points.is_empty():
        return
    chosen = _spread(points[clock].to_numpy(), logarithmic=ax.get_xscale() == "log")
    x, middle, low, high = (points[name].to_numpy()[chosen] for name in (clock, "middle", "low", "high"))
    color, dashes = style
    ax.plot(x, middle, color=color, linestyle=dashes, label=label, marker="." if len(x) <= _FEW else None)
    ax.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)


def _spread(x: Floats, *, logarithmic: bool) -> Floats:
    """Return the indices of `POINTS` ascending values, or of fewer where there are not so many, evenly spread."""
    space = np.geomspace if logarithmic else np.linspace
    return np.unique(np.searchsorted(x, space(x[0], x[-1], POINTS)).clip(0, len(x) - 1))

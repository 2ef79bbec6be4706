"""A figure as plain data, which JSON holds, so that a change of its look needs no results; and how it is drawn."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npgm.lab.files import replacing
from npgm.lab.style import FAINT, Style, blank, drawing, save, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Numbers = list[float]
Ends = tuple[float | None, float | None]
_FEW = 20
"""Points that are shown as such, for a line of one or two would not be seen."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """The curve of a method, with the band from ``low`` to ``high`` if there is one.

    Args:
        label: the method, on which colour and dashes depend.
        x, y: the points.
        low, high: the ends of the band at each of them.
        look: ``"line"``, ``"steps"``, ``"thin steps"``, ``"points"`` without a line, or ``"level"`` for a thin
            horizontal line at y[0].
    """

    label: str
    x: Numbers = field(default_factory=list)
    y: Numbers
    low: Numbers = field(default_factory=list)
    high: Numbers = field(default_factory=list)
    look: str = "line"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The axes of a figure.

    Args:
        lines: what they show.
        title, xlabel, ylabel: what is written; a panel without ``ylabel`` has the y axis of the first of its row.
        xscale, yscale: ``"linear"``, ``"log"``, or ``"log2"``, whose ticks are powers of two.
        xlim, ylim: the ends of the axes; where None they follow from the lines.
    """

    lines: list[Line]
    title: str = ""
    xlabel: str = ""
    ylabel: str = ""
    xscale: str = "linear"
    yscale: str = "linear"
    xlim: Ends = (None, None)
    ylim: Ends = (None, None)


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A figure: rows of panels, of which a row may have fewer than others, each of so many inches."""

    rows: list[list[Panel]]
    width: float = 4.4
    height: float = 3.2

    @classmethod
    def of(cls, content: dict[str, Any]) -> Plot:
        """Return the figure that JSON has."""
        rows = [
            [Panel(**{**panel, "lines": [Line(**line) for line in panel.get("lines", [])]}) for panel in row]
            for row in content["rows"]
        ]
        return cls(**{**content, "rows": rows})

    @drawing()
    def draw(self, path: Path) -> None:
        """Draw the figure into a file, in the format of its suffix."""
        columns = max(map(len, self.rows))
        figure = blank(self.width * columns, self.height * len(self.rows))
        axes = figure.subplots(len(self.rows), columns, squeeze=False)
        looks = styles(line.label for row in self.rows for panel in row for line in panel.lines)
        for panels, row in zip(self.rows, axes, strict=True):
            for ax in row[len(panels) :]:
                ax.set_axis_off()
            for panel, ax in zip(panels, row, strict=False):
                if ax is not row[0] and not panel.ylabel:
                    ax.sharey(row[0])
                    ax.tick_params(labelleft=False)
                _prepare(ax, panel)
                for line in panel.lines:
                    _draw(ax, line, looks[line.label])
            for panel, ax in zip(panels, row, strict=False):
                ax.set_xlim(*panel.xlim)
                if ax is row[0] or panel.ylabel:
                    ax.set_ylim(*panel.ylim)
                _label_few_decades(ax)
        save(figure, path)


def write(plots: dict[str, Plot], path: Path) -> None:
    """Write figures by name into one file of JSON, with numbers of four digits, since a figure shows three."""
    content = json.dumps({name: _plain(asdict(plot)) for name, plot in plots.items()}, ensure_ascii=False)
    with replacing(path) as file:
        file.write(content.replace('{"label"', '\n{"label"').encode() + b"\n")


def read(path: Path) -> dict[str, Plot]:
    """Return the figures of a file that `write` wrote, by name."""
    return {name: Plot.of(plot) for name, plot in json.loads(path.read_text(encoding="utf-8")).items()}


def numbers(values: Iterable[float]) -> Numbers:
    """Return values as a line has them: what is not finite, and has no place in a figure, as NaN."""
    return [float(value) if math.isfinite(value) else math.nan for value in values]


def _plain(value: Any) -> Any:
    """Return what JSON has for a value: short numbers, null for NaN, and no entry that is empty."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items() if part not in ("", [], (None, None))}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        short = float(f"{value:.4g}")
        return None if math.isnan(short) else int(short) if short.is_integer() and abs(short) < 1e6 else short
    return value


def _prepare(ax: Axes, panel: Panel) -> None:
    """Write what is around axes, and scale them; a logarithmic one has a grid line a decade or less often."""
    from matplotlib.ticker import LogLocator, NullLocator

    ax.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel)
    ax.grid(color=FAINT, linewidth=0.6)
    for scale, axis, kind in ((panel.xscale, ax.xaxis, "x"), (panel.yscale, ax.yaxis, "y")):
        if scale == "log2":
            getattr(ax, f"set_{kind}scale")("log", base=2)
            axis.set_major_formatter("{x:g}")
        elif scale == "log":
            getattr(ax, f"set_{kind}scale")("log")
            axis.set_major_locator(LogLocator(numticks=7))
            axis.set_minor_locator(NullLocator())


def _draw(ax: Axes, line: Line, style: Style) -> None:
    color, dashes = style
    if line.look == "level":
        ax.axhline(line.y[0], color=color, linestyle=dashes, linewidth=0.7)
        return
    x, y = [[math.nan if v is None else v for v in values] for values in (line.x, line.y)]
    few = len(x) <= _FEW and line.look == "line"
    (drawn,) = ax.plot(x, y, color=color, linestyle=dashes, label=line.label, marker="." if few else None)
    if line.look == "points":
        drawn.set(linestyle="none", marker=".")
    if line.look.endswith("steps"):
        drawn.set(drawstyle="steps-post", linewidth=0.8 if line.look.startswith("thin") else 1.6)
    if line.low:
        low, high = [[math.nan if v is None else v for v in values] for values in (line.low, line.high)]
        ax.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)


def _label_few_decades(ax: Axes) -> None:
    """Let logarithmic axes of less than two decades have ticks within them; called when all is drawn."""
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    for axis, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        if getattr(axis.get_transform(), "base", None) == 10.0 and high < 100.0 * low:
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))

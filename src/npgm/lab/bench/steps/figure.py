"""The results as one figure: every aim, and growth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from npgm._common import validate
from npgm.lab.bench.steps.contenders import GROWTH
from npgm.lab.bench.steps.results import PAIRS, Ratio, Result, Results
from npgm.lab.style import FAINT, INK, PAPER, STYLES, blank, drawing, save

_MARKERS = ("o", "s", "^", "D", "v", "P")


def check_path(path: Path) -> None:
    """Raise a ValueError unless a file's name ends with a format in which a figure can be written."""
    formats = Figure().canvas.get_supported_filetypes()
    validate.choice("format of a figure", path.suffix.removeprefix("."), formats)


@drawing()
def draw(results: Results, path: Path) -> bool:
    """Draw each ratio that has an aim, its median and quartiles, and beside them the growth.

    Returns:
        Whether there was anything to draw.
    """
    aimed = [(result, ratio) for result in results.layouts for ratio in result.ratios() if ratio.aim is not None]
    panels = bool(aimed) + bool(results.growth)
    if not panels:
        return False
    figure = blank(7.0 * panels, 7.0)
    axes = list(figure.subplots(1, panels, squeeze=False)[0])
    if aimed:
        _aims(axes.pop(0), aimed)
    if results.growth:
        _growth(axes.pop(0), results.growth)
    save(figure, path)
    return True


def _aims(ax: Axes, aimed: Sequence[tuple[Result, Ratio]]) -> None:
    """Draw ratios as multiples of their aims, one row for a pair; colours are layouts, markers dtypes and threads."""
    rows = [pair for pair in PAIRS if any((ratio.step, ratio.against) == pair for _, ratio in aimed)]
    layouts = list(dict.fromkeys(result.case.layout.title for result, _ in aimed))
    settings = list(dict.fromkeys(result.case.setting for result, _ in aimed))
    cases = list(dict.fromkeys(result.case for result, _ in aimed))
    for result, ratio in aimed:
        assert ratio.aim is not None
        low, middle, high = (quartile / ratio.aim for quartile in ratio.quartiles)
        inside = 0.8 * ((cases.index(result.case) + 0.5) / len(cases) - 0.5)
        y = rows.index((ratio.step, ratio.against)) + inside
        color = STYLES[layouts.index(result.case.layout.title)].color
        marker = _MARKERS[settings.index(result.case.setting) % len(_MARKERS)]
        ax.plot([low, high], [y, y], color=color, linewidth=1.5)
        ax.plot(middle, y, color=color, marker=marker, markersize=4.5, markerfacecolor=PAPER)
    aims = {(ratio.step, ratio.against): ratio.aim for _, ratio in aimed}
    ax.set_yticks(range(len(rows)), [f"{step} / {against}\naim {aims[step, against]:.2f}" for step, against in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    for edge in range(1, len(rows)):
        ax.axhline(edge - 0.5, color=FAINT, linewidth=0.8)
    ax.axvline(1.0, color=INK, linewidth=1)
    ax.set(xscale="log", xlabel="ratio of times / aim: met left of the line", title="Against the aims")
    _plain_numbers(ax.xaxis)
    ax.grid(axis="x", color=FAINT, linewidth=0.6)
    handles = [Line2D([], [], color=STYLES[i].color, linewidth=3, label=name) for i, name in enumerate(layouts)]
    handles += [
        Line2D([], [], color=INK, marker=_MARKERS[i % len(_MARKERS)], linestyle="", markerfacecolor=PAPER, label=name)
        for i, name in enumerate(settings)
    ]
    ax.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.4, -0.1), ncols=2, frameon=False)


def _growth(ax: Axes, growth: Sequence[Result]) -> None:
    """Draw each contender's time over that of the memory loop, against the number of parameters."""
    against, *others = GROWTH
    devices = list(dict.fromkeys(result.case.device for result in growth))
    for device, filled in zip(devices, ("full", "none"), strict=False):
        for name, style, marker in zip(others, STYLES, _MARKERS, strict=False):
            pairs = [(r.case.layout.size, r.ratio(name, against)) for r in growth if r.case.device == device]
            points = [(size, *ratio.quartiles) for size, ratio in pairs if ratio is not None]
            if points:
                n, low, middle, high = zip(*points, strict=True)
                label = name if len(devices) == 1 else f"{name}, {device}"
                ax.plot(n, middle, color=style.color, linestyle=style.dashes, marker=marker, markersize=4.5,
                        fillstyle=filled, label=label)  # fmt: skip
                ax.fill_between(n, low, high, color=style.color, alpha=0.2, linewidth=0)
    ax.axhline(1.0, color=INK, linewidth=1)
    ax.set(xscale="log", yscale="log", xlabel="parameters, in one tensor", ylabel=f"time of a step / of {against}",
           title=f"Growth: {growth[0].case.setting}")  # fmt: skip
    _plain_numbers(ax.yaxis)
    ax.grid(color=FAINT, linewidth=0.6)


def _plain_numbers(axis: Axis) -> None:
    axis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())

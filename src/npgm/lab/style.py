"""How figures look: colours that the colour-blind can tell, dashes, a name at each line, and SVG for light and dark."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npgm.lab.files import replacing

if TYPE_CHECKING:  # most processes of an experiment draw nothing, and matplotlib is half of what they would import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

INK, FAINT, PAPER = "#222222", "#dddddd", "#ffffff"
_BLUE, _VERMILLION, _GREEN, _PURPLE, _ORANGE, _SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"
_DARK = {
    INK: "#e4e4e4", FAINT: "#3a3e48", PAPER: "#16181d",
    _BLUE: "#5f8dff", _VERMILLION: "#f57f2e", _GREEN: "#2fc498", _SKY: "#9ad8ff",
}  # fmt: skip
"""What takes the place of a colour where a reader prefers dark; the other colours stay."""


class Style(NamedTuple):
    """The look of a line."""

    color: str
    dashes: Any


_COLORS = (_BLUE, _VERMILLION, _GREEN, _PURPLE, _ORANGE, _SKY)
_DASHES: tuple[Any, ...] = ("-", (0, (6, 1.5)), (0, (6, 1.5, 1, 1.5)), (0, (1.5, 1)))
STYLES = [Style(_COLORS[i % 6], _DASHES[(i + i // 6) % 4]) for i in range(24)]
"""Lines that differ from their neighbours in colour (Okabe and Ito's) and in dashes, and from all others in one."""
_FAMILIES = {
    _VERMILLION: ("SGDm", "SGD", "clip + SGDm", "clipped SGD"),
    _BLUE: ("iHGDm", "iHGD", "iHGDm, auto", "NGDm"),
    _GREEN: ("sHGDm", "sHGD", "sNGDm", "sNGDm, auto"),
    _ORANGE: ("AdamW", "Adam", "clip + AdamW", "Nesterov, tuned"),
    _PURPLE: ("spectral", "sqrt, after", "cosh, after", "root, before"),
    _SKY: ("auto", "npgm, lr auto", "AdGD-accel", "sqrt, 0.95"),
    INK: ("Muon", "Muon, 0.95", "L-BFGS-B", "CG"),
}
_ALSO = {
    "GDm": "SGDm", "GD": "SGD", "clipping": "clipped SGD", "NGD": "NGDm", "GDm, tuned": "SGDm", "iHGDm, tuned": "iHGDm",
    "proximal gradient": "SGD", "sqrt, before": "spectral", "default": "auto", "quadratic φ": "npgm, lr auto",
    "heavy ball": "iHGDm",
    "iHGDm, before": "iHGDm", "iHGDm, after": "iHGD", "sHGDm, before": "sHGDm", "sHGDm, after": "sHGD",
    "NGDm, before": "NGDm", "NGDm, after": "iHGDm, auto",
    "NGDm, before, γ/2": "sHGDm", "NGDm, before, γ/4": "sHGD",
    "sNGDm, before": "sNGDm", "sNGDm, after": "sNGDm, auto",
    "spectral, before": "spectral", "spectral, after": "sqrt, after",
    "iHGDm, before, γ/2": "spectral", "iHGDm, before, γ/4": "sqrt, after",
    "without momentum": "AdGD-accel", "backtracking": "sqrt, 0.95", "BFGS": "CG", "spectral, limit": "sqrt, after",
    "SpectralGD": "spectral", "sNGDm before": "sHGD", "sNGDm before, limit": "npgm, lr auto",
    "ZClip + AdamW": "Adam", "AdaGC + AdamW": "Nesterov, tuned", "AutoClip + AdamW": "Muon",
}  # fmt: skip
METHODS = {
    label: Style(color, dashes)
    for color, labels in _FAMILIES.items()
    for label, dashes in zip(labels, _DASHES, strict=True)
}
"""The look of each method in all figures: a family has a colour, and its members have dashes."""
METHODS |= {label: METHODS[other] for label, other in _ALSO.items()}


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """Return the look of each method of a figure: that of `METHODS`, and of others one that no other of them has."""
    looks = {label: METHODS.get(label) for label in labels}
    free = (style for style in STYLES if style not in looks.values())
    return {label: look or next(free) for label, look in looks.items()}


_SIZE = 9.0
_SAMPLE = 22.0
"""Points of a line that its name shows."""
_LOOK: Any = {
    "axes.edgecolor": INK, "axes.facecolor": PAPER, "axes.labelcolor": INK, "axes.titlesize": "medium",
    "figure.facecolor": PAPER, "font.size": _SIZE, "lines.linewidth": 1.6, "svg.hashsalt": "npgm", "text.color": INK,
    "xtick.color": INK, "ytick.color": INK,
}  # fmt: skip


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Let figures be made and saved in this look; a context, and a decorator."""
    import matplotlib as mpl

    with mpl.rc_context(_LOOK):
        yield


def blank(width: float, height: float) -> Figure:
    """Return an empty figure of so many inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of the path's suffix, PNG if it has none, with a name at the end of each line."""
    figure.draw_without_rendering()  # so that the axes have their places
    for ax in figure.axes:
        _name_lines(ax)
    file_format = path.suffix.removeprefix(".") or "png"
    content = io.BytesIO()
    figure.savefig(content, format=file_format, dpi=110, metadata={"Date": None} if file_format == "svg" else None)
    written = _with_dark_mode(content.getvalue()) if file_format == "svg" else content.getvalue()
    with replacing(path) as file:
        file.write(written)


def _name_lines(ax: Axes) -> None:
    """Write the names of an axes' lines beside it, each after a piece of its line, at the heights of their ends.

    Of lines that leave through the top, the first one has the highest name.
    """
    ends = []
    for line in ax.get_lines():
        label, points = str(line.get_label()), np.asarray(line.get_xydata())
        finite = points[np.isfinite(points).all(axis=1)]
        if not label.startswith("_") and len(finite):
            x, y = ax.transAxes.inverted().transform(ax.transData.transform(finite[-1]))
            ends.append((min(max(y, 0.0), 1.0), -x, label, line))
    ends.sort(key=lambda end: end[:3])
    gap = 1.15 * _SIZE * ax.figure.dpi / 72.0 / ax.bbox.height
    heights = _apart([end[0] for end in ends], gap)
    for height, (*_, line) in zip(heights, ends, strict=True):
        _name(ax, height, line)


def _name(ax: Axes, height: float, line: Line2D) -> None:
    """Write the name of a line at a height beside its axes, after a piece of it."""
    from matplotlib.lines import Line2D
    from matplotlib.offsetbox import AnnotationBbox, DrawingArea, HPacker, TextArea

    area = DrawingArea(_SAMPLE, _SIZE)
    piece = Line2D([0.0, _SAMPLE / 2, _SAMPLE], [_SIZE / 2] * 3)
    piece.update_from(line)  # its place, too
    piece.set(transform=area.get_transform(), clip_box=None, clip_path=None, label="_piece", markevery=[1])
    area.add_artist(piece)
    name = TextArea(str(line.get_label()), textprops={"color": line.get_color()})
    box = HPacker(children=[area, name], pad=0.0, sep=3.0, align="center")
    ax.add_artist(AnnotationBbox(box, (1.0, height), (4.0, 0.0), xycoords="axes fraction", boxcoords="offset points",
                                 box_alignment=(0.0, 0.5), pad=0.0, frameon=False, annotation_clip=False))  # fmt: skip


def _apart(heights: list[float], gap: float) -> list[float]:
    """Return ascending heights moved so that neighbours are a gap apart, within [0, 1] if there is room."""
    moved: list[float] = []
    for height in heights:
        moved.append(max(height, moved[-1] + gap) if moved else height)
    top = max(1.0, gap * (len(moved) - 1))
    for i in reversed(range(len(moved))):
        moved[i] = min(moved[i], top - gap * (len(moved) - 1 - i))
    return moved


def _with_dark_mode(svg: bytes) -> bytes:
    """Return an SVG with a style sheet that exchanges the colours where dark is preferred."""
    rules = "".join(
        f'[style*="{part}: {light}"]{{{part}:{dark}!important}}'
        for light, dark in _DARK.items()
        for part in ("stroke", "fill")
    )
    sheet = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>".encode()
    return re.sub(rb"(<svg [^>]*>)", rb"\1\n " + sheet, svg, count=1)

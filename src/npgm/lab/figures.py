"""The figures of commands: kernels, and the noise of a stochastic gradient."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from npgm._common.array import Floats
from npgm.kernels import registry
from npgm.lab.plot import Line, Panel, Plot, numbers
from npgm.lab.style import FAINT, INK, STYLES, Style, blank, drawing, save


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


def noise(x: Floats, dual: Floats, variance: Floats, path: Path) -> None:
    """Draw the noise of Theorem 3.1 and the variance of a stochastic gradient over the line, as of Example 3.3."""
    both = {"E φ(∇φ*(f′) − ∇φ*(g))": dual, "E|g − f′|²": variance}
    lines = [Line(label=label, x=numbers(x), y=numbers(values)) for label, values in both.items()]
    Plot(rows=[[Panel(lines=lines, xlabel="x", yscale="log")]], width=7.5, height=3.6).draw(path)

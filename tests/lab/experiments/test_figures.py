import dataclasses
import itertools
import re
import xml.etree.ElementTree as ET

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.offsetbox import TextArea

from npgm.lab import experiments, figures, plot, style
from npgm.lab.experiments import convergence
from npgm.lab.experiments.report import FIGURES
from pages import ROOT


def test_styles_differ_and_neighbours_in_both_respects():
    assert len(set(map(str, style.STYLES))) == len(style.STYLES)
    for one, other in itertools.pairwise(style.STYLES):
        assert one.color != other.color
        assert one.dashes != other.dashes


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12).map(sorted), st.floats(0.001, 0.2))
def test_names_are_apart_in_order_and_within(heights, gap):
    moved = style._apart(heights, gap)
    assert all(b - a >= gap - 1e-12 for a, b in itertools.pairwise(moved))
    if gap * (len(heights) - 1) <= 1.0:
        assert min(moved) >= -1e-12
        assert max(moved) <= 1.0 + 1e-12
    if all(b - a >= gap for a, b in itertools.pairwise(heights)):
        assert moved == pytest.approx(heights)


def test_a_figure_is_repeatable_and_exchanges_its_colours(tmp_path):
    def drawn(path):
        with style.drawing():
            figure = Figure(layout="constrained")
            ax = figure.subplots()
            for label, (color, dashes), y in zip("abc", style.STYLES, (1.0, 1.0, np.nan), strict=False):
                ax.plot([0.0, 1.0], [0.0, y], color=color, linestyle=dashes, label=label)
            ax.axhline(0.5)
            style.save(figure, path)
        return {text.get_text() for text in ax.findobj(TextArea)}, path.read_bytes()

    names, content = drawn(tmp_path / "a.svg")
    assert names == {"a", "b", "c"}
    assert drawn(tmp_path / "b.svg")[1] == content
    ET.fromstring(content)
    sheet = re.search(rb"<style>@media \(prefers-color-scheme: dark\)(.*?)</style>", content).group(1).decode()
    body = content.decode().replace(sheet, "")
    for light, dark in style._DARK.items():
        assert f'[style*="stroke: {light}"]{{stroke:{dark}!important}}' in sheet
        assert dark not in body
    assert f"stroke: {style.STYLES[0].color}" in body
    assert drawn(tmp_path / "c")[1].startswith(b"\x89PNG")


@pytest.mark.parametrize("logarithmic", [False, True])
def test_long_curves_are_thinned_evenly(logarithmic):
    x = np.arange(1.0, 30001.0)
    chosen = convergence._spread(x, logarithmic=logarithmic)
    assert (chosen[0], chosen[-1]) == (0, len(x) - 1)
    assert 100 < len(chosen) <= convergence.POINTS
    steps = np.diff(np.log(x[chosen])) if logarithmic else np.diff(x[chosen])
    assert steps.max() <= (np.log(2.0) if logarithmic else 152.0)
    assert convergence._spread(x[:3], logarithmic=logarithmic).tolist() == [0, 1, 2]


def axes(scale="linear"):
    ax = Figure().subplots()
    ax.set(xscale=scale, yscale=scale)
    return ax


@pytest.mark.parametrize(("failed", "cut"), [(1e5, True), (np.nan, False), (2.9, False)])
def test_losses_of_failed_trainings_do_not_set_the_axis(failed, cut):
    low, high = convergence._without_failures(np.array([*np.linspace(2.0, 3.0, 19), failed]))
    assert high == pytest.approx(3.0, abs=0.1) if cut else (low, high) == (None, None)


@pytest.mark.parametrize(
    ("ends", "top"), [([1.0, 0.5], None), ([np.inf, 0.5], 100.0), ([1e9, 0.5], 1e4), ([np.nan, 0.5], None)]
)
def test_runs_that_diverge_do_not_set_the_axis(ends, top):
    """The last row is of the curve and the upper end of its band."""
    steady = np.array([[1.0, 1.0], [0.1, 0.2]])
    diverging = np.array([[1.0, 1.0], [min(ends[0], 1e9) if ends[0] > 1e3 and ends[0] < np.inf else 1.0, ends[0]]])
    assert convergence._without_divergence([steady, diverging]) == top


@pytest.mark.slow
def test_each_method_has_one_look_and_a_figure_tells_them_apart():
    for name in experiments.names():
        labels = experiments.load(name).compared()
        looks = style.styles(labels)
        assert len(set(map(str, looks.values()))) == len(labels), name
        assert all(looks[label] == style.METHODS[label] for label in labels if not label.startswith("λ")), name


def test_figures_of_the_documentation_have_their_points_beside():
    for folder in {path.parent for path in (ROOT / "docs" / "reports").rglob("*.svg")} - {ROOT / "docs/reports/bench"}:
        assert plot.read(folder / FIGURES).keys() == {path.stem for path in folder.glob("*.svg")}


@pytest.mark.parametrize(("settings", "rows"), [(1, [2]), (2, [2, 2]), (3, [3, 3]), (4, [2] * 4), (5, [3, 2] * 2)])
def test_settings_are_side_by_side_up_to_three(settings, rows):
    experiment = dataclasses.replace(
        experiments.load("auto-factorization"), settings={"rank": list(range(settings))}, presets={}
    )
    frame = pl.DataFrame({"rank": [], "method": [], "seed": [], "k": [], "seconds": [], "gap": [], "status": []})
    drawn = convergence.plot(experiment, frame.cast({"gap": pl.Float64}))
    assert [len(row) for row in drawn.rows] == rows
    assert all(bool(panel.ylabel) == (panel is row[0]) for row in drawn.rows for panel in row)


def test_a_figure_comes_back_from_json(tmp_path):
    lines = [
        plot.Line(label="GD", x=[1.0, 2.0], y=plot.numbers([3.0, np.inf]), low=[1.0, 2.0], high=[4.0, 5.0]),
        plot.Line(label="GD", y=[0.123456], look="level"),
    ]
    panel = plot.Panel(lines=lines, title="t", xlabel="x", ylabel="y", yscale="log", xlim=(1.0, None))
    written = plot.Plot(rows=[[panel, panel]])
    written.draw(tmp_path / "a.svg")
    plot.write({"a": written}, tmp_path / "a.json")
    read = plot.read(tmp_path / "a.json")["a"]
    assert (read.rows[0][0].xlim, read.rows[0][1].lines[1].y) == ([1, None], [0.1235])
    read.draw(tmp_path / "b.svg")
    plot.write({"a": read}, tmp_path / "b.json")
    assert (tmp_path / "b.json").read_bytes() == (tmp_path / "a.json").read_bytes()
    assert "GD" in (tmp_path / "b.svg").read_text()


def test_axes_of_few_decades_have_ticks_within_them():
    ax = axes("log")
    ax.plot([0.2, 0.9], [1.0, 1e5])
    plot._label_few_decades(ax)
    ax.figure.draw_without_rendering()
    low, high = ax.get_xlim()
    shown = [tick.label1.get_text() for tick in ax.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
    assert {"0.2", "0.5"} <= set(shown)
    assert all("10^" in tick.label1.get_text() for tick in ax.yaxis.get_major_ticks())


def test_the_kernels(tmp_path):
    figures.kernels(tmp_path / "kernels.svg")
    assert ET.parse(tmp_path / "kernels.svg").getroot().tag.endswith("svg")

"""The data of the chart of an experiment that a page lets one explore, as plain lists and dicts."""

from __future__ import annotations

import math
from typing import Any

import matplotlib.colors
import numpy as np
import polars as pl

from npgm.experiments.spec import Experiment
from npgm.experiments.summary import LINEAR, at, averaged, curve, setting_name

POINTS = 400
"""Points of a curve that a page holds at most, evenly spread over its length; a figure shows all."""


def convergence(experiment: Experiment, frame: pl.DataFrame) -> dict[str, Any]:
    """Return what `npgm.experiments.figures.convergence` draws, thinned and rounded.

    A curve has the values of the clocks by their names, and for the key of each quantity the lists of its middle, low
    and high values, None where they are not finite.
    """
    compared = experiment.compared()
    thinned = False
    settings = []
    for setting in experiment.grid():
        curves = []
        for method in compared:
            runs = at(frame, setting, method)
            entry: dict[str, Any] = {}
            for quantity in experiment.quantities:
                points = curve(experiment, runs, quantity)
                chosen = np.unique(np.linspace(0, max(len(points) - 1, 0), POINTS).round().astype(int))[: len(points)]
                thinned |= len(chosen) < len(points)
                points = points[chosen]
                entry |= {experiment.clock: points["k"].to_list(), "seconds": _rounded(points["seconds"], 6)}
                entry[quantity] = [_rounded(points[name]) for name in ("middle", "low", "high")]
            curves.append(entry)
        settings.append({"name": setting_name(setting), "curves": curves})
    return {
        "clocks": [experiment.clock, "seconds"],
        "quantities": [
            {"key": quantity, "label": experiment.symbols[quantity], "log": quantity not in LINEAR}
            for quantity in experiment.quantities
        ],
        "methods": [{"label": label, "color": matplotlib.colors.to_hex(f"C{i}")} for i, label in enumerate(compared)],
        "settings": settings,
        "hint": f"{averaged(experiment).capitalize()}{f', at {POINTS} points of each curve' if thinned else ''}.",
    }


def _rounded(values: pl.Series, digits: int = 4) -> list[float | None]:
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values]

"""What the report of a solver's experiment has beside the tables of every report: the sharpness along the runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import polars as pl

from npgm.lab.experiments.convergence import band
from npgm.lab.experiments.kind_report import KindReport, Picture, Section
from npgm.lab.experiments.page import table
from npgm.lab.experiments.solving.experiment import solver
from npgm.lab.experiments.spec import MethodSpec, Setting
from npgm.lab.experiments.summary import at, median_and_range, setting_name
from npgm.lab.plot import Line, Panel, Plot


class SolvingReport(KindReport):
    """The report of an experiment in which solvers minimise a problem."""

    unit: ClassVar[tuple[str, float, str]] = ("ms an iteration", 1e3, "{:.2f}")

    def sections(self) -> Iterator[Section]:
        """Yield the sharpness, if it was measured."""
        if self.experiment.sharpness_points:
            yield Section("Sharpness", (self._table(), _LIMIT), Picture(*_PICTURE, self._plot()))

    def _plot(self) -> Plot:
        """Return λ_max(∇²f) along the runs, with the limit above which a minimiser repels a method as a thin line."""
        grid = self.experiment.grid()
        labels = ["λ_max(∇²f); thin: stability limit", *[""] * (len(grid) - 1)]
        return Plot(rows=[[self._panel(*place) for place in zip(grid, labels, strict=True)]])

    def _panel(self, setting: Setting, ylabel: str) -> Panel:
        lines: list[Line] = []
        for method in self.experiment.methods:
            runs = at(self.results.frame, setting, method.label)
            if method.role == "compared" and not runs.is_empty():
                lines += filter(None, [band(self.experiment, runs, "sharpness", "k", method.label, log=True)])
                if (limit := solver(method).sharpness_limit) is not None:
                    lines.append(Line(label=method.label, y=[limit], look="level"))
        return Panel(
            lines=lines, title=setting_name(setting), xlabel="iteration", ylabel=ylabel, xscale="log", yscale="log",
            xlim=(1.0, None),
        )  # fmt: skip

    def _table(self) -> str:
        rows = (self._row(setting, method) for setting in self.experiment.grid() for method in self.experiment.methods)
        head = ("setting", "method", "stability limit", "last λ_max, converged runs", "last λ_max, other runs")
        return table(head, filter(None, rows))

    def _row(self, setting: Setting, method: MethodSpec) -> tuple[str, ...] | None:
        runs, limit = at(self.results.summary, setting, method.label), solver(method).sharpness_limit
        if limit is None or runs.is_empty():
            return None
        converged, others = (
            median_and_range(runs.filter(reached)["sharpness"], "{:.4g}")
            for reached in (pl.col("reached").is_not_null(), pl.col("reached").is_null())
        )
        return setting_name(setting), method.label, f"{limit:.0f}", converged, others


_LIMIT = (
    "Linearised at a minimiser, heavy ball is stable only up to the sharpness 2(1+β)/((1−β)γ), times λ for a "
    "reference function λφ. A preconditioner that saturates turns what would diverge into a cycle."
)
_PICTURE = ("sharpness", "λ_max(∇²f) along the runs, and the stability limits")

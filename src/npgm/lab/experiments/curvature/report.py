"""What the report of a curvature has beside the tables of every report: the norms against each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from npgm.lab.experiments.kind_report import KindReport, Picture, Section
from npgm.lab.experiments.page import table
from npgm.lab.plot import Line, Panel, Plot, numbers


class CurvatureReport(KindReport):
    """The report of an experiment in which the curvature of the loss is measured along a training."""

    def sections(self) -> Iterator[Section]:
        """Yield how ‖∇²f‖ and L_a go with ‖∇f‖."""
        yield Section("Curvature", (self._table(),), Picture("curvature", "‖∇²f‖ and L_a against ‖∇f‖", self._plot()))

    def _points(self) -> dict[str, pl.DataFrame]:
        """Return the points at which the curvature was measured: all, and those after the first steps."""
        frame, first = self.results.frame, self.experiment.first_steps
        return {"all": frame, f"after {first} steps": frame.filter(pl.col("k") > first)}

    def _plot(self) -> Plot:
        """Return ‖∇²f‖ and L_a against ‖∇f‖ at the points of the runs."""
        rows = [
            [self._panel(points, name, quantity) for quantity in ("hessian_norm", "smoothness")]
            for name, points in self._points().items()
        ]
        return Plot(rows=rows, width=4.8)

    def _panel(self, points: pl.DataFrame, name: str, quantity: str) -> Panel:
        lines = []
        for label in self.experiment.compared():
            own = points.filter((pl.col("method") == label) & (pl.col(quantity) > 0)).sort("gradient_norm")
            if not own.is_empty():
                x, y = numbers(own["gradient_norm"]), numbers(own[quantity])
                lines.append(Line(label=label, x=x, y=y, look="points"))
        return Panel(
            lines=lines, title="all points" if name == "all" else name, xlabel=self.experiment.symbol("gradient_norm"),
            ylabel=self.experiment.symbol(quantity), xscale="log", yscale="log",
        )  # fmt: skip

    def _table(self) -> str:
        rows, quantities = [], self.experiment.quantities
        for label in self.experiment.compared():
            for name, points in self._points().items():
                logs = points.filter(pl.col("method") == label).select(pl.col(*quantities).log10())
                if len(logs) < 3:
                    continue
                correlation = np.corrcoef(logs["gradient_norm"].to_numpy(), logs["hessian_norm"].to_numpy())[0, 1]
                spans = (f"{10.0 ** np.ptp(logs[quantity].to_numpy()):.3g}" for quantity in quantities)
                rows.append((label, name, len(logs), f"{correlation:.2f}", *spans))
        ratios = (f"largest {self.experiment.symbol(quantity)} over least" for quantity in quantities)
        return table(("method", "points", "number", "correlation of log ‖∇f‖ and log ‖∇²f‖", *ratios), rows)

"""What the report of a training has beside the tables of every report: in how wide a range of stepsizes it trains."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from npgm.lab.experiments.kind_report import KindReport, Picture, Section
from npgm.lab.experiments.page import table
from npgm.lab.plot import Ends, Line, Panel, Plot, numbers

NEAR = 0.1
"""The last value, above the least, up to which a stepsize counts as one that trains."""


class TrainingReport(KindReport):
    """The report of an experiment in which networks are trained."""

    def sections(self) -> Iterator[Section]:
        """Yield the range of stepsizes, if multiples of the methods' own were run."""
        if self.results.stepsize_sweep.is_empty():
            return
        symbol = self.experiment.symbol(self.experiment.measure)
        words = (
            f"The last {symbol} of one seed, which is none of the others, at multiples "
            "of the stepsize of the table of methods. The range is the ratio of the largest to the smallest stepsize "
            f"between which it is at most {NEAR:g} above the least."
        )
        picture = Picture("stepsize-sweep", f"last {symbol} against the stepsize", self._plot())
        yield Section("Range of stepsizes", (self._table(), words), picture)

    def _plot(self) -> Plot:
        """Return the last value of the measure against the ratio of the stepsize to the method's own."""
        lines, last = [], self.results.stepsize_sweep["last"].to_numpy()
        for label in self.experiment.compared():
            runs = self.results.stepsize_sweep.filter(method=label).sort("times")
            if not runs.is_empty():
                lines.append(Line(label=label, x=numbers(runs["times"]), y=numbers(runs["last"])))
        ylim: Ends = (None, None)
        if (finite := last[np.isfinite(last)]).size:  # where trainings fail, the curves leave at the top
            low, high = np.quantile(finite, (0.0, 0.8))
            if high > low:
                ylim = (float(low - 0.05 * (high - low)), float(high + 0.05 * (high - low)))
        symbol = self.experiment.symbol(self.experiment.measure)
        panel = Panel(
            lines=lines, xlabel="γ, times that of the table", ylabel=f"last {symbol}", xscale="log2", ylim=ylim
        )
        return Plot(rows=[[panel]], width=6.6, height=4.2)

    def _table(self) -> str:
        rows = []
        for label in self.experiment.compared():
            runs = self.results.stepsize_sweep.filter(method=label).sort("times")
            if runs.is_empty():
                continue
            times, last = runs["times"].to_numpy(), runs["last"].to_numpy()
            if not np.isfinite(last).any():
                rows.append((label, f"{last.min():.4g}", "–", "none: every stepsize diverges"))
                continue
            near = times[last <= last.min() + NEAR]
            width = f"{near.max() / near.min():.3g}"
            at_edge = near.min() == times[0] or near.max() == times[-1]
            width = f"at least {width}" if at_edge else width
            rows.append((label, f"{last.min():.4g}", f"{times[last.argmin()]:.3g}", width))
        symbol = self.experiment.symbol(self.experiment.measure)
        return table(("method", f"least {symbol}", "at times γ", "range"), rows)

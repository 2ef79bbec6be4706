"""What a report shows of a kind of experiment: a first figure, and sections beside those of every report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from npgm.lab.experiments import convergence
from npgm.lab.experiments.results import Results
from npgm.lab.experiments.summary import averaged
from npgm.lab.plot import Plot


@dataclass(frozen=True)
class Picture:
    """A figure of a report: the name of its file, without a suffix, and what it shows, in words."""

    name: str
    caption: str
    plot: Plot

    @property
    def markdown(self) -> str:
        """The figure in Markdown."""
        return f"![{self.caption}]({self.name}.svg)"


@dataclass(frozen=True)
class Section:
    """A section of a report: its heading, paragraphs or tables, and the figure at its end."""

    heading: str
    text: tuple[str, ...]
    picture: Picture | None = None

    @property
    def markdown(self) -> str:
        """The section in Markdown."""
        shown = () if self.picture is None else (self.picture.markdown,)
        return "\n\n".join((f"## {self.heading}", *self.text, *shown))


class KindReport:
    """The parts of a report that depend on the kind of its experiment; see `npgm.lab.experiments.kinds`.

    Args:
        results: the runs of a preset, of which some are done.
    """

    unit: ClassVar[tuple[str, float, str]] = ("seconds an {clock}", 1.0, "{:.2g}")
    """The unit of the times in the table of results, in how many of it a second is, and the form of a number."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.experiment: Any = results.experiment

    def first_picture(self) -> Picture:
        """Return the figure at the top of the report: by default the quantities against iterations and seconds."""
        experiment = self.experiment
        shown = " and ".join(experiment.symbol(quantity) for quantity in experiment.quantities)
        caption = f"{shown} against {experiment.clock}s and seconds; {averaged(experiment)}"
        return Picture("convergence", caption, convergence.plot(experiment, self.results.frame))

    def sections(self) -> Iterator[Section]:
        """Yield the sections between the results and the methods, none by default."""
        yield from ()

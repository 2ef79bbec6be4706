"""What is done of a preset of an experiment, and what follows from it for the paper's claims."""

from __future__ import annotations

import math
from functools import cached_property

import polars as pl

from npgm.lab.experiments import claims
from npgm.lab.experiments.claims import Verdict
from npgm.lab.experiments.spec import Claim, Experiment
from npgm.lab.experiments.store import Store
from npgm.lab.experiments.summary import at, summarise


class Results:
    """The runs of a preset that are done.

    Args:
        experiment: the experiment.
        preset: the name of one of its presets.
        store: where its runs are.

    Raises:
        ValueError: if the preset is unknown.
    """

    def __init__(self, experiment: Experiment, preset: str, store: Store) -> None:
        self.experiment, self.preset, self.obstacle = experiment, preset, store.obstacle
        self.runs = experiment.runs(preset)
        self.missing = len(store.missing(self.runs))
        self._store = store

    @property
    def none(self) -> bool:
        """Whether no run is done; there is no ``frame`` and no ``summary`` then."""
        return self.missing == len(self.runs)

    @cached_property
    def frame(self) -> pl.DataFrame:
        """The histories of the runs that are done; see `Store`."""
        return self._store.read(self.runs)

    @cached_property
    def summary(self) -> pl.DataFrame:
        """One row a run; see `npgm.lab.experiments.summary`."""
        return summarise(self.experiment, self.frame)

    @cached_property
    def stepsize_sweep(self) -> pl.DataFrame:
        """The last value of the measure for those runs of `Experiment.stepsize_sweep` that are done.

        It is infinite where a run diverged. Columns: method, lr, times (the ratio to the method's own
        stepsize) and last.
        """
        rows = []
        own = {method.label: method.options.get("lr") for method in self.experiment.methods}
        for run in self.experiment.stepsize_sweep(self.preset):
            if not self._store.missing([run]):
                last = summarise(self.experiment, self._store.read([run])).row(0, named=True)
                value = last[self.experiment.measure]
                finite = math.isfinite(value) and not last["diverged"]
                lr = run.method.options["lr"]
                rows.append({"method": run.method.label, "lr": lr, "times": lr / own[run.method.label],
                             "last": value if finite else math.inf})  # fmt: skip
        return pl.DataFrame(rows)

    @property
    def extent(self) -> str:
        """The preset, and how much of it is done if that is not all."""
        done = len(self.runs) - self.missing
        return self.preset if not self.missing else f"{self.preset}, {done} of {len(self.runs)} runs"

    @property
    def reason(self) -> str:
        """Why no run is done."""
        return "the data could not be fetched" if self.obstacle else "this preset was never run"

    def verdicts(self, claim: Claim) -> dict[str, Verdict]:
        """Return the verdict on a claim for each reading of what the paper leaves open, by the words for it."""
        inconclusive = self.experiment.preset(self.preset).inconclusive
        verdicts = {}
        for words, setting, experiment in self.experiment.by_reading():
            if self.none:
                verdicts[words] = Verdict(self.reason, "not run")
                continue
            verdicts[words] = claims.decide(experiment, claim, at(self.summary, setting), inconclusive)
        return verdicts


def recorded(experiment: Experiment, store: Store) -> list[Results]:
    """Return the results of the presets of which runs are done, the largest first; of the largest if there are none."""
    presets = [Results(experiment, preset, store) for preset in reversed(experiment.presets)]
    return [results for results in presets if not results.none] or presets[:1]

"""The procedure of the paper: an adaptive grid search on one seed, then a stepsize on which the seeds agree."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from npgm import _validate
from npgm._files import make_writable
from npgm.experiments import ranks
from npgm.experiments.runner import complete
from npgm.experiments.spec import Experiment, MethodSpec, Run, Setting
from npgm.experiments.store import Store
from npgm.experiments.summary import summarise
from npgm.experiments.tuning.grid import Grid

SPREAD = 10.0
"""The ratio of the worst to the best seed's measure up to which the seeds of a stepsize agree; see `spread`."""
NEGLIGIBLE = 1e-6
"""The part of ``converged_below`` up to which measures count as equal."""


@dataclass(frozen=True)
class Tuned:
    """The stepsize found for one method on one setting.

    Args:
        setting: the setting.
        before: the method as the experiment has it.
        after: the method with the stepsize found.
        best: the best stepsize on the first seed, which is larger than that found where the seeds disagreed.
        values_before: the measure of each seed at the end, infinite where it diverged.
        values_after: likewise, with the stepsize found.
        trials: the stepsizes tried on the first seed.
        limited: whether the search ended for want of trials.
    """

    setting: Setting
    before: MethodSpec
    after: MethodSpec
    best: float
    values_before: list[float]
    values_after: list[float]
    trials: int
    limited: bool


def tune(
    experiment: Experiment,
    preset: str,
    output: Path,
    *,
    methods: Sequence[str] | None = None,
    seeds: int | None = None,
    trials: int = 16,
    jobs: int = -1,
    device: str = "cpu",
) -> list[Tuned]:
    """Tune the stepsize of methods on each setting of an experiment, by the procedure of Section 4.1 of the paper.

    That is "an adaptive gridsearch on one seed and then decreasing the stepsize if the results varied greatly across
    different seeds". The least value of the experiment's measure at the end of the preset is searched on a `Grid`
    about the stepsize that the experiment has, with the first seed; other options stay. Then all seeds are run with
    the best stepsize. Where they do not agree (see `spread`), those of the next lower one that was tried are, and that
    is taken unless its worst seed is worse, until they agree. All seeds are run with the stepsize that the experiment
    has, too, for comparison.

    Each setting is tuned by itself, although the paper has one stepsize for all ranks of the matrix factorisation: the
    other settings are readings of what the paper leaves open, of which the authors tuned for one only, and the measures
    on different settings have no common scale on which a compromise could be chosen.

    A trial is a run like any other, kept in the experiment's store under a name that changes with its stepsize, and so
    never computed again. The course of a search is a function of the values of these runs: an interrupted tuning goes
    on to the same end as if there had been no interruption.

    Args:
        experiment: what to run.
        preset: the name of one of its presets.
        output: the folder of all results.
        methods: labels of methods; by default those that are compared in figures and claims.
        seeds: to check on the first so many seeds of each setting only.
        trials: the largest number of stepsizes to try on the first seed, for each method and setting.
        jobs: processes; see `npgm.experiments.run`.
        device: where networks are trained.

    Raises:
        ValueError, TypeError: if an argument is not accepted, a method has no stepsize, or under torchrun.
        OSError: if ``output`` cannot be written, before anything is computed.
        npgm.data.DataError: if the data cannot be had, likewise.
    """
    if ranks.launched():
        raise ValueError("tuning has no use for the ranks of torchrun: its trials are small; start it without torchrun")
    _validate.count("trials", trials, least=1)
    runs = experiment.runs(preset, methods or experiment.compared(), seeds)
    groups = [list(group) for _, group in itertools.groupby(runs, key=lambda run: (run.setting, run.method))]
    stepsizes = [_stepsize(group[0].method) for group in groups]
    store = Store.of(experiment, output)
    make_writable(output / experiment.key / "tuning")
    tunings = [_Tuning(experiment, store, group, Grid(lr, trials)) for group, lr in zip(groups, stepsizes, strict=True)]
    rounds = itertools.zip_longest(*(tuning.steps() for tuning in tunings), fillvalue=())
    for number, needed in enumerate(rounds, 1):
        title = f"{experiment.key} ({preset}), round {number}"
        complete(experiment, [*itertools.chain(*needed)], store, title=title, jobs=jobs, device=device)
    return [tuning.outcome() for tuning in tunings]


def spread(experiment: Experiment, values: Sequence[float]) -> float:
    """Return the ratio of the worst to the best seed's measure, infinite if a seed diverged.

    Up to `SPREAD`, an order of magnitude, the seeds agree: near the largest stable stepsize single seeds diverge, stall
    or get stuck, and are orders of magnitude behind, while those of smaller stepsizes end close to each other. Measures
    below a millionth of ``converged_below``, where rounding has its part in them, count as that.
    """
    floor = NEGLIGIBLE * experiment.converged_below
    worst, best = max(*values, floor), max(min(values), floor)
    return math.inf if worst == math.inf else worst / best


class _Tuning:
    """The tuning of one method on one setting.

    Args:
        runs: those of the method as the experiment has it, of all seeds.
        grid: the grid of the search on the first seed.
    """

    def __init__(self, experiment: Experiment, store: Store, runs: list[Run], grid: Grid) -> None:
        self.experiment, self.store, self.runs, self.grid = experiment, store, runs, grid
        self.before = self.chosen = _stepsize(runs[0].method)
        self.search = grid.search({})

    def steps(self) -> Iterator[list[Run]]:
        """Yield the runs that must be done for the tuning to go on, until it has found its stepsize."""
        tried: dict[float, float] = {}
        while wanted := self.search.wanted:
            yield [self._at(lr)[0] for lr in wanted]
            tried |= {lr: self._values(self._at(lr)[:1])[0] for lr in wanted}
            self.search = self.grid.search(tried)
        self.chosen = self.search.best
        yield [run for lr in {self.before, self.chosen} for run in self._further(lr)]
        for lower in sorted((lr for lr in self.search.tried if lr < self.search.best), reverse=True):
            values = self._values(self._at(self.chosen))
            if spread(self.experiment, values) <= SPREAD:
                break
            yield self._further(lower)
            if max(self._values(self._at(lower))) > max(values):
                break
            self.chosen = lower

    def outcome(self) -> Tuned:
        """Return what was found; all runs for it must be done."""
        after = self._at(self.chosen)
        return Tuned(
            setting=self.runs[0].setting, before=self.runs[0].method, after=after[0].method, best=self.search.best,
            values_before=self._values(self.runs), values_after=self._values(after),
            trials=len(self.search.tried), limited=self.search.limited,
        )  # fmt: skip

    def _at(self, lr: float) -> list[Run]:
        """Return the runs with a stepsize, of all seeds."""
        if lr == self.before:
            return self.runs  # whose names must stay the same, even if their stepsize is an integer
        method = self.runs[0].method
        changed = dataclasses.replace(method, options={**method.options, "lr": lr})
        return [dataclasses.replace(run, method=changed) for run in self.runs]

    def _further(self, lr: float) -> list[Run]:
        """Return the runs with a stepsize without that of the search, for seeds in one batch would do it again."""
        runs = self._at(lr)
        return runs if self.store.missing(runs[:1]) else runs[1:]

    def _values(self, runs: list[Run]) -> list[float]:
        """Return the measure at the end of runs that are done, infinite where it diverged."""
        rows = summarise(self.experiment, self.store.read(runs)).sort("seed")
        values = zip(rows[self.experiment.measure], rows["diverged"], strict=True)
        return [math.inf if diverged or not math.isfinite(value) else float(value) for value, diverged in values]


def _stepsize(method: MethodSpec) -> float:
    """Return the stepsize of a method."""
    if "lr" not in method.options:
        raise ValueError(
            f"method {method.label!r} has no option 'lr' to tune; its options: {', '.join(method.options)}"
        )
    return _validate.positive(f"lr of method {method.label!r}", method.options["lr"])

"""The procedure of the paper: an adaptive grid search on one seed, then a stepsize on which the seeds agree."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from npgm._common import validate
from npgm.lab.experiments import ranks
from npgm.lab.experiments.runner import complete
from npgm.lab.experiments.spec import Experiment, MethodSpec, Run, Setting
from npgm.lab.experiments.store import Store
from npgm.lab.experiments.summary import summarise
from npgm.lab.experiments.tuning.grid import Grid, Plan, Search, Sweep
from npgm.lab.files import make_writable

SPREAD = 10.0
"""The ratio of the worst to the best seed's measure up to which the seeds of a stepsize agree; see `spread`."""
NEGLIGIBLE = 1e-6
"""The part of ``converged_below`` up to which measures count as equal."""
FURTHEST = 3
"""|log₁₀| of the largest ratio of λ, or of a radius, to that of the experiment: beyond it a grid does not go on."""


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
        by_radius: for each λ or radius that was tried, ascending, the best stepsize on the tuning seed and the measure.
    """

    setting: Setting
    before: MethodSpec
    after: MethodSpec
    best: float
    values_before: list[float]
    values_after: list[float]
    trials: int
    limited: bool
    by_radius: tuple[tuple[float, float, float], ...] = ()


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

    An experiment with a ``sweep`` is tuned over that list of stepsizes in place of a grid, as Section 4.1 does it for
    momentum.

    An experiment with a ``tuning_seed`` is tuned by equal grids for all methods instead: seven stepsizes with ratios of
    2 about that which the experiment has, and each of them with λ, or the radius of clipping, as the experiment has it,
    a tenth and ten times of it unless the method has a ``fixed_radius``. A grid whose best is at its edge goes on. They
    are searched with that seed, which is none of those on which the methods are compared, so that these are not run
    with any other stepsize.

    Args:
        experiment: what to run.
        preset: the name of one of its presets.
        output: the folder of all results.
        methods: labels of methods; by default those that are compared in figures and claims.
        seeds: to check on the first so many seeds of each setting only.
        trials: the largest number of stepsizes of a grid to try on the first seed, for each method and setting.
        jobs: processes; see `npgm.lab.experiments.run`.
        device: where networks are trained.

    Raises:
        ValueError, TypeError: if an argument is not accepted, a method has no stepsize, or under torchrun.
        OSError: if ``output`` cannot be written, before anything is computed.
        npgm.lab.data.DataError: if the data cannot be had, likewise.
    """
    if ranks.launched():
        raise ValueError("tuning does not use the ranks of torchrun, since its trials are small; start it alone")
    validate.count("trials", trials, least=1)
    runs = experiment.runs(preset, methods or experiment.compared(), seeds)
    groups = [list(group) for _, group in itertools.groupby(runs, key=lambda run: (run.setting, run.method))]
    store = Store.of(experiment, output)
    kind = _Tuning if experiment.tuning_seed is None else _EqualTuning
    tunings = [kind(experiment, store, group, trials) for group in groups]
    make_writable(output / experiment.key / "tuning")
    for number, needed in enumerate(_side_by_side(tunings), 1):
        title = f"{experiment.key} ({preset}), round {number}"
        complete(experiment, needed, store, title=title, jobs=jobs, device=device)
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


class _Search:
    """The search of a stepsize with one seed.

    Args:
        run: of the method, with that seed.
        grid: the grid, about the method's stepsize, or the list of stepsizes.
    """

    def __init__(self, experiment: Experiment, store: Store, run: Run, grid: Plan) -> None:
        self.experiment, self.store, self.run, self.grid = experiment, store, run, grid
        self.values: dict[float, float] = {}

    def steps(self) -> Iterator[list[Run]]:
        """Yield the runs that must be done for the search to go on, until it has ended."""
        for wanted in self.grid.rounds(self.values):
            runs = [_with([self.run], self.method(lr))[0] for lr in wanted]
            yield runs
            self.values |= zip(wanted, _values(self.experiment, self.store, runs), strict=True)

    def method(self, lr: float) -> MethodSpec:
        """Return the method with a stepsize."""
        return self.run.method.at(lr)

    @property
    def found(self) -> Search:
        """How far the search has come."""
        return self.grid.search(self.values)

    @property
    def least(self) -> float:
        """The least value."""
        return self.values[self.found.best]


class _Tuning:
    """The tuning of one method on one setting, by the paper's procedure.

    Args:
        runs: those of the method as the experiment has it, of all seeds.
        trials: the largest number of stepsizes to try.
    """

    def __init__(self, experiment: Experiment, store: Store, runs: list[Run], trials: int) -> None:
        self.experiment, self.store, self.runs = experiment, store, runs
        centre = _stepsize(runs[0].method)
        grid: Plan = Sweep(tuple(experiment.sweep)) if experiment.sweep else Grid(centre, trials)
        self.search = _Search(experiment, store, runs[0], grid)
        self.chosen = runs[0].method

    def steps(self) -> Iterator[list[Run]]:
        """Yield the runs that must be done for the tuning to go on, until it has found its stepsize."""
        yield from self.search.steps()
        found = self.search.found
        self.chosen = self.search.method(found.best)
        yield self._compared(self._further)
        for lower in sorted((lr for lr in found.tried if lr < found.best), reverse=True):
            values = self._values(self.chosen)
            if spread(self.experiment, values) <= SPREAD:
                break
            method = self.search.method(lower)
            yield self._further(method)
            if max(self._values(method)) > max(values):
                break
            self.chosen = method

    def outcome(self) -> Tuned:
        """Return what was found; all runs for it must be done."""
        found = self.search.found
        return self._outcome(self.chosen, best=found.best, trials=len(found.tried), limited=found.limited)

    def _outcome(self, method: MethodSpec, *, best: float, trials: int, limited: bool) -> Tuned:
        first = self.runs[0]
        return Tuned(
            setting=first.setting, before=first.method, after=_with(self.runs, method)[0].method, best=best,
            values_before=self._values(first.method), values_after=self._values(method), trials=trials, limited=limited,
        )  # fmt: skip

    def _compared(self, runs: Callable[[MethodSpec], list[Run]]) -> list[Run]:
        """Return the runs of the method as it was and as it is now."""
        before = self.runs[0].method
        return [*runs(before), *(runs(self.chosen) if self.chosen != before else [])]

    def _further(self, method: MethodSpec) -> list[Run]:
        """Return the runs of a method without that of the search, for seeds in one batch would do it again."""
        runs = _with(self.runs, method)
        return runs if self.store.missing(runs[:1]) else runs[1:]

    def _values(self, method: MethodSpec) -> list[float]:
        return _values(self.experiment, self.store, _with(self.runs, method))


class _EqualTuning(_Tuning):
    """The tuning of one method on one setting, by equal grids and with a seed of its own."""

    def __init__(self, experiment: Experiment, store: Store, runs: list[Run], trials: int) -> None:
        super().__init__(experiment, store, runs, trials)
        self.trials = trials
        method = runs[0].method
        exponents = (0,) if method.radius is None or method.fixed_radius else (-1, 0, 1)
        self.searches = {exponent: self._search(exponent) for exponent in exponents}

    def steps(self) -> Iterator[list[Run]]:
        """Yield the runs that must be done for the tuning to go on, until it has found its numbers."""
        yield from _side_by_side(list(self.searches.values()))
        while (beyond := self._beyond()) is not None:
            self.searches[beyond] = self._search(beyond)
            yield from self.searches[beyond].steps()
        self.search = self.searches[self._best()]
        self.chosen = self.search.method(self.search.found.best)
        yield self._compared(lambda method: _with(self.runs, method))

    def outcome(self) -> Tuned:
        """Return what was found; all runs for it must be done."""
        found = [search.found for search in self.searches.values()]
        outcome = self._outcome(
            self.chosen, best=self.search.found.best, trials=sum(len(f.tried) for f in found),
            limited=any(f.limited for f in found),
        )  # fmt: skip
        if self.chosen.radius is None:
            return outcome
        rows = [(float(s.run.method.radius or 0.0), s.found.best, s.least) for s in self.searches.values()]
        return dataclasses.replace(outcome, by_radius=tuple(sorted(rows)))

    def _search(self, exponent: int) -> _Search:
        """Return the search with λ, or the radius, times a power of ten."""
        seed = self.experiment.tuning_seed
        assert seed is not None
        run = dataclasses.replace(self.runs[0], seed=seed)
        if exponent:
            method = run.method.at_radius(float(f"{run.method.radius * 10.0**exponent:.3g}"))  # type: ignore[operator]
            run = dataclasses.replace(run, method=method)
        return _Search(
            self.experiment, self.store, run, Grid(_stepsize(run.method), self.trials, coarse=1, side=3, finer=())
        )

    def _best(self) -> int:
        return min(self.searches, key=lambda exponent: (self.searches[exponent].least, abs(exponent)))

    def _beyond(self) -> int | None:
        """Return the exponent with which the grid goes on, None if its best is within it."""
        best, low, high = self._best(), min(self.searches), max(self.searches)
        if low == high or low < best < high or abs(best) == FURTHEST:
            return None
        return best + (1 if best == high else -1)


def _side_by_side(parts: Sequence[_Tuning | _Search]) -> Iterator[list[Run]]:
    """Yield what all parts need next, side by side."""
    for needed in itertools.zip_longest(*(part.steps() for part in parts), fillvalue=()):
        yield [*itertools.chain(*needed)]


def _with(runs: list[Run], method: MethodSpec) -> list[Run]:
    """Return runs with another method."""
    if method == runs[0].method:
        return runs  # whose names must stay the same, even if their stepsize is an integer
    return [dataclasses.replace(run, method=method) for run in runs]


def _values(experiment: Experiment, store: Store, runs: list[Run]) -> list[float]:
    """Return the measure at the end of runs that are done, infinite where it diverged."""
    values = []
    for run in runs:
        (row,) = summarise(experiment, store.read([run])).iter_rows(named=True)
        value = row[experiment.measure]
        values.append(math.inf if row["diverged"] or not math.isfinite(value) else float(value))
    return values


def _stepsize(method: MethodSpec) -> float:
    """Return the stepsize of a method."""
    if "lr" not in method.options:
        raise ValueError(
            f"method {method.label!r} has no option 'lr' to tune; its options: {', '.join(method.options)}"
        )
    return validate.positive(f"lr of method {method.label!r}", method.options["lr"])

"""The trials of a search, kept in SQLite by Optuna."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import DBAPIError

from npgm.experiments.tuning.grid import WIDEST, Grid, Search

TIMEOUT = 60.0
"""Seconds to wait for another process that writes."""


class AdaptiveGrid(BaseSampler):
    """The adaptive grid as a sampler of Optuna, for one parameter, to be asked while the search wants more."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> float:
        asked = _open(study)
        return next(lr for lr in self.grid.search(_values(study)).wanted if lr not in asked)


class Trials:
    """The trials of one method on one setting.

    Several processes may work on them: they evaluate some stepsizes twice, and no harm.
    """

    def __init__(self, study: Study, grid: Grid, lock: FileLock) -> None:
        self._study, self._grid, self._lock = study, grid, lock
        self._distribution = FloatDistribution(
            grid.centre * 2.0 ** -(WIDEST + 1), grid.centre * 2.0 ** (WIDEST + 1), log=True
        )

    def search(self) -> Search:
        """Return how far the search has come."""
        return self._grid.search(_values(self._study))

    def ask(self) -> list[float]:
        """Return the stepsizes that are to be tried next, each with a trial; none at the end of the search.

        A trial that an interrupted process has left open is taken over.
        """
        with self._lock:
            wanted = self.search().wanted
            for _ in set(wanted) - set(_open(self._study)):
                self._study.ask({"lr": self._distribution})
        return wanted

    def tell(self, values: Mapping[float, float]) -> None:
        """Finish the trials of some stepsizes that another process has not finished yet."""
        with self._lock:
            for lr, number in _open(self._study).items():
                if lr in values:
                    self._study.tell(number, values[lr])


@contextlib.contextmanager
def database(path: Path) -> Iterator[Callable[[str, Grid], Trials]]:
    """Open a database of trials and give a function that returns those of a name, those of before included.

    Optuna looks and then writes, even where it makes the tables, so a lock keeps other processes away in between.

    Args:
        path: the file of SQLite, made if it does not exist.

    Raises:
        OSError: if the file is there, but is no such database.
    """
    # a path in a URL would lose what comes after a question mark
    connect = partial(sqlite3.connect, path, timeout=TIMEOUT, check_same_thread=False)
    lock = FileLock(path.with_suffix(".lock"), timeout=TIMEOUT)
    try:
        with lock:
            storage = optuna.storages.RDBStorage(f"sqlite:///{path.name}", engine_kwargs={"creator": connect})
    except (DBAPIError, RuntimeError) as error:
        raise OSError(f"{path} cannot be used: {error}; without it, the trials are made anew from the runs") from error

    def trials(name: str, grid: Grid) -> Trials:
        sampler = AdaptiveGrid(grid)
        with lock:
            study = optuna.create_study(storage=storage, sampler=sampler, study_name=name, load_if_exists=True)
        return Trials(study, grid, lock)

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield trials
    finally:
        optuna.logging.set_verbosity(verbosity)
        storage.remove_session()
        storage.engine.dispose()


def _values(study: Study) -> dict[float, float]:
    """Return the values of the trials that are finished, by stepsize."""
    finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return {trial.params["lr"]: trial.value for trial in finished if trial.value is not None}


def _open(study: Study) -> dict[float, int]:
    """Return the numbers of the trials that are not, by stepsize."""
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    return {trial.params["lr"]: trial.number for trial in running if "lr" in trial.params}

"""Where runs are computed: by processes of this machine, by a dask cluster, or by the ranks of torchrun."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import cloudpickle
from joblib import Parallel, cpu_count, delayed

from npgm._common import registry, validate
from npgm.lab import data
from npgm.lab.experiments import ranks
from npgm.lab.experiments.spec import Experiment, Resources, Run

if TYPE_CHECKING:
    from distributed import Client

R = TypeVar("R")
Function = Callable[[list[Run], Resources], R]

PARALLEL = ("ddp", "fsdp")
"""How the ranks of torchrun train a network: each with a copy of it, or each with a part of it."""
TIMEOUT = 10.0
"""Seconds in which a scheduler must answer."""


class Engine(ABC):
    """Calls functions of some runs and of the `Resources` of the place where they are computed."""

    workers: int
    """How many calls are made at a time."""

    @abstractmethod
    def map(self, function: Function[R], units: Sequence[list[Run]]) -> Iterator[R]:
        """Yield the results of a call for each unit, as they are done; raises what a call raises."""

    @abstractmethod
    def everywhere(self, function: Function[None], unit: list[Run]) -> None:
        """Make one call in each place, while others go on."""


class Local(Engine):
    """Processes of this machine, or this process if ``workers`` is 1."""

    def __init__(self, workers: int, resources: Resources) -> None:
        self.workers = workers
        self._resources = resources

    def map(self, function: Function[R], units: Sequence[list[Run]]) -> Iterator[R]:
        """Yield the results of a call for each unit, as they are done; raises what a call raises."""
        call = function if self.workers == 1 else partial(_extended, _packed(by_value=False), function)
        parallel = Parallel(n_jobs=self.workers, return_as="generator_unordered")
        yield from parallel(delayed(call)(unit, self._resources) for unit in units)

    def everywhere(self, function: Function[None], unit: list[Run]) -> None:
        """Make one call."""
        function(unit, self._resources)


class Dask(Engine):
    """The workers of a dask cluster, which need to share neither a file system nor the data with this process.

    What a worker that dies was computing is computed by another one. (joblib's own dask backend waits forever for a
    call that dask gives up, since several workers died in it.)
    """

    def __init__(self, client: Client, device: str) -> None:
        self.workers = len(client.nthreads())
        self._client = client
        self._device = device

    def map(self, function: Function[R], units: Sequence[list[Run]]) -> Iterator[R]:
        """Yield the results of a call for each unit, as they are done; raises what a call raises."""
        from distributed import as_completed

        call = partial(_extended, _packed(by_value=True), function)
        futures = self._client.map(partial(_alone, call, self._device), units, pure=False)
        for future in as_completed(futures, loop=self._client.loop):
            yield future.result()

    def everywhere(self, function: Function[None], unit: list[Run]) -> None:
        """Make one call on each worker that can be reached."""
        self._client.run(partial(_on_worker, function, self._device), unit, on_error="ignore")


@contextlib.contextmanager
def open_engine(
    name: str,
    experiment: Experiment,
    *,
    jobs: int,
    device: str,
    folder: Path,
    scheduler: str | None,
    parallel: str | None,
) -> Iterator[Engine]:
    """Open the engine that the arguments of `npgm.lab.experiments.run` name.

    Raises:
        ValueError, TypeError: if they are not accepted, or cannot be combined.
        OSError: if the scheduler does not answer.
    """
    validate.choice("engine", name, ("dask", "local"))
    if jobs != -1:
        validate.count("jobs", jobs, least=1)
    if parallel is not None:
        validate.choice("parallel", parallel, PARALLEL)
        if not ranks.launched():
            raise ValueError(f"parallel={parallel!r} is for several ranks: start them by torchrun -m npgm ...")
    if name == "dask":
        if scheduler is None:
            raise ValueError("engine 'dask' needs the address of a scheduler, such as tcp://host:8786")
        if ranks.launched() or jobs != -1:
            raise ValueError("engine 'dask' uses its cluster's workers; it takes neither jobs nor ranks of torchrun")
        with _connected(scheduler, experiment.packages) as client:
            yield Dask(client, device)
        return
    if scheduler is not None:
        raise ValueError(f"scheduler is for engine 'dask', not for {name!r}")
    cores = cpu_count()  # that this process may use
    if ranks.launched() and experiment.data_parallel:
        if jobs != -1:
            raise ValueError("jobs cannot be set under torchrun, whose ranks train one network together")
        threads = _threads(cores, int(os.environ["LOCAL_WORLD_SIZE"]))
        yield Local(1, Resources(threads, device, folder, parallel or "ddp"))
        return
    jobs = (cores if device == "cpu" else 1) if jobs == -1 else jobs
    yield Local(jobs, Resources(_threads(cores, jobs), device, folder))


def _threads(cores: int, processes: int) -> int:
    """Return the threads of each process: its share of the cores, or ``OMP_NUM_THREADS`` where that is less."""
    share = max(1, cores // processes)
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(share, int(asked)) if asked.isdecimal() and int(asked) else share


@contextlib.contextmanager
def _connected(scheduler: str, packages: Sequence[str]) -> Iterator[Client]:
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise ValueError(f"engine 'dask' needs the package {error.name}; install npgm[distributed]") from error
    failure: OSError | ValueError | None = None
    try:
        made = Client(scheduler, timeout=TIMEOUT, set_as_default=False)
    except (OSError, ValueError) as error:
        failure = error.with_traceback(None)
        failure.__context__ = failure.__cause__ = None
    if failure is not None:
        # the client that failed goes now, which tracebacks keep: collected while a later one starts, it waits for the
        # lock of that one for ever
        gc.collect()
        raise failure
    with made as client:
        if not client.nthreads():
            raise ValueError(f"the scheduler {scheduler} has no workers")
        _check_versions(client, ("npgm", *packages))
        yield client


def _check_versions(client: Client, packages: Sequence[str]) -> None:
    versions = client.get_versions(packages=packages)
    here = versions["client"]["packages"]
    for address, worker in versions["workers"].items():
        for name in packages:
            if (there := worker["packages"][name]) != here[name]:
                raise ValueError(f"the worker {address} has {name} {there}, and this process {here[name]}")


def _packed(*, by_value: bool) -> bytes:
    """Return, pickled, what the registries of this process hold beside npgm's own.

    Args:
        by_value: with the code, so that those who read it need not have the modules.
    """
    found = registry.extensions()
    names = {entry.__module__ for _, entries in found for entry in entries.values()} if by_value else set()
    modules = [sys.modules[name] for name in names - {"__main__"} if name in sys.modules]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        packed: bytes = cloudpickle.dumps(found)
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
    return packed


def _extended(extensions: bytes, function: Function[R], unit: list[Run], resources: Resources) -> R:
    """Make a call where the registries hold what they hold in the process that asks for it."""
    registry.extend(pickle.loads(extensions))
    return function(unit, resources)


def _alone(function: Function[R], device: str, unit: list[Run]) -> R:
    """Make a call on a worker that makes no other meanwhile: the generator and the threads of torch are a process's."""
    from distributed import get_worker

    worker: Any = get_worker()
    if worker.state.nthreads > 1:
        raise ValueError(
            f"the worker {worker.address} computes {worker.state.nthreads} runs in one process; "
            "start workers with --nthreads 1, and with --nworkers for several on a machine"
        )
    return _on_worker(function, device, unit)


def _on_worker(function: Function[R], device: str, unit: list[Run]) -> R:
    """Make a call on a worker, with a folder of its machine and the threads that dask lets it have."""
    folder = data.cache_dir() / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    return function(unit, Resources(int(os.environ.get("OMP_NUM_THREADS", 1)), device, folder))

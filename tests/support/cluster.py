"""A dask cluster of this machine: a scheduler and workers, each a process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

import dask
from distributed import Client, Scheduler, Worker

import processes


@contextlib.contextmanager
def cluster(folder: Path, *, workers: int = 2, nthreads: int = 1, failures: int = 3) -> Iterator[tuple[str, list[BaseProcess]]]:  # fmt: skip
    """Start a scheduler and workers with a folder as npgm's cache; yield the address and the workers' processes.

    Args:
        failures: how many workers may die in a call before it is given up.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    started = [processes.start(partial(_schedule, address, failures))]
    started += [processes.start(partial(_work, address, folder, nthreads)) for _ in range(workers)]
    try:
        with connected(address) as client:
            client.wait_for_workers(workers, timeout=600)
        yield address, started[1:]
    finally:
        for process in started:
            process.kill()
            process.join()


def connected(address: str) -> Client:
    """Wait for a scheduler to listen; a `Client` that fails to find it can lock up later, when it is collected."""
    host, port = address.removeprefix("tcp://").split(":")
    end = time.monotonic() + 600
    while True:
        try:
            socket.create_connection((host, int(port))).close()
            break
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.05)
    return Client(address, timeout=600, set_as_default=False)


def _schedule(address: str, failures: int) -> None:
    with dask.config.set({"distributed.scheduler.allowed-failures": failures}):
        asyncio.run(_until_killed(lambda: Scheduler(host=address, dashboard=False)))


def _work(address: str, folder: Path, nthreads: int) -> None:
    os.environ |= {"NPGM_CACHE": str(folder), "OMP_NUM_THREADS": "1"}
    with dask.config.set({"distributed.worker.profile.enabled": False}):
        asyncio.run(
            _until_killed(lambda: Worker(address, nthreads=nthreads, local_directory=str(folder), dashboard=False))
        )


async def _until_killed(make) -> None:
    async with make() as server:
        await server.finished()

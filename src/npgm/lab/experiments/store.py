"""The results on disk: one Parquet file a run, written whole or not at all."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from npgm.lab.experiments.spec import Experiment, Run
from npgm.lab.files import replacing


class Store:
    """The folder of the runs of one experiment.

    A run's file has one row an iteration or epoch k: the seconds until then, and the quantities measured. Those of a
    solver are fun, grad_norm, stationarity, gap = f - min f and sharpness, which is null where it was not measured;
    those of a training are train_loss, test_loss and test_accuracy. The columns method, seed, status, environment and
    one for each name of the setting are constant.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of(cls, experiment: Experiment, output: Path) -> Store:
        """Return the store of an experiment in the folder of all results."""
        return cls(output / experiment.key / "runs")

    @property
    def begun(self) -> bool:
        """Whether any run was done or attempted."""
        return self.folder.is_dir()

    def path(self, run: Run) -> Path:
        """Return the file of a run, whether it is there or not."""
        return self.folder / f"{run.key}.parquet"

    def missing(self, runs: Iterable[Run]) -> list[Run]:
        """Return the runs that are still to be done."""
        return [run for run in runs if not self.path(run).is_file()]

    def write(self, run: Run, history: pl.DataFrame, environment: str) -> None:
        """Keep the history of a run, and in which environment it was computed."""
        setting = {name: pl.lit(value) for name, value in run.setting.items()}
        seed, where = pl.lit(run.seed, pl.Int32), pl.lit(environment)
        history = history.with_columns(seed=seed, environment=where, **setting)
        self.folder.mkdir(parents=True, exist_ok=True)
        content = io.BytesIO()
        history.write_parquet(content)  # Polars' errors would not be those of the file
        with replacing(self.path(run)) as file:
            file.write(content.getbuffer())

    @property
    def obstacle(self) -> str | None:
        """Why the last attempt to compute runs could not begin, such as data that cannot be had; None if it could."""
        path = self._obstacle
        return path.read_text(encoding="utf-8") if path.is_file() else None

    @obstacle.setter
    def obstacle(self, reason: str | None) -> None:
        if reason is None:
            self._obstacle.unlink(missing_ok=True)
        else:
            with replacing(self._obstacle) as file:
                file.write(reason.encode())

    @property
    def _obstacle(self) -> Path:
        return self.folder / "obstacle.txt"

    def read(self, runs: Iterable[Run]) -> pl.DataFrame:
        """Return the histories of those of ``runs`` that are done, one below the other."""
        frames = [
            pl.read_parquet(path).with_columns(pl.lit(run.method.label).alias("method"))
            for run in runs
            if (path := self.path(run)).is_file()
        ]
        if not frames:
            raise FileNotFoundError(f"{self.folder} holds none of the runs; reproduce the experiment first")
        return pl.concat(frames, how="diagonal")

"""The solvers of `npgm.solvers.benchopt` in benchopt's own harness, on objectives as its benchmarks define them."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("benchopt")
pytestmark = pytest.mark.slow  # benchopt loads pandas and scikit-learn in each of its processes

HEAD = """
import numpy as np
from benchopt import BaseDataset, BaseObjective, BaseSolver
"""
LINEAR = """
class Objective(BaseObjective):
    name = "linear"
    min_benchopt_version = "1.5"
    parameters = {"fit_intercept": [True, False]}

    def set_data(self, X, y):
        self.X, self.y, self.lmbd = X, y, 0.1 * np.abs(X.T @ y).max()

    def get_one_result(self):
        return {"beta": np.zeros(self.X.shape[1] + self.fit_intercept)}

    def get_objective(self):
        return {"X": self.X, "y": self.y, "lmbd": self.lmbd, "fit_intercept": self.fit_intercept}

    def split(self, beta):
        beta, c = (beta[:-1], beta[-1]) if self.fit_intercept else (beta, 0.0)
        return beta, self.X @ beta + c
"""
LOGREG = """
    def evaluate_result(self, beta):
        beta, predictions = self.split(beta)
        slopes = -self.y / (1 + np.exp(self.y * predictions))
        left = np.append(self.X.T @ slopes + self.lmbd * beta, self.fit_intercept * slopes.sum())
        return {"value": float(np.linalg.norm(left))}
"""
LASSO = """
    def evaluate_result(self, beta):
        beta, predictions = self.split(beta)
        slopes = predictions - self.y
        grad = self.X.T @ slopes
        left = beta - np.sign(beta - grad) * np.maximum(np.abs(beta - grad) - self.lmbd, 0)
        return {"value": float(np.linalg.norm(np.append(left, self.fit_intercept * slopes.sum())))}
"""
NMF = """
class Objective(BaseObjective):
    name = "nmf"
    min_benchopt_version = "1.5"
    parameters = {"share_init": [True, False]}

    def set_data(self, X, y):
        self.X = np.abs(X)

    def get_one_result(self):
        return {"W": np.ones((40, 3)), "H": np.ones((3, 6))}

    def get_objective(self):
        first = np.random.default_rng(5)
        start = [first.random((40, 3)), first.random((3, 6))] if self.share_init else None
        return {"X": self.X, "rank": 3, "factors_init": start}

    def evaluate_result(self, W, H):
        assert W.min() >= 0 and H.min() >= 0
        R = W @ H - self.X
        left = W - np.maximum(W - R @ H.T, 0), H - np.maximum(H - W.T @ R, 0)
        return {"value": float(np.hypot(*map(np.linalg.norm, left)))}
"""
DATASET = """
class Dataset(BaseDataset):
    name = "random"

    def get_data(self):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((40, 6))
        return {"X": X, "y": np.where(X[:, 0] + rng.standard_normal(40) > 0, 1, -1)}
"""
SOLVER = """
from npgm.solvers.benchopt import {0}


class Solver({0}):
    name = "npgm"
"""


@pytest.mark.parametrize(
    ("name", "objective"), [("LogregL2", LINEAR + LOGREG), ("Lasso", LINEAR + LASSO), ("NMF", NMF)]
)
def test_a_benchmark_is_solved(tmp_path, name, objective):
    import pandas as pd

    parts = {
        "objective.py": HEAD + objective, "datasets/random.py": HEAD + DATASET, "solvers/npgm.py": SOLVER.format(name),
    }  # fmt: skip
    for path, code in parts.items():
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(code, encoding="utf-8")
    run = [sys.executable, "-m", "benchopt", "run", ".", "--no-plot", "--max-runs", "200", "--output", "found"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    curves = pd.read_parquet(tmp_path / "outputs" / "found.parquet")
    assert curves.objective_name.nunique() == 2
    for _, curve in curves.groupby("objective_name"):
        assert curve.stop_val.nunique() > 3
        assert curve.objective_value.iloc[-1] < 1e-4 * curve.objective_value.iloc[0]

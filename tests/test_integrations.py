"""The recipes of docs/integrations.md for benchopt and optimagic; the others run in test_documentation.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pages import ROOT, blocks

OBJECTIVE = """
from benchopt import BaseObjective


class Objective(BaseObjective):
    name = "badly scaled"
    min_benchopt_version = "1.5"

    def set_data(self, scales):
        self.scales = scales

    def evaluate_result(self, x):
        return {"value": float(self.scales @ (x**2 / 2 + x**4 / 4)), "size": x.size}

    def get_objective(self):
        return {"fun": lambda x: (self.scales @ (x**2 / 2 + x**4 / 4), self.scales * (x + x**3)), "x0": 0 * self.scales + 3}

    def get_one_result(self):
        return {"x": 0 * self.scales}
"""

DATASET = """
import numpy as np
from benchopt import BaseDataset


class Dataset(BaseDataset):
    name = "scales"

    def get_data(self):
        return {"scales": np.array([1.0, 10.0, 100.0])}
"""


@pytest.mark.slow  # benchopt loads pandas and scikit-learn in each of its processes
def test_benchopt(tmp_path):
    pytest.importorskip("benchopt")
    import pandas as pd

    *_, recipe = blocks(ROOT / "docs" / "integrations.md", "py")
    parts = {"objective.py": OBJECTIVE, "datasets/scales.py": DATASET, "solvers/npgm.py": recipe}
    for name, code in parts.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(code, encoding="utf-8")
    run = [sys.executable, "-m", "benchopt", "run", "."]
    options = ["--no-plot", "--max-runs", "200", "--output", "found"]
    done = subprocess.run([*run, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    curves = pd.read_parquet(tmp_path / "outputs" / "found.parquet")
    assert len(curves.solver_name.unique()) == 2
    for name, curve in curves.groupby("solver_name"):
        assert curve.objective_value.iloc[0] > 100, name
        assert curve.objective_value.min() < 1e-8, name


@pytest.mark.slow  # optimagic loads pandas and plotly
def test_optimagic():
    pytest.importorskip("optimagic")
    (recipe,) = (code for code in blocks(ROOT / "docs" / "integrations.md", "py") if "optimagic" in code)
    exec(recipe, found := {})
    assert found["res"].success
    assert abs(found["res"].params - 1.0).max() < 0.01

"""The recipes of docs/integrations.md that warn, or that need packages of their own; others run in test_documentation.py."""

import copy
import subprocess
import sys

import pytest
import torch

import npgm.torch
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


def recipe_with(package):
    (recipe,) = (code for code in blocks(ROOT / "docs" / "integrations.md", "py") if package in code)
    return recipe


@pytest.mark.slow  # benchopt loads pandas and scikit-learn in each of its processes
def test_benchopt(tmp_path):
    pytest.importorskip("benchopt")
    import pandas as pd

    recipe = recipe_with("from benchopt")
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
    exec(recipe_with("optimagic"), found := {})
    assert found["res"].success
    assert abs(found["res"].params - 1.0).max() < 0.01


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of a library that we do not own
def test_timm():
    pytest.importorskip("timm")
    exec(recipe_with("timm"), found := {})
    without, decayed = found["optimizer"].param_groups
    assert isinstance(found["optimizer"], npgm.torch.IHGD)
    assert (without["weight_decay"], decayed["weight_decay"], decayed["momentum"]) == (0.0, 1e-4, 0.9)
    matrices, rest = found["spectral"].param_groups
    assert (matrices["reference"], rest["reference"]) == ("spectral-sqrt", "separable-log")
    assert matrices["momentum"] == rest["momentum"] == 0.95


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of a library that we do not own
def test_torchtitan():
    pytest.importorskip("torchtitan")
    exec(recipe_with("torchtitan"), found := {})

    def made():
        torch.manual_seed(0)
        layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
        model = torch.nn.ModuleDict({"layers": layers, "head": torch.nn.Linear(4, 1)})
        return model, found["Container"](found["config"], model_parts=[model])

    def step(model, optimizer):
        optimizer.zero_grad()
        model["head"](model["layers"](torch.ones(2, 4))).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    model, optimizer = made()
    first, second = optimizer
    assert (type(first), type(second)) == (npgm.torch.SpectralGD, npgm.torch.SNGD)
    start = copy.deepcopy(model.state_dict())
    optimizer.state_dict()  # takes a step of length 0, to make the state
    torch.testing.assert_close(model.state_dict(), start, rtol=0.0, atol=0.0)
    step(model, optimizer)
    resumed, later = made()
    resumed.load_state_dict(model.state_dict())
    later.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    step(model, optimizer)
    step(resumed, later)
    torch.testing.assert_close(resumed.state_dict(), model.state_dict(), rtol=0.0, atol=0.0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of libraries that we do not own
def test_lightning(tmp_path):
    lightning = pytest.importorskip("lightning")
    exec(recipe_with("lightning"), found := {"Monitor": npgm.torch.Monitor, "NGD": npgm.torch.NGD})
    exec(recipe_with("Watched"), found)

    logger = lightning.pytorch.loggers.CSVLogger(tmp_path, flush_logs_every_n_steps=1)
    quiet = {"enable_progress_bar": False, "enable_checkpointing": False}
    lightning.Trainer(max_steps=50, accelerator="cpu", logger=logger, **quiet).fit(found["Watched"]())
    header, *rows = (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").read_text().splitlines()
    assert {"npgm/grad_norm", "npgm/0/saturation", "npgm/0/lr"} <= set(header.split(","))
    assert {row.split(",")[header.split(",").index("step")] for row in rows} == {"50"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of libraries that we do not own
def test_the_configuration_of_lightning_cli(tmp_path):
    pytest.importorskip("jsonargparse")
    cli = pytest.importorskip("lightning.pytorch.cli")
    (recipe,) = blocks(ROOT / "docs" / "integrations.md", "yaml")
    quiet = "{max_epochs: 1, accelerator: cpu, logger: false, enable_checkpointing: false, enable_progress_bar: false}"
    file = tmp_path / "configuration.yaml"
    file.write_text(f"{recipe}trainer: {quiet}\n", encoding="utf-8")

    class Module(cli.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(4, 1)

        def training_step(self, batch):
            return self.net(batch).square().mean()

        def train_dataloader(self):
            return torch.utils.data.DataLoader(torch.randn(32, 4), batch_size=8)

    run = cli.LightningCLI(Module, args=["fit", "--config", str(file)], save_config_callback=None)
    (optimizer,) = run.trainer.optimizers
    (group,) = optimizer.param_groups
    assert isinstance(optimizer, npgm.torch.IHGD)
    assert (group["lr"], group["momentum"], group["scale"]) == (0.5, 0.9, 0.3)

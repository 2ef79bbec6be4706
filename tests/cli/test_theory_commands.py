"""``npgm kernels`` and ``npgm certify``."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

import npgm
from npgm.cli import app
from npgm.experiments.certification import certify_problem
from npgm.problems import registry


def invoke(*arguments):
    return CliRunner(env={"COLUMNS": "180"}).invoke(app, [str(argument) for argument in arguments])


def test_kernels_lists_and_draws_every_one(tmp_path):
    result = invoke("kernels", "--plot", tmp_path / "kernels.svg")
    assert result.exit_code == 0
    assert all(key in result.output for key in npgm.kernels.registry)
    assert (tmp_path / "kernels.svg").read_text().count("<path") > 2 * len(npgm.kernels.registry)


def test_kernels_says_why_it_cannot_draw(tmp_path):
    result = invoke("kernels", "--plot", tmp_path / "nowhere" / "kernels.png")
    assert result.exit_code == 2


@pytest.mark.parametrize("problem", sorted(registry))
def test_certify_holds_on_every_problem(problem):
    reference = {"cosh": "separable-log", "cosh-sum": "separable-cosh"}.get(problem, "isotropic-cosh")
    result = invoke("certify", problem, "--reference", reference, "--maxiter", 60)
    assert result.exit_code == 0, result.output
    assert "Theorem 2.2" in result.output
    assert "NO" not in result.output
    assert "along the run: holds" in result.output


def test_certify_with_momentum_and_a_plot(tmp_path):
    result = invoke("certify", "quadratic", "--method", "gdm", "--plot", tmp_path / "certificate.png")
    assert result.exit_code == 0
    assert "Theorem 2.7," in result.output
    assert (tmp_path / "certificate.png").stat().st_size > 0


def test_certify_says_that_no_theorem_applies():
    result = invoke("certify", "quartic", "--lr", 3)
    assert result.exit_code == 1
    assert "No theorem applies" in result.output
    assert "γ <= 1/L = 0.458243, but γ = 3" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing",),
        ("quartic", "--reference", "isotropic-mix3"),
        ("quartic", "--reference", "cosh"),
        ("quartic", "--method", "adgd"),
        ("quartic", "--method", "gd", "--reference", "isotropic-cosh"),
        ("quartic", "--momentum", "1"),
        ("quartic", "--lr", "-1"),
        ("quartic", "--maxiter", "0"),
    ],
)
def test_bad_arguments_exit_with_2(arguments):
    assert invoke("certify", *arguments).exit_code == 2


def test_the_library_call_reports_the_run():
    problem = registry["double-well"]()
    done = certify_problem(problem, npgm.reference("isotropic-cosh"), momentum=0.3)
    assert done.report.holds
    assert done.lr == 1 / done.constants.smoothness
    assert done.descent >= -1e-9
    np.testing.assert_allclose(np.abs(done.result.x), 1.0, rtol=1e-6)

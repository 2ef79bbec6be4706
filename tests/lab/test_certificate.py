"""The figure of a certificate."""

import pytest

import npgm
from npgm.lab import certificate
from npgm.theory import certify


@pytest.mark.slow
def test_report_is_drawn(tmp_path):
    problem, phi = npgm.problems.registry["cosh-sum"](), npgm.reference("isotropic-cosh")
    smoothness = problem.constants(phi).smoothness
    run = npgm.minimize(problem, problem.start, lr=0.5 / smoothness, reference=phi, maxiter=20, tol=0.0, history=True)
    report = certify.deterministic(run.history, smoothness=smoothness, minimum=problem.minimum(problem.start.size))
    certificate.plot(report, tmp_path / "report.png")
    assert (tmp_path / "report.png").stat().st_size > 10_000
    certificate.plot(certify.Report([], {}), tmp_path / "empty.svg")

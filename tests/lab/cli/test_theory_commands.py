"""``npgm kernels`` and ``npgm certify``."""

import numpy as np
import pytest

import commands
import npgm
from npgm.lab.experiments import certification
from npgm.lab.experiments.certification import certify_problem
from npgm.problems import registry


def test_kernels_lists_and_draws_every_one(tmp_path):
    printed = commands.npgm("kernels", "--plot", tmp_path / "kernels.svg")
    assert all(key in printed for key in npgm.kernels.registry)
    assert (tmp_path / "kernels.svg").read_text().count("<path") > 2 * len(npgm.kernels.registry)


def test_kernels_says_why_it_cannot_draw(tmp_path):
    commands.npgm("kernels", "--plot", tmp_path / "nowhere" / "kernels.png", status=2)


@pytest.mark.parametrize("problem", sorted(registry))
def test_certify_holds_on_every_problem(problem):
    reference = {"cosh": "separable-log", "cosh-sum": "separable-cosh", "exp-square": "isotropic-log"}.get(
        problem, "isotropic-cosh"
    )
    printed = commands.npgm("certify", problem, "--reference", reference, "--maxiter", 60)
    assert "Theorem 2.2" in printed
    assert "violated" not in printed
    assert "along the run: holds" in printed


def test_certify_at_the_largest_and_the_least_scale():
    arguments = ("certify", "quadratic", "--maxiter", 20)
    printed = commands.npgm(*arguments, "--reference", "isotropic-sqrt", "--scale", 1e300)
    assert "along the run: holds" in printed
    momentum = ("--momentum", 0.5, "--momentum-order", "before")
    assert "holds" in commands.npgm(*arguments, "--reference", "isotropic-cosh", "--scale", 1e-300, *momentum)


def test_certify_with_momentum_and_a_plot(tmp_path):
    printed = commands.npgm("certify", "quadratic", "--method", "gdm", "--plot", tmp_path / "certificate.svg")
    assert "Theorem 2.7," in printed
    assert "prefers-color-scheme" in (tmp_path / "certificate.svg").read_text()


@pytest.mark.parametrize("noise", [(), ("--stochastic", "--seeds", 4)])
@pytest.mark.parametrize(("reference", "theorem"), [("separable-cosh", "A"), ("separable-log", "A'")])
def test_certify_momentum_before_the_preconditioner(reference, theorem, noise):
    arguments = f"quadratic --momentum 0.9 --momentum-order before --reference {reference} --maxiter 40".split()
    printed = commands.npgm("certify", *arguments, *noise)
    assert f" Theorem {theorem} " in printed.split("•")[0]
    assert "violated" not in printed
    # the stepsize is the largest: Theorem A's condition is an equality
    if theorem == "A":
        lr = float(printed.split(",")[0].removeprefix("γ = ")) * (1 + 1e-4)
        commands.npgm("certify", *arguments, *noise, "--lr", lr, status=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "theorems"),
    [
        (("cosh-sum", "--reference", "separable-cosh", "--deviation", 0.5), ("3.1", "3.4", "3.5")),
        (("quadratic",), ("3.1", "3.4")),
        (("two-quadratics",), ("3.1",)),
    ],
)
def test_certify_stochastic_runs(arguments, theorems, tmp_path):
    plot = tmp_path / "certificate.png"
    printed = commands.npgm("certify", *arguments, "--stochastic", "--maxiter", 48, "--seeds", 6, "--plot", plot)
    assert "violated" not in printed
    for theorem in ("3.1", "3.4", "3.5"):
        assert (f"Theorem {theorem} " in printed.split("•")[0]) == (theorem in theorems)
    assert plot.stat().st_size > 10_000


def test_certify_refuses_what_no_stochastic_theorem_is_about():
    printed = commands.npgm("certify", "cosh", "--reference", "isotropic-log", "--stochastic", "--maxiter", 5, status=1)
    assert "Proposition 3.2 does not apply" in printed
    assert "bounded domain" in " ".join(printed.split())
    printed = commands.npgm("certify", "cosh-sum", "--stochastic", "--seeds", 1, "--maxiter", 5, status=1)
    assert "two seeds at least" in printed


def test_noise_shows_example_3_3(tmp_path):
    printed = commands.npgm("noise", "two-quadratics", "--plot", tmp_path / "noise.svg")
    assert printed.count("6.28") == 3  # bounded, where the variance grows a thousandfold
    assert "1.102e+04" in printed
    assert (tmp_path / "noise.svg").stat().st_size > 10_000
    commands.npgm("noise", "quartic", status=2)


def test_certificates_with_estimated_constants():
    problem = npgm.problems.PhaseRetrieval.random(20, 12, 0)
    phi = npgm.reference("isotropic-cosh", scale=100.0)
    start = np.random.default_rng(0).normal(5.0, 1.0, 20)
    for momentum in (0.0, 0.3):
        done = certification.certify_estimated(
            problem, problem.hvp, phi, start, minimum=problem.optimum, momentum=momentum, maxiter=60
        )
        assert done.estimated
        assert done.report.holds
        assert done.descent >= -1e-9
        assert "Theorem 2.2" in {c.bound.theorem for c in done.report.certificates}


@pytest.mark.slow
def test_certify_phase_retrieval_at_the_size_of_the_paper():
    printed = commands.npgm("certify", "phase-retrieval", "--scale", 1000, "--maxiter", 40)
    assert "estimated along the run: the certificates are empirical" in " ".join(printed.split())
    commands.npgm("certify", "phase-retrieval", "--stochastic", status=2)


def test_certify_says_that_no_theorem_applies():
    printed = commands.npgm("certify", "quartic", "--lr", 3, status=1)
    assert "refused: The base bound does not apply" in printed
    assert "γ <= 1/L = 0.458243, but γ = 3" in printed


@pytest.mark.parametrize(
    "arguments",
    [
        "nothing",
        "quartic --reference isotropic-mix3",
        "quartic --reference cosh",
        "quartic --method adgd",
        "quartic --method gd --reference isotropic-cosh",
        "quartic --momentum 1",
        "quartic --lr -1",
        "quartic --maxiter 0",
        "quartic --stochastic --momentum 0.5",
        "quartic --momentum 0.5 --momentum-order before",
        "quadratic --momentum-order first",
        "two-quadratics --stochastic --momentum 0.5 --momentum-order before",
        "phase-retrieval --momentum 0.5 --momentum-order before",
        "quadratic --reference isotropic-log --momentum-order before --maxiter 0",
        "quartic --stochastic --deviation -1",
        "quadratic --stochastic --deviation 1e300",
    ],
)
def test_bad_arguments_exit_with_2(arguments):
    commands.npgm("certify", *arguments.split(), status=2)


def test_the_library_call_reports_the_run():
    problem = registry["double-well"]()
    done = certify_problem(problem, npgm.reference("isotropic-cosh"), momentum=0.3)
    assert done.report.holds
    assert done.lr == 1 / done.constants.smoothness
    assert done.descent >= -1e-9
    np.testing.assert_allclose(np.abs(done.result.x), 1.0, rtol=1e-6)

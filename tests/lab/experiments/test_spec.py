import pytest

from npgm.lab import experiments
from npgm.lab.experiments import catalogue
from npgm.lab.experiments.solving.experiment import solver
from npgm.lab.experiments.spec import MethodSpec


@pytest.mark.parametrize("name", experiments.names())
def test_every_specification_is_valid_and_names_its_runs(name):
    experiment = experiments.load(name)
    assert experiment.key == name
    assert {"smoke", "cpu", "paper"} <= set(experiment.presets)
    for preset in experiment.presets:
        runs = experiment.runs(preset)
        assert len({run.key for run in runs}) == len(runs)


def test_the_paper_preset_of_matrix_factorization_is_the_papers():
    experiment = experiments.load("matrix-factorization")
    assert experiment.settings == {"rank": [10, 20, 30]}
    assert experiment.preset("paper").starts == [10, 10, 3]
    ihgdm, gd, gdm = experiment.methods[:3]
    phi = solver(ihgdm).stationarity_reference
    assert (phi.name, phi.scale, ihgdm.options) == ("isotropic-cosh", 100.0, {"lr": 2.0, "momentum": 0.9})
    assert gd.options == {"lr": 1 / 1000}
    assert gdm.options == {"lr": 1 / 300, "momentum": 0.9}


def test_the_paper_preset_of_phase_retrieval_is_the_papers():
    experiment = experiments.load("phase-retrieval")
    assert experiment.options == {"n": 1000, "m": 300, "batch_size": 50}
    assert experiment.preset("paper").starts == [10, 10]
    ihgd, shgd, clipped = experiment.methods
    assert (ihgd.options, shgd.options) == ({"lr": 1 / 45}, {"lr": 1 / 44})
    assert solver(ihgd).stationarity_reference.scale == solver(shgd).stationarity_reference.scale == 1000.0
    assert clipped.options == {"lr": 0.000023, "max_step": 1.0, "nu": 0.0}


def test_the_sweep_of_momentum_on_cifar10_is_the_papers():
    assert experiments.load("cifar10-momentum").sweep == [5, 1, 0.5, 0.1, 0.05, 0.01, 0.005]


VALID = """
title = "t"
kind = "solving"
source = "s"
problem = "movielens-factorization"
converged_below = 1e-3
sharpness_points = 3
[settings]
rank = [2, 3]
[presets.smoke]
starts = [1, 2]
maxiter = 5
[[methods]]
label = "GD"
method = "gd"
options = { lr = 0.1 }
[[claims]]
sentence = "x"
check = "fastest"
method = "GD"
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("", "", None),
        ("maxiter = 5", "maxiter = 0", r"presets\.smoke: maxiter must be at least 1, not 0"),
        ("maxiter = 5", "epochs = 5", r"presets\.smoke has no key 'epochs'; accepted: starts, inconclusive, maxiter"),
        ("maxiter = 5", "", r"presets\.smoke: .*missing .*'maxiter'"),
        ("starts = [1, 2]", "starts = [1]", r"presets\.smoke\.starts must have 2 entries"),
        ("starts = [1, 2]", "starts = [1, -2]", r"presets\.smoke: starts must be at least 1, not -2"),
        ('method = "gd"', 'method = "sgd"', r"methods\[0\]: unknown method 'sgd'; accepted: adgd"),
        ("lr = 0.1", "lr = -0.1", r"methods\[0\]: lr must be positive and finite, not -0.1"),
        ("lr = 0.1", "step = 0.1", r"methods\[0\]: method 'gd' has no option 'step'"),
        ('options = { lr = 0.1 }', 'options = { lr = 0.1 }\nreference = { name = "x" }', r"methods\[0\]: unknown reference 'x'"),
        ('options = { lr = 0.1 }', 'options = { lr = 0.1 }\nrole = "x"', r"methods\[0\]: unknown role 'x'"),
        ('problem = "movielens-factorization"', 'problem = "movielens-factorization"\nmeasure = "x"', "unknown quantity 'x'; accepted: gap, grad_norm"),
        ('kind = "solving"\n', "", "kind must be a string, one of composite, contest, curvature, .*, not None"),
        ('"solving"', '"solved"', "unknown kind 'solved'; accepted: composite, contest, curvature, image-training, solving, text-training"),
        ('"solving"', '"composite"', "an experiment on the problem 'movielens-factorization' is of the kind 'solving', not 'composite'"),
        ("movielens-factorization", "nothing", "unknown problem 'nothing'; accepted: movielens-factorization, movielens-nonnegative, noisy-line, phase-retrieval, sparse-logistic"),
        ("converged_below = 1e-3", "converged_below = 0", "converged_below must be positive"),
        ('check = "fastest"\nmethod = "GD"', 'check = "fastest"\nmethod = "X"', "unknown method of a claim 'X'; accepted: GD"),
        ('check = "fastest"', 'check = "fastets"', r"claims\[0\]: unknown check 'fastets'; accepted: as_many, best"),
        ("[presets.smoke]", '[readings]\nrank = ["two"]\n[presets.smoke]', r"readings\.rank must have 2 entries, one for each value"),
        ("[presets.smoke]", '[readings]\nx = ["two"]\n[presets.smoke]', "unknown setting 'x'; accepted: rank"),
        ('title = "t"', 'titel = "t"', "the experiment has no key 'titel'; accepted: key, file, title"),
        ('title = "t"', 'title = ', "Invalid value"),
    ],
)  # fmt: skip
def test_errors_name_the_file_and_the_key(tmp_path, old, new, message):
    path = tmp_path / "mine.toml"
    path.write_text(VALID.replace(old, new) if old else VALID)
    if message is None:
        assert len(catalogue.parse(path).runs("smoke")) == 3
    else:
        with pytest.raises(ValueError, match=rf"mine\.toml: {message}"):
            catalogue.parse(path)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("all", experiments.names()),
        ("spectral", ["spectral-factorization", "spectral-gpt", "spectral-mnist"]),
        ("cifar10", ["cifar10"]),  # not cifar10-momentum
        ("my.toml", ["my.toml"]),
        ("spectral-", ["spectral-"]),
    ],
)
def test_the_experiments_that_a_command_names(name, wanted):
    assert experiments.chosen(name) == wanted


def test_the_radius_is_the_lambda_that_a_method_has():
    phi = {"name": "spectral-sqrt"}
    for method, radius in (
        (MethodSpec("a", "npgm", {"lr": 1.0}, {**phi, "scale": 2.0}), 2.0),
        (MethodSpec("a", "npgm", {"lr": 1.0}, phi), 1.0),
        (MethodSpec("a", "npgm", {"lr": 1.0, "scale": "auto", "relative_scale": 0.1}, phi), 0.1),
        (MethodSpec("a", "sgd", {"lr": 1.0, "clip": 3.0}), 3.0),
        (MethodSpec("a", "sgd", {"lr": 1.0}), None),
    ):
        assert method.radius == radius
        assert method.at_radius(5.0).radius == 5.0


def test_unknown_names():
    with pytest.raises(ValueError, match=f"unknown experiment 'x'; accepted: {', '.join(experiments.names())}"):
        experiments.load("x")
    with pytest.raises(ValueError, match="unknown preset 'x'; accepted: cpu, paper, smoke"):
        experiments.load("matrix-factorization").preset("x")


def test_a_runs_key_changes_with_what_its_numbers_depend_on(tmp_path):
    def keys(text):
        (tmp_path / "mine.toml").write_text(text)
        return {run.key for run in catalogue.parse(tmp_path / "mine.toml").runs("smoke")}

    keep = keys(VALID)
    for old, new in (
        ("lr = 0.1", "lr = 0.2"),
        ("maxiter = 5", "maxiter = 6"),
        ("sharpness_points = 3", "sharpness_points = 4"),
    ):
        assert keys(VALID.replace(old, new)).isdisjoint(keep)
    assert keys(VALID.replace('"GD"', '"Cauchy"').replace('title = "t"', 'title = "u"')) == keep

import dataclasses

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from npgm.lab import experiments
from npgm.lab.experiments.curvature.experiment import Curvature
from npgm.lab.experiments.training.experiment import TextPreset
from npgm.lab.experiments.training.text import Text
from npgm.lab.experiments.training.trainer import Trainer

NETWORK = {"name": "rnn", "embedding": 2, "hidden": 3}


def small():
    """The real experiment with a network of a few units, for which λ is far above the gradients."""
    loaded = experiments.load("smoothness")
    preset = TextPreset(starts=[1], steps=12, every=12, windows=4, network=NETWORK)
    curvature = {"points": 4, "windows": 4, "products": 100, "reference": {"name": "isotropic-cosh", "scale": 1e4}}
    return dataclasses.replace(loaded, options={**loaded.options, "length": 6}, presets={"smoke": preset},
                               methods=loaded.methods[:1], curvature=curvature)  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return experiments.run(small(), "smoke", tmp_path_factory.mktemp("results"), jobs=1)


@pytest.mark.slow
def test_what_is_measured(store):
    (run,) = small().runs("smoke")
    frame = store.read([run])
    assert frame["k"].to_list() == [*range(1, 11), 12]
    method = run.method
    trainer = Trainer(run.training, method.method, method.arguments(), [0])
    trainer.step()
    characters, following = Text("shakespeare", 6, 16, windows=4).held_out_batch("validation", slice(None))
    parameters = list(trainer.ensemble._form.parameters())
    loss = cross_entropy(trainer.ensemble._form(characters).flatten(0, 1), following.flatten())
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, create_graph=True)])
    assert frame["gradient_norm"][0] == pytest.approx(gradient.norm().item(), rel=1e-4)
    rows = [torch.autograd.grad(g, parameters, retain_graph=True, materialize_grads=True) for g in gradient]
    eigenvalues = np.linalg.eigvalsh(np.array([torch.cat([p.flatten() for p in row]).numpy() for row in rows], float))
    assert frame["hessian_norm"][0] == pytest.approx(np.abs(eigenvalues).max(), rel=0.02)
    # the preconditioner is linear there, but for its factor 1/λ
    assert frame["smoothness"][0] == pytest.approx(eigenvalues.max() / 1e4, rel=0.02)


@pytest.mark.slow
def test_the_report_has_all_points_and_those_after_the_first(store):
    assert store.missing(small().runs("smoke")) == []
    paths = experiments.write_report(small(), "smoke", store)
    assert [path.name for path in paths][2:] == ["convergence.svg", "curvature.svg"]
    text = paths[0].read_text()
    assert "| clip + SGDm | all | 11 |" in text
    assert "after 10 steps | " not in text  # one point makes no correlation
    assert "This experiment makes no claim." in text


def test_runs_are_named_by_what_is_measured():
    other = dataclasses.replace(small(), curvature={**small().curvature, "windows": 3})
    assert {run.key for run in other.runs("smoke")}.isdisjoint({run.key for run in small().runs("smoke")})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"products": 5}, "products must be at least 10, not 5"),
        ({"windows": 0}, "windows must be at least 1, not 0"),
        ({"reference": {"name": "x"}}, "unknown"),
    ],
)
def test_errors(change, message):
    with pytest.raises(ValueError, match=message):
        Curvature(**{**small().curvature, **change})

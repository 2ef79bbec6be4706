"""What `npgm.torch.suggest` carries over, beside the best stepsizes of the grids whose tables are committed."""

import math
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from npgm.lab import experiments
from npgm.lab.experiments.spec import Resources
from npgm.lab.experiments.training.experiment import trainer_of
from npgm.torch import suggest

REPORTS = Path(__file__).parents[3] / "docs" / "reports"
STEPS, BATCHES = 60, 10


def best(name, label, scale=1.0):
    """Return the best stepsize of a method, with the λ or radius of its grid that is nearest to ``scale``."""
    text = (REPORTS / name / "tuning.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    if by_radius := [(float(row[1]), float(row[2])) for row in rows if row[0] == label and len(row) == 4]:
        return min(by_radius, key=lambda row: abs(math.log(row[0] / scale)))[1]
    (found,) = (row[2] for row in rows if row[0] == label)
    return float(found)


def suggested(name, label, **numbers):
    """Return the suggestion at the network that a method has trained for a few steps with the tuning seed.

    Where the method moves some parameters only, it is for these.
    """
    experiment = experiments.load(name)
    method = next(method for method in experiment.methods if method.label == label)
    run = experiment.run(experiment.preset("cpu"), experiment.grid()[0], method, experiment.tuning_seed)
    trainer = trainer_of([run], Resources(torch.get_num_threads(), "cpu", Path()))
    for _ in range(STEPS):
        trainer.step()
    network = trainer.ensemble._form
    moved = {id(p) for group in trainer.optimizers[0].param_groups for p in group["params"]}
    for parameter in network.parameters():
        parameter.requires_grad_(id(parameter) in moved)
    order = trainer.examples.order([torch.Generator().manual_seed(0)])
    size = run.training.batch_size
    batches = [trainer.examples.batch(order, slice(i * size, (i + 1) * size)) for i in range(BATCHES)]

    def loss(model, batch):
        inputs, targets = batch
        return cross_entropy(model(inputs[0]).flatten(0, -2), targets.flatten())

    return suggest(network, loss, batches, momentum=0.9, **numbers)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "clip"), [("char-rnn", 0.05), ("char-lstm", 0.1)])
def test_suggestions_for_an_rnn_are_within_a_factor_of_two(name, clip):
    found = suggested(name, "clip + SGDm", sgd_lr=best(name, "clip + SGDm", clip), clip=clip,
                      adam_lr=best(name, "clip + AdamW", clip))  # fmt: skip
    print(found)
    for optimizer, label in (("NGD", "NGDm"), ("IHGD", "iHGDm"), ("SNGD", "sNGDm"), ("SHGD", "sHGDm")):
        options = found.options[optimizer]
        assert 0.5 <= options["lr"] / best(name, label, options["scale"]) <= 2.0, (label, options)


@pytest.mark.slow
def test_suggestions_for_mnist_are_within_a_factor_of_two():
    name = "spectral-mnist"  # in which the methods move the hidden matrices
    found = suggested(name, "SGDm", sgd_lr=best(name, "SGDm"), adam_lr=best(name, "AdamW"))
    print(found)
    for optimizer, label in (("IHGD", "iHGDm"), ("SHGD", "sHGDm")):
        options = found.options[optimizer]
        assert 0.5 <= options["lr"] / best(name, label, options["scale"]) <= 2.0, (label, options)

"""Claims on the loss at the end, and the range of stepsizes."""

import dataclasses
import math

import polars as pl
import pytest

from npgm.lab import experiments
from npgm.lab.experiments import claims
from npgm.lab.experiments.results import Results
from npgm.lab.experiments.spec import Claim
from npgm.lab.experiments.training.experiment import TextPreset


def small():
    """The real experiment with a network of a few units."""
    network = {"name": "rnn", "embedding": 4, "hidden": 6}
    preset = TextPreset(starts=[2], steps=4, every=2, windows=3, network=network)
    loaded = experiments.load("char-rnn")
    options = {**loaded.options, "length": 8}
    return dataclasses.replace(
        loaded, options=options, presets={"smoke": preset}, methods=loaded.methods[:2], claims=[]
    )


def verdict(check, own, other, **options):
    claim = Claim("s", check, "a", "b", options=options)
    rows = [
        {"method": label, "seed": seed, "diverged": not math.isfinite(value)}
        | dict.fromkeys(("test_loss", "validation_loss"), value)
        for label, values in (("a", own), ("b", other))
        for seed, value in enumerate(values)
    ]
    return claims.decide(small(), claim, pl.DataFrame(rows))


LOW, HIGH = (1.80, 1.91, 2.00), (1.90, 2.02, 2.10)  # seeds differ by more than methods, which differ by 0.1 on each


@pytest.mark.parametrize(
    ("check", "own", "other", "options", "holds"),
    [
        ("lower_loss", LOW, HIGH, {"by": 0.05}, "holds"),
        ("lower_loss", LOW, HIGH, {"by": 0.1}, "undecided"),
        ("lower_loss", LOW, HIGH, {"by": 0.2}, "does not hold"),
        ("lower_loss", HIGH, LOW, {"by": -0.2}, "holds"),
        ("lower_loss", HIGH, LOW, {"by": -0.05}, "does not hold"),
        ("lower_loss", LOW, (*HIGH[:2], math.nan), {"by": 0.05}, "holds"),
        ("lower_loss", (*LOW[:2], math.inf), HIGH, {"by": -9.0}, "does not hold"),
        ("lower_loss", (*LOW[:2], math.inf), (*HIGH[:2], math.nan), {"by": 0.0}, "undecided"),
        ("level_loss", LOW, HIGH, {"within": 0.2}, "holds"),
        ("level_loss", HIGH, LOW, {"within": 0.2}, "holds"),
        ("level_loss", LOW, HIGH, {"within": 0.1}, "undecided"),
        ("level_loss", LOW, HIGH, {"within": 0.05}, "does not hold"),
        ("level_loss", LOW, (*HIGH[:2], math.nan), {"within": 9.0}, "does not hold"),
        ("loss_ratio", LOW, HIGH, {"at_most": 0.96}, "holds"),
        ("loss_ratio", LOW, HIGH, {"at_most": 0.95}, "undecided"),
        ("loss_ratio", LOW, HIGH, {"at_most": 0.9}, "does not hold"),
        ("loss_ratio", LOW, (*HIGH[:2], math.nan), {"at_most": 0.1}, "holds"),
        ("loss_ratio", (*LOW[:2], math.inf), HIGH, {"at_most": 9.0}, "does not hold"),
        ("loss_ratio", (*LOW[:2], math.inf), (math.nan, *HIGH[1:]), {"at_most": 9.0}, "undecided"),
    ],
)
def test_losses_are_compared_seed_by_seed(check, own, other, options, holds):
    found = verdict(check, own, other, **options)
    assert found.holds == holds, found.measured


def test_the_text_of_a_comparison():
    assert verdict("lower_loss", LOW, HIGH, by=0.05).measured.endswith("a 1.903, b 2.007, difference -0.103 ± 0.014")
    assert verdict("loss_ratio", LOW, HIGH, at_most=0.9).measured.endswith("a 1.903, b 2.007, ratio 0.949")
    assert "b 1 of 3 not finite" in verdict("lower_loss", LOW, (*HIGH[:2], math.nan), by=0.05).measured


def test_what_a_setting_does_to_a_method():
    experiment = dataclasses.replace(small(), settings={"disturbance": ["none", "loss-1e2", "loss-1e6"]},
                                     presets={"smoke": dataclasses.replace(small().preset("smoke"), starts=[2, 2, 2])})  # fmt: skip
    harm = [{"disturbance": "loss-1e2"}, {"disturbance": "loss-1e6"}]
    claim = Claim("s", "unharmed", "a", options={"setting": {"disturbance": "none"}, "by": harm, "within": 0.05})

    def rows(*losses):
        names = experiment.settings["disturbance"]
        return pl.DataFrame([
            {"disturbance": name, "method": "a", "seed": seed, "test_loss": loss + seed, "diverged": not math.isfinite(loss)}
            for name, loss in zip(names, losses, strict=True) for seed in (0, 1)
        ])  # fmt: skip

    assert claims.decide(experiment, claim, rows(2.0, 1.9, 2.01)).holds == "holds"
    assert claims.decide(experiment, claim, rows(2.0, 2.0, 2.1)).holds == "does not hold"
    found = claims.decide(experiment, claim, rows(2.0, 2.0, math.nan))
    assert (found.holds, "loss-1e6 2 of 2 not finite" in found.measured) == ("does not hold", True)


@pytest.mark.slow
def test_the_range_of_stepsizes_is_run_and_shown(tmp_path):
    overflowing = {"lr": 1.0, "weight_decay": 1e30}  # all parameters are infinite after two steps, on every processor
    sgd, wild = small().methods[0], dataclasses.replace(small().methods[1], options=overflowing)
    experiment = dataclasses.replace(small(), methods=[sgd, wild])
    store = experiments.run(experiment, "smoke", tmp_path, jobs=1)
    sweep = Results(experiment, "smoke", store).stepsize_sweep
    assert sweep["times"].to_list() == 2 * [0.125, 0.25, 0.5, 1, 2, 4, 8]
    assert sweep["lr"].to_list()[:7] == [0.125, 0.25, 0.5, 1, 2, 4, 8]
    frame = store.read(experiment.runs("smoke", [sgd.label]))
    assert set(frame["seed"]) == {0, 1}
    assert sorted(set(frame["k"])) == [2, 4]
    paths = experiments.write_report(experiment, "smoke", store)
    assert [path.name for path in paths] == ["report.md", "report.html", "convergence.svg", "stepsize-sweep.svg"]
    text = paths[0].read_text()
    for part in (
        "Beyond the paper, preset `smoke`: network rnn, embedding = 4",
        "## Range of stepsizes",
        "| SGDm | inf | – | none: every stepsize diverges |",
    ):
        assert part in text


def test_how_wide_a_range_is_run_is_the_presets():
    for multiples, times in ((1, [0.5, 1, 2]), (0, [])):
        preset = dataclasses.replace(small().preset("smoke"), stepsize_sweep=multiples)
        runs = dataclasses.replace(small(), methods=small().methods[:1], presets={"smoke": preset}).stepsize_sweep(
            "smoke"
        )
        assert [run.method.options["lr"] for run in runs] == times
    with pytest.raises(ValueError, match="stepsize_sweep must be at least 0, not -1"):
        dataclasses.replace(preset, stepsize_sweep=-1)


def test_no_range_without_a_seed_for_it():
    assert dataclasses.replace(small(), tuning_seed=None).stepsize_sweep("smoke") == []
    assert experiments.load("mnist").stepsize_sweep("paper") == []

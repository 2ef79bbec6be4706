"""Reports of what was run in part or not at all, and the overview."""

import dataclasses

import polars as pl
import pytest

from npgm.lab import experiments
from npgm.lab.experiments.solving.experiment import SolvingPreset
from npgm.lab.experiments.summary import over_starts


def small():
    """The real experiment with small problems, at two presets."""
    presets = {
        "smoke": SolvingPreset(starts=[3, 2], maxiter=5, inconclusive="too short"),
        "paper": SolvingPreset(starts=[3, 2], maxiter=9),
    }
    problem = {"n": 30, "m": 10, "batch_size": 3}
    return dataclasses.replace(experiments.load("phase-retrieval"), options=problem, presets=presets)


def claim_rows(text):
    return [line.split(" | ") for line in text.splitlines() if " | It " in line]


@pytest.mark.slow
def test_the_report_of_what_was_never_run(tmp_path):
    for name in experiments.names():
        experiment = experiments.load(name)
        paths = experiments.write_report(experiment, "paper", experiments.Store(tmp_path / name / "runs"))
        assert [path.name for path in paths] == ["report.md", "report.html"]
        text = paths[0].read_text()
        assert "**No run is done: this preset was never run.**" in text
        assert "## Results" not in text
        assert "## Methods" in text
        assert ("The paper states no result of it in words." in text) == bool(
            experiment.source and not experiment.claims
        )
        rows = claim_rows(text)
        assert len(rows) == len(experiment.claims) * len(experiment.by_reading())
        total = len(experiment.runs("paper"))
        assert all(row[1] == f"It was not run at paper, 0 of {total} runs." for row in rows)


@pytest.mark.slow
def test_the_report_of_what_was_run_in_part(tmp_path):
    store = experiments.run(small(), "paper", tmp_path, jobs=1, methods=["sHGD", "clipped SGD"], seeds=2)
    markdown, *_ = experiments.write_report(small(), "paper", store)
    similar, _, slower, as_variance = claim_rows(markdown.read_text())
    assert similar[1] == "It is undecided at [paper, 8 of 15 runs](#results)."  # after nine iterations
    assert similar[2] == "sHGD against clipped SGD, 0.5 as the standard deviation"
    assert slower[1::2] == ["It was not run at [paper, 8 of 15 runs](#results).", "no run of iHGD is done |"]
    assert as_variance[1:3] == [slower[1], "iHGD, 0.5 as the variance"]
    assert "**7 runs of this preset are not done; what follows is of the others.**" in markdown.read_text()


@pytest.mark.slow
def test_a_setting_without_runs_and_one_with_too_little(tmp_path):
    store = experiments.run(small(), "smoke", tmp_path, jobs=1)
    for run in small().runs("smoke"):
        if run.setting == {"variance": 0.25}:
            store.path(run).unlink()
    markdown, _, figure = experiments.write_report(small(), "smoke", store)
    assert figure.stat().st_size > 10_000
    assert "| variance = 0.5 | iHGD |" in markdown.read_text()
    rows, readings = claim_rows(markdown.read_text()), small().readings["variance"]
    verdicts = [(row[1].partition(" at ")[0], row[2].rpartition(", ")[2]) for row in rows]
    assert verdicts == 2 * [("It was not run", readings[0]), ("It is undecided", readings[1])]
    assert all(row[3].startswith("too short, which decides nothing: ") for row in rows[1::2])


def test_the_results_of_presets(tmp_path):
    store = experiments.Store(tmp_path / "phase-retrieval" / "runs")
    assert [(r.preset, r.none) for r in experiments.recorded(small(), store)] == [("paper", True)]
    experiments.run(small(), "smoke", tmp_path, jobs=1)
    assert [(r.preset, r.none) for r in experiments.recorded(small(), store)] == [("smoke", False)]
    experiments.run(small(), "paper", tmp_path, jobs=1, seeds=1)
    recorded = experiments.recorded(small(), store)
    assert [(r.preset, r.extent) for r in recorded] == [("paper", "paper, 6 of 15 runs"), ("smoke", "smoke")]


@pytest.mark.slow
def test_the_overview_has_each_claim_at_its_largest_preset(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "npgm.lab.experiments.catalogue.load",
        lambda name, load=experiments.load: small() if name == "phase-retrieval" else load(name),
    )
    experiments.run(small(), "smoke", tmp_path, jobs=1)
    store = experiments.run(small(), "paper", tmp_path, jobs=1, methods=["sHGD", "clipped SGD"])
    experiments.write_report(small(), "paper", store)
    markdown, html = experiments.write_overview(tmp_path)
    text = markdown.read_text()
    assert text.index("\nBeyond the paper.") > text.rindex(" of the paper.\n")  # the paper's claims come first
    rows = claim_rows(text.partition("## Stochastic phase retrieval")[2].partition("\n## ")[0])
    places = [row[1].partition(" at ")[2] for row in rows]
    link = "[paper, 10 of 15 runs](phase-retrieval/paper/report.md)."
    assert places == [link, link, "smoke.", "smoke."]  # whose report is not written
    others = [row for row in claim_rows(text) if row not in rows]
    every = (experiments.load(name) for name in experiments.names())
    assert len(others) == sum(len(experiment.claims) * len(experiment.by_reading()) for experiment in every) - 4
    assert {row[1].partition(" at ")[0] for row in others} == {"It was not run"}
    assert f"not run: {len(others)})." in text
    assert "It was not run, since this preset was never run: paper, 0 of 12 runs." in text
    assert 'href="phase-retrieval/paper/report.html"' in html.read_text()


def test_a_mean_over_seeds_of_which_some_diverged():
    experiment = experiments.load("mnist")
    assert (
        over_starts(experiment, "train_loss", pl.Series([0.1, float("nan"), float("inf")])) == "not finite for 2 of 3"
    )
    assert over_starts(experiment, "train_loss", pl.Series([0.1, 0.3])).startswith("0.2 ± ")
    assert over_starts(experiment, "test_accuracy", pl.Series([0.5])) == "50.00%"

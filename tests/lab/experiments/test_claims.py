"""Verdicts on the paper's sentences, from summaries of runs."""

import dataclasses
import math

import polars as pl
import pytest

from npgm.lab import experiments
from npgm.lab.experiments import claims
from npgm.lab.experiments.claims import Verdict
from npgm.lab.experiments.spec import Claim

ROW = {"seed": 0, "reached": 10, "reached_10": 5, "reached_100": 2, "diverged": False, "grad_norm": 1e-4, "gap": 0.0,
       "length": 100, "seconds": 1e-3}  # fmt: skip
COUNTS = dict.fromkeys(("reached", "reached_10", "reached_100"), pl.Int64)


def frame(*rows):
    return pl.DataFrame([{**ROW, **row} for row in rows], schema_overrides=COUNTS)


def runs(method, reached, **columns):
    """One run a seed, with the iterations to the tolerance and, in proportion, to larger ones."""
    return [
        {"method": method, "seed": seed, "reached": k, "reached_10": k and k // 2, "reached_100": k and k // 4}
        | columns
        for seed, k in enumerate(reached)
    ]


def factorisation(check, rows, method="iHGDm", other=None, **options):
    experiment = dataclasses.replace(experiments.load("matrix-factorization"), settings={}, presets={})
    others = [row for label in ("GD", "AdGD-accel") for row in runs(label, [None, None], grad_norm=1.0)]
    return claims.decide(experiment, Claim("s", check, method, other, options), frame(*rows, *others))


@pytest.mark.parametrize(
    ("ours", "theirs", "fastest", "fast", "steadiest"),
    [
        ([10, 12], [20, 40], "holds", "holds", "holds"),
        ([20, 22], [30, 31], "does not hold", "holds", "does not hold"),  # faster, but not by much
        ([40, 41], [40, 41], "does not hold", "holds", "does not hold"),
        ([44, 44], [40, 44], "does not hold", "does not hold", "holds"),
        ([40, 80], [16, 48], "does not hold", "does not hold", "holds in part"),  # a smaller ratio, a wider band
        ([20, 24], [None, 21], "holds", "holds", "holds"),  # 100 at least
        ([80, 88], [None, 90], "undecided", "holds", "holds"),  # the budget is 100
        ([None, None], [20, 21], "does not hold", "does not hold", "does not hold"),
        ([None, None], [None, None], "undecided", "undecided", "undecided"),
    ],
)
def test_speed(ours, theirs, fastest, fast, steadiest):
    rows = [*runs("iHGDm", ours), *runs("GDm", theirs)]
    verdicts = [factorisation(check, rows).holds for check in ("fastest", "fast", "steadiest")]
    assert verdicts == [fastest, fast, steadiest]


def test_measured_values_are_shown():
    rows = [*runs("iHGDm", [10, 12]), *runs("GDm", [20, 40])]
    assert factorisation("fastest", rows).measured == (
        "iterations to ‖∇f‖ ≤ 0.001, median over the starts; iHGDm 11, next GDm 30, 2.73 times as many"
    )
    assert "to ‖∇f‖ ≤ 0.001 iHGDm 1.2 and 2, GDm 2 and 20, not all starts: GD, AdGD-accel" in (
        factorisation("steadiest", rows).measured
    )
    assert "to ‖∇f‖ ≤ 0.1 iHGDm 1.5 and 1, GDm 2 and 5" in factorisation("steadiest", rows).measured


@pytest.mark.parametrize(
    ("reached", "diverged", "wanted"),
    [([5, 6], False, "holds"), ([5, None], False, "undecided"), ([None, None], False, "undecided"), ([None, 5], True, "does not hold")],
)  # fmt: skip
def test_convergence(reached, diverged, wanted):
    rows = runs("GDm", reached)
    rows[0]["diverged"] = diverged
    assert factorisation("converges", rows, "GDm").holds == wanted


@pytest.mark.parametrize(
    ("own", "doubled", "wanted"),
    [
        (([5, 6], False), ([None, None], True), "holds"),
        (([5, None], False), ([None, None], True), "undecided"),
        (([5, 6], False), ([None, None], False), "undecided"),
        (([5, 6], False), ([9, None], False), "does not hold"),
        (([None, None], True), ([None, None], True), "does not hold"),
    ],
)
def test_a_stepsize_that_cannot_be_doubled(own, doubled, wanted):
    rows = [*runs("GDm", own[0], diverged=own[1]), *runs("GDm, 2γ", doubled[0], diverged=doubled[1])]
    assert factorisation("only_at_its_stepsize", rows, "GDm", "GDm, 2γ").holds == wanted


@pytest.mark.parametrize(
    ("own", "other", "wanted"),
    [
        ([10, 20], [None, None], "holds"),
        ([10, 20], [30, 40], "does not hold"),
        ([None, None], [None, None], "does not hold"),
        ([10, None], [None, None], "undecided"),
        ([10, 20], [30, None], "undecided"),
    ],
)
def test_one_that_converges_where_another_does_not(own, other, wanted):
    verdict = factorisation("converges_alone", [*runs("iHGDm", own), *runs("GDm", other)], other="GDm")
    assert verdict.holds == wanted
    assert f"iHGDm: {sum(k is not None for k in own)} of 2 runs reached" in verdict.measured


@pytest.mark.parametrize(
    ("ihgd", "shgd", "clipped", "similar", "slower"),
    [
        ((90, 1.0), (10, 1.0), (12, 1.1), "holds", "holds"),
        ((90, 9.0), (10, 1.0), (12, 1.1), "holds", "holds in part"),
        ((90, 0.1), (10, 1.0), (12, 1.1), "holds", "holds in part"),  # as good in the end, it says: not far better
        ((11, 1.0), (10, 1.0), (12, 1.1), "holds", "holds in part"),
        ((90, 1.0), (10, 1.0), (30, 1.1), "does not hold", "holds"),
        ((90, 1.0), (10, 1.0), (12, 3.0), "does not hold", "holds in part"),
        ((90, 1.0), (None, 1.0), (None, 1.1), "undecided", "holds in part"),
        ((None, 1.0), (10, 1.0), (None, 1.0), "does not hold", "holds in part"),
    ],
)
def test_likeness(ihgd, shgd, clipped, similar, slower):
    experiment = dataclasses.replace(experiments.load("phase-retrieval"), settings={}, readings={}, presets={})
    rows = frame(*(
        row
        for label, (reached, gap) in zip(("iHGD", "sHGD", "clipped SGD"), (ihgd, shgd, clipped), strict=True)
        for row in runs(label, [reached, reached], gap=gap)
    ))  # fmt: skip
    verdicts = [claims.decide(experiment, claim, rows).holds for claim in experiment.claims]
    assert verdicts == [similar, slower]


@pytest.mark.parametrize(
    ("ours", "theirs", "spread", "best", "similar"),
    [
        ((0.1, 0.948), (0.2, 0.94), 1e-4, "holds", "holds"),
        ((0.1, 0.9551), (0.2, 0.94), 1e-4, "holds", "does not hold"),  # better is not similar
        ((0.1, 0.95), (0.2, 0.94), 0.01, "holds in part", "undecided"),  # the seeds differ by as much
        ((0.19, 0.95), (0.2, 0.94), 0.01, "undecided", "undecided"),
        ((0.1, 0.93), (0.2, 0.935), 1e-4, "holds in part", "holds"),
        ((0.3, 0.92), (0.2, 0.94), 1e-4, "does not hold", "does not hold"),
        ((math.inf, 0.1), (0.2, 0.94), 1e-4, "does not hold", "does not hold"),
    ],
)
def test_accuracy(ours, theirs, spread, best, similar):
    experiment = experiments.load("cifar10")
    rows = pl.DataFrame([
        {**ROW, "method": label, "seed": seed, "train_loss": loss, "test_accuracy": accuracy + sign * spread, "diverged": loss == math.inf}
        for label, (loss, accuracy) in {"iHGD": ours, "sHGD": theirs, "SGD": theirs}.items()
        for seed, sign in enumerate((-1.0, 0.0, 1.0))
    ])  # fmt: skip
    claim = experiment.claims[0]
    assert claims.decide(experiment, dataclasses.replace(claim, check="best"), rows).holds == best
    assert claims.decide(experiment, claim, rows).holds == similar
    if ours[1] == 0.9551:
        assert claims.decide(experiment, dataclasses.replace(claim, options={"within": 0.02}), rows).holds == "holds"
    assert claims.decide(experiment, claim, rows.filter(method="SGD")).holds == "not run"
    alone = claims.decide(experiment, claim, rows.filter(seed=0))
    assert alone.holds == "undecided"
    assert alone.measured.startswith("one of the seeds only, which decides nothing: last test accuracy")


@pytest.mark.parametrize(("of", "hours"), [("run", 0.0625), ("method", 0.125), ("all", 0.5)])
def test_run_times(of, hours):
    rows = [*runs("iHGDm", [10, 12], seconds=0.25, length=900), *runs("GDm", [10, 12], seconds=0.25, length=900)]
    rows += runs("GDm, 2γ", [10, 12], seconds=1e6)  # which is not compared
    experiment = dataclasses.replace(experiments.load("matrix-factorization"), settings={}, presets={})
    others = [row for label in ("GD", "AdGD-accel") for row in runs(label, [1, 1], seconds=0.25, length=900)]
    for bound, wanted in ((1.01 * hours, "holds"), (0.99 * hours, "does not hold")):
        claim = Claim("s", "run_time", "iHGDm", options={"hours": bound, "of": of})
        verdict = claims.decide(experiment, claim, frame(*rows, *others))
        assert verdict.holds == wanted
        assert verdict.measured.startswith(f"{hours:.2g} hours for ")


def test_the_scale_matters_where_iterations_differ():
    experiment = experiments.load("stepsize-relation")
    for reached, wanted in (
        ([40, 10, 20, None, None], "holds"),
        ([15, 10, 12, 13, 14], "does not hold"),
        ([None] * 5, "undecided"),
    ):
        rows = [
            {**row, "rank": 10}
            for method, k in zip(experiment.methods, reached, strict=True)
            for row in runs(method.label, [k, k])
        ]
        assert claims.decide(experiment, experiment.claims[0], frame(*rows)).holds == wanted


def test_settings_are_combined_and_readings_are_not(tmp_path, monkeypatch):
    experiment = experiments.load("matrix-factorization")
    rows = [
        {**row, "rank": rank}
        for rank, ours in ((10, 10), (20, 70), (30, None))
        for label, k in (("iHGDm", ours), ("GDm", 60), ("GD", None), ("AdGD-accel", 90))
        for row in runs(label, [k, k])
    ]
    verdict = claims.decide(experiment, experiment.claims[0], frame(*rows))
    assert verdict.holds == "holds in part"
    assert "; rank = 10: iHGDm 10, next GDm 60, 6 times as many; rank = 20: " in verdict.measured
    open_to_readings = dataclasses.replace(experiment, readings={"rank": ["ten", "twenty", "thirty"]})
    parts = open_to_readings.by_reading()
    assert [words for words, _, _ in parts] == ["ten", "twenty", "thirty"]
    assert [alone.preset("paper").starts for _, _, alone in parts] == [[10], [10], [3]]
    decided = [
        claims.decide(alone, experiment.claims[0], frame(*rows).filter(**setting)) for _, setting, alone in parts
    ]
    assert [verdict.holds for verdict in decided] == ["holds", "does not hold", "does not hold"]
    assert all("rank" not in verdict.measured for verdict in decided)


def test_verdicts_are_combined():
    combine = claims.combined
    assert combine(["holds", "holds"]) == "holds"
    assert combine(["holds", "undecided"]) == combine(["holds in part", "does not hold"]) == "holds in part"
    assert combine(["undecided", "does not hold"]) == "does not hold"
    assert combine(["undecided"]) == "undecided"
    assert Verdict.of("x", None) == Verdict("x", "undecided")


def test_every_smoke_preset_decides_nothing():
    for name in experiments.names():
        experiment = experiments.load(name)
        assert experiment.preset("smoke").inconclusive
        assert not experiment.preset("paper").inconclusive


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (Claim("s", "fastets", "GD"), "unknown check 'fastets'; accepted: as_many, best, "),
        (Claim("s", "run_time", "GD"), "the check 'run_time': missing a required argument: 'hours'"),
        (Claim("s", "fastest", "GD", options={"x": 1}), "the check 'fastest': got an unexpected keyword argument 'x'"),
    ],
)
def test_a_claim_that_cannot_be_checked_is_refused_at_once(claim, message):
    with pytest.raises((TypeError, ValueError), match=message):
        claims.verify(claim)

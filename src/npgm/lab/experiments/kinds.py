"""The kinds of experiments, by the name that a TOML file has in ``kind``.

To add one, write a folder with an `Experiment` and a `KindReport`, and enter both here.
"""

from __future__ import annotations

import pkgutil
from typing import Any, NamedTuple

from npgm._common import validate


class Kind(NamedTuple):
    """The classes of a kind, which are imported when they are needed: some need torch, and others do not."""

    experiment: str
    report: str


KINDS = {
    "solving": Kind("solving.experiment:SolvingExperiment", "solving.report:SolvingReport"),
    "composite": Kind("solving.experiment:CompositeExperiment", "solving.report:SolvingReport"),
    "contest": Kind("contest.experiment:ContestExperiment", "contest.report:ContestReport"),
    "image-training": Kind("training.experiment:ImageExperiment", "training.report:TrainingReport"),
    "text-training": Kind("training.experiment:TextExperiment", "training.report:TrainingReport"),
    "curvature": Kind("curvature.experiment:CurvatureExperiment", "curvature.report:CurvatureReport"),
}


def experiment_class(kind: object) -> Any:
    """Return the class of the experiments of a kind; raises a ValueError if there is no such kind."""
    return _resolved(KINDS[validate.choice("kind", kind, KINDS)].experiment)


def report_class(kind: str) -> Any:
    """Return the class of the reports of a kind."""
    return _resolved(KINDS[kind].report)


def _resolved(place: str) -> Any:
    return pkgutil.resolve_name(f"{__package__}.{place}")

"""The paper's experiments: specifications in TOML, one runner, one report."""

from npgm.experiments.catalogue import chosen, load, names
from npgm.experiments.overview import write_overview
from npgm.experiments.report import write_report
from npgm.experiments.results import Results, recorded
from npgm.experiments.runner import run
from npgm.experiments.spec import Experiment
from npgm.experiments.store import Store

__all__ = ["Experiment", "Results", "Store", "chosen", "load", "names", "recorded", "run", "write_overview",
           "write_report"]  # fmt: skip

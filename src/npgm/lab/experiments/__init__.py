"""The paper's experiments: specifications in TOML, one runner, one report."""

from npgm.lab.experiments.catalogue import chosen, load, names
from npgm.lab.experiments.overview import write_overview
from npgm.lab.experiments.report import draw_figures, write_report
from npgm.lab.experiments.results import Results, recorded
from npgm.lab.experiments.runner import run
from npgm.lab.experiments.spec import Experiment
from npgm.lab.experiments.store import Store

__all__ = [
    "Experiment",
    "Results",
    "Store",
    "chosen",
    "draw_figures",
    "load",
    "names",
    "recorded",
    "run",
    "write_overview",
    "write_report",
]

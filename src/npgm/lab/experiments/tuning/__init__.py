"""The stepsizes of an experiment, tuned as the paper did it: an adaptive grid on one seed, checked on all."""

from npgm.lab.experiments.tuning.table import write_table
from npgm.lab.experiments.tuning.tune import Tuned, tune

__all__ = ["Tuned", "tune", "write_table"]

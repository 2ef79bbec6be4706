"""Checks that hold a sentence of the paper against measured runs, by the name that a specification uses.

A check is a function of the experiment, the claim and the summary of the runs, with the claim's options as keyword
arguments. To add one, decorate it in a module of this folder with `register` or `against_all`, and import the module
here.
"""

from npgm.lab.experiments.claims import accuracy, contest, losses, speed, stability
from npgm.lab.experiments.claims.base import (
    VERDICTS,
    Check,
    Verdict,
    against_all,
    combined,
    decide,
    each_setting,
    register,
    registry,
    verify,
)

__all__ = ["VERDICTS", "Check", "Verdict", "accuracy", "against_all", "combined", "contest", "decide", "each_setting",
           "losses", "register", "registry", "speed", "stability", "verify"]  # fmt: skip

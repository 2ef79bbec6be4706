"""The theory as software: estimates of its constants, its theorems as functions, and certificates of runs."""

from npgm.theory import bounds, certify, oracles
from npgm.theory.bounds.momentum import schedule
from npgm.theory.oracles import Oracle
from npgm.theory.smoothness import (
    Estimate,
    anisotropic_smoothness,
    hessian_norm,
    l0_l1_fit,
    noise,
    pl_constant,
    preconditioned_lipschitz,
    sharpness,
)

__all__ = [
    "Estimate",
    "Oracle",
    "anisotropic_smoothness",
    "bounds",
    "certify",
    "hessian_norm",
    "l0_l1_fit",
    "noise",
    "oracles",
    "pl_constant",
    "preconditioned_lipschitz",
    "schedule",
    "sharpness",
]

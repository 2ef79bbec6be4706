"""Objectives with their gradients, Hessian-vector products and known optima.

`registry` holds those whose constants relative to a reference function are known in closed form: the certificates of
`npgm.theory` are tested on them.

    >>> import numpy as np, npgm
    >>> problem = npgm.problems.registry["quartic"]()
    >>> problem(np.array([2.0]))
    (np.float64(4.0), array([8.]))
    >>> round(problem.constants(npgm.reference("separable-cosh")).smoothness, 4)
    2.1822
"""

from npgm.problems import multivariate, scalar_sums
from npgm.problems.base import Constants, Problem, StochasticProblem, register, registry
from npgm.problems.matrix_factorization import MatrixFactorization
from npgm.problems.phase_retrieval import PhaseRetrieval

__all__ = [
    "Constants",
    "MatrixFactorization",
    "PhaseRetrieval",
    "Problem",
    "StochasticProblem",
    "multivariate",
    "register",
    "registry",
    "scalar_sums",
]

"""Objectives with their gradients, Hessian-vector products and known optima.

`registry` contains those whose constants relative to a reference function are known in closed form; the certificates of
`npgm.theory` are tested on them.

    >>> import numpy as np, npgm
    >>> problem = npgm.problems.registry["quartic"]()
    >>> problem(np.array([2.0]))
    (np.float64(4.0), array([8.]))
    >>> round(problem.constants(npgm.reference("separable-cosh")).smoothness, 4)
    2.1822

`composites` contains sums of a smooth function and a function with proximal steps.

    >>> problem = npgm.problems.composites["sparse-logistic"](samples=60, features=12)
    >>> npgm.minimize(problem, problem.start, prox=problem.prox).success
    True
"""

from npgm.problems import multivariate, scalar_sums
from npgm.problems.base import Constants, Problem, StochasticProblem, register, registry
from npgm.problems.composite import CompositeProblem
from npgm.problems.composite import registry as composites
from npgm.problems.matrix_factorization import MatrixFactorization
from npgm.problems.nonnegative_factorization import NonnegativeFactorization
from npgm.problems.phase_retrieval import PhaseRetrieval
from npgm.problems.sparse_logistic import SparseLogisticRegression

__all__ = [
    "CompositeProblem",
    "Constants",
    "MatrixFactorization",
    "NonnegativeFactorization",
    "PhaseRetrieval",
    "Problem",
    "SparseLogisticRegression",
    "StochasticProblem",
    "composites",
    "multivariate",
    "register",
    "registry",
    "scalar_sums",
]

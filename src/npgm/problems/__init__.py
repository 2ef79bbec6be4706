"""Objectives with their gradients, Hessian-vector products and known optima."""

from npgm.problems.matrix_factorization import MatrixFactorization
from npgm.problems.phase_retrieval import PhaseRetrieval

__all__ = ["MatrixFactorization", "PhaseRetrieval"]

"""Objectives with their gradients, Hessian-vector products and known optima."""

from npgm.problems.matrix_factorization import MatrixFactorization

__all__ = ["MatrixFactorization"]

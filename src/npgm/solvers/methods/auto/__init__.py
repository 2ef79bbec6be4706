"""The method that needs no number, and its parts."""

from npgm.solvers.methods.auto.method import Auto

__all__ = ["Auto"]

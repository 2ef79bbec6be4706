"""Penalties and constraints: convex functions g to add to f, with their proximal steps for a reference function φ.

>>> import numpy as np, npgm
>>> g = npgm.proximal.L1(1.0)
>>> g.step(npgm.reference("separable-cosh"), np.array([3.0, 0.5, -2.0]), 1.0)   # thresholded at arsinh(1)
array([ 2.11862641,  0.        , -1.11862641])
"""

from npgm.proximal.base import Proximable
from npgm.proximal.bounds import as_box
from npgm.proximal.entries import L1, Box, ElasticNet, Nonnegative, Scalar
from npgm.proximal.groups import GroupL2
from npgm.proximal.matrices import NuclearBall, NuclearNorm, Rank, SpectralBall
from npgm.proximal.rows import Rows
from npgm.proximal.sequential import SortedL1, TotalVariation
from npgm.proximal.simplex import L1Ball, Simplex
from npgm.proximal.vectors import L2, Ball, ConvexSet, Sphere

__all__ = [
    "L1",
    "L2",
    "Ball",
    "Box",
    "ConvexSet",
    "ElasticNet",
    "GroupL2",
    "L1Ball",
    "Nonnegative",
    "NuclearBall",
    "NuclearNorm",
    "Proximable",
    "Rank",
    "Rows",
    "Scalar",
    "Simplex",
    "SortedL1",
    "SpectralBall",
    "Sphere",
    "TotalVariation",
    "as_box",
]

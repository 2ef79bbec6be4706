"""Convex functions g beside the smooth one, with the steps that a reference function φ makes of them.

>>> import numpy as np, npgm
>>> g = npgm.proximal.L1(1.0)
>>> g.step(npgm.reference("separable-cosh"), np.array([3.0, 0.5, -2.0]), 1.0)   # thresholded at arsinh(1)
array([ 2.11862641,  0.        , -1.11862641])
"""

from npgm.proximal.base import Proximable
from npgm.proximal.entries import L1, Box, Nonnegative, Scalar
from npgm.proximal.matrices import NuclearNorm, Rank, SpectralBall
from npgm.proximal.vectors import L2, Ball, ConvexSet, GroupL2

__all__ = [
    "L1",
    "L2",
    "Ball",
    "Box",
    "ConvexSet",
    "GroupL2",
    "Nonnegative",
    "NuclearNorm",
    "Proximable",
    "Rank",
    "Scalar",
    "SpectralBall",
]

"""What a step goes along: u = ∇φ*(∇f(x)) for a φ that is given, or learnt along the way."""

from npgm.solvers.directions.base import Direction
from npgm.solvers.directions.preconditioned import Preconditioned

__all__ = ["Direction", "Preconditioned"]

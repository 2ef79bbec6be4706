"""The constants of the theory, measured."""

from npgm.theory.smoothness import sharpness

__all__ = ["sharpness"]

"""Scalar kernels h: the even convex functions from which reference functions are built.

A kernel is convex and even, with h(0) = 0, and its conjugate h*(y) = sup_x xy - h(x) is finite everywhere. The
preconditioner h*' is the inverse of h'. The paper assumes more (`Kernel.strongly_convex_c2`), which two kernels do not
satisfy: `Power`, and `Huber`, whose preconditioner is hard clipping.

To add a kernel, write one class and register it, in a file of this folder or in your own code. The contract tests and
the command line find it in `registry`. `FromPrimal` makes a kernel from h and h', `FromDual` from h*'.

    >>> import npgm
    >>> npgm.kernels.registry["cosh"]()
    Cosh()
    >>> float(npgm.Cosh().precondition(0.0))
    0.0
"""

import importlib
import pkgutil

from npgm._common.array import elementwise
from npgm.kernels.base import Kernel, register, registry
from npgm.kernels.bounded import Artanh, Log, LogCos, LogSquare, Sqrt
from npgm.kernels.custom import FromDual, FromPrimal
from npgm.kernels.exponential import Cosh, Exp, ExpSquare
from npgm.kernels.polynomial import Cubic, Huber, Power, Quadratic, Quartic
from npgm.kernels.root import Root

__all__ = [
    "Artanh",
    "Cosh",
    "Cubic",
    "Exp",
    "ExpSquare",
    "FromDual",
    "FromPrimal",
    "Huber",
    "Kernel",
    "Log",
    "LogCos",
    "LogSquare",
    "Power",
    "Quadratic",
    "Quartic",
    "Root",
    "Sqrt",
    "elementwise",
    "register",
    "registry",
]

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)

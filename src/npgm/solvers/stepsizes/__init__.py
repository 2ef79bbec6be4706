"""Rules for the stepsize γ of a step p = -γ(1-β) u + (momentum). ``lr=`` takes the name of a rule, or a rule.

To add a rule, write a class in a file here, or in your own code, and register it.
"""

import importlib
import pkgutil

from npgm.solvers.stepsizes.base import Stepsize, as_lr, register, registry

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)

__all__ = ["Stepsize", "as_lr", "register", "registry"]

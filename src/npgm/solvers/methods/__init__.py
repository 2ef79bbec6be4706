"""The solvers, one file each; a file here is imported, and so registered, with `npgm.solvers`."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)

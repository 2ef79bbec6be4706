"""Deterministic first-order methods on any array library.

`minimize` runs them; each is also an attribute of this module, to be passed to `scipy.optimize.minimize` as
``method=npgm.solvers.<name>``. To add a solver, write one class in one file of `npgm.solvers.methods`, or in your own
code, and register it.
"""

from npgm.solvers import methods
from npgm.solvers.history import History
from npgm.solvers.loop import Status, minimize
from npgm.solvers.method import Method, register, registry
from npgm.solvers.scipy_method import ScipyMethod

__all__ = ["History", "Method", "ScipyMethod", "Status", "methods", "minimize", "register", "registry"]


def __getattr__(name: str) -> ScipyMethod:
    if name in registry:
        return ScipyMethod(name)
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}; the solvers are {', '.join(sorted(registry))}"
    )


def __dir__() -> list[str]:
    return [*__all__, *registry]
